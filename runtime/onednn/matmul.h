// A oneDNN matmul primitive with post-ops, prepared once for concrete shapes. See plan.fbs, table
// Matmul, for its meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace zefuse::plan {
enum class DType : uint8_t;
enum class PostOpKind : uint8_t;
}  // namespace zefuse::plan

namespace zefuse::onednn {

// Shape, strides (elements) and dtype of an operand; rank is equal for all operands of one matmul
// (bias and post-op operands may have fewer dimensions: they broadcast from the right).
struct TensorDesc {
  plan::DType dtype{};
  std::vector<int64_t> sizes, strides;
  bool operator==(const TensorDesc&) const = default;
};

struct PostOpDesc {
  plan::PostOpKind kind{};
  std::optional<TensorDesc> operand;
  bool operator==(const PostOpDesc&) const = default;
};

// Precision of the products of f32 operands. bf16 is what
// torch.set_float32_matmul_precision("medium") permits: it is used where the CPU has bf16
// instructions and it pays.
enum class FpMath : uint8_t { strict, bf16 };

struct MatmulDesc {
  TensorDesc a, b, out;
  std::optional<TensorDesc> bias;
  float alpha = 1.0f;
  std::vector<PostOpDesc> post_ops;
  bool pack_b = false;  // b is a parameter: let oneDNN choose its layout
  FpMath fpmath = FpMath::strict;
  bool operator==(const MatmulDesc&) const = default;
};

// Element types: a and b both f32 or both bf16; out f32 or their type; bias and post-op operands
// f32 or bf16. Strides are not negative; any others work, those that oneDNN cannot describe by a
// copy into scratch. Sizes may be 0. Immutable and thread-safe after creation.
class Matmul {
public:
  // From a process-wide LRU cache keyed by the descriptor and torch's thread count
  // (omp_get_max_threads of the calling thread). invalid_argument when shapes do not fit together;
  // unsupported for element types and ranks outside the above: the messages name dtypes, shapes and
  // strides.
  static Result<std::shared_ptr<const Matmul>> get(const MatmulDesc& desc);
  // The checks of get() without building anything.
  static Status check(const MatmulDesc& desc);
  virtual ~Matmul() = default;

  virtual size_t packedBytes() const = 0;  // 0: b is used as it is
  // `packed` is 64-byte aligned and need not be initialised.
  virtual Status packB(const void* b, void* packed) const = 0;
  // Whether both make the same packed bytes from the same b, so that one packed copy serves both.
  virtual bool packsLike(const Matmul& other) const = 0;
  virtual size_t scratchBytes() const = 0;  // 64-byte aligned memory for run, per call in flight

  struct Arguments {
    const void* a;
    const void* b;     // packed when packedBytes() > 0
    const void* bias;  // nullptr without bias
    void* out;
    std::span<const void* const> post_op_operands;  // one per post-op; nullptr for those without
    void* scratch;                                  // may be nullptr when scratchBytes() is 0
  };
  // Runs inline on the calling thread and its OpenMP team.
  virtual Status run(const Arguments& arguments) const = 0;

  // What runs, for explain and tests: oneDNN's implementation name, then what could not be fused
  // into it. "brg:avx512_core" or "brg:avx512_core; copies a; then binary_add".
  virtual const std::string& implementation() const = 0;
};

}  // namespace zefuse::onednn
