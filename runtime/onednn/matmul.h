// A oneDNN matmul primitive with post-ops, prepared once for concrete shapes. See plan.fbs, table Matmul, for its meaning.
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
}

namespace zefuse::onednn {

// Shape, strides (elements) and dtype of an operand; rank is equal for all operands of one matmul (bias and post-op
// operands may have fewer dimensions: they broadcast from the right).
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

struct MatmulDesc {
  TensorDesc a, b, out;
  std::optional<TensorDesc> bias;
  float alpha = 1.0f;
  std::vector<PostOpDesc> post_ops;
  bool pack_b = false;  // b is a parameter: let oneDNN choose its layout
  bool operator==(const MatmulDesc&) const = default;
};

// Immutable and thread-safe after creation.
class Matmul {
public:
  // From a process-wide LRU cache keyed by the descriptor and torch's thread count. unsupported when oneDNN has no
  // primitive for it: the message names dtypes, shapes and strides.
  static Result<std::shared_ptr<const Matmul>> get(const MatmulDesc& desc);
  // Whether this build could ever run such a matmul (dtypes, ranks), without building it.
  virtual ~Matmul() = default;

  virtual size_t packedBytes() const = 0;   // 0: b is used as it is
  virtual Status packB(const void* b, void* packed) const = 0;
  virtual size_t scratchBytes() const = 0;  // 64-byte aligned memory for run, per call in flight

  struct Arguments {
    const void* a;
    const void* b;     // packed when packedBytes() > 0
    const void* bias;  // nullptr without bias
    void* out;
    std::span<const void* const> post_op_operands;  // one per post-op; nullptr for those without
    void* scratch;
  };
  // Runs inline on the calling thread and its OpenMP team.
  virtual Status run(const Arguments& arguments) const = 0;
};

}  // namespace zefuse::onednn
