// A oneDNN matmul primitive with post-ops, prepared once for concrete shapes. See plan.fbs, table
// Matmul, for its meaning.
#pragma once

#include <memory>

#include "runtime/primitives/core/primitive.h"

namespace zefuse::plan {
enum class LibraryWay : uint8_t;
}  // namespace zefuse::plan

namespace zefuse::primitives {

// Precision of the products of f32 operands. bf16 is what
// torch.set_float32_matmul_precision("medium") permits: it is used where the CPU has bf16
// instructions and it pays.
enum class FpMath : uint8_t { strict, bf16 };

// Ranks are equal, but bias and post-op operands may have fewer dimensions.
struct MatmulDesc {
  TensorDesc a, b, out;
  std::optional<TensorDesc> bias;
  float alpha = 1.0f;
  std::vector<PostOpDesc> post_ops;
  bool pack_b = false;  // b is a parameter: let oneDNN choose its layout
  FpMath fpmath = FpMath::strict;
  plan::LibraryWay way{};  // what a measurement chose; automatic: the rules of PreparedMatmul
  bool operator==(const MatmulDesc&) const = default;
};

// Element types: a and b both f32, both bf16 or both f16; out f32 or their type; bias and post-op operands
// f32, bf16 or f16. Strides are not negative; any others work, those that oneDNN cannot describe by a
// copy into scratch. Sizes may be 0. Immutable and thread-safe after creation.
class Matmul : public Primitive {
public:
  // From a process-wide LRU cache keyed by the descriptor and torch's thread count
  // (omp_get_max_threads of the calling thread). invalid_argument when shapes do not fit together;
  // unsupported for element types and ranks outside the above: the messages name dtypes, shapes and
  // strides.
  static Result<std::shared_ptr<const Matmul>> get(const MatmulDesc& desc);
  // Whether get() has nothing to build now; false for what it would refuse.
  static bool isCached(const MatmulDesc& desc);
  // The checks of get() without building anything.
  static Status check(const MatmulDesc& desc);
};

}  // namespace zefuse::primitives
