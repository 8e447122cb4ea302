// What the executor sees of a library call: prepared once for concrete shapes, then run any number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/base/status.h"
#include "runtime/primitives/core/tensor_desc.h"

namespace zefuse::plan {
enum class PostOpKind : uint8_t;
}  // namespace zefuse::plan

namespace zefuse::primitives {

// An operand broadcasts to the result; where it has fewer dimensions, from the right.
struct PostOpDesc {
  plan::PostOpKind kind{};
  std::optional<TensorDesc> operand;
  bool operator==(const PostOpDesc&) const = default;
};

// Immutable and thread-safe. a and b are the two operands, by the names of a product: of a convolution, input and
// weight.
class Primitive {
public:
  virtual ~Primitive() = default;

  virtual size_t packedBytes() const { return 0; }  // 0: b is used as it is
  // `packed` is 64-byte aligned and need not be initialised.
  virtual Status packB(const void* /*b*/, void* /*packed*/) const { return {}; }
  // Whether both make the same packed bytes from the same b, so that one packed copy serves both.
  virtual bool packsLike(const Primitive& /*other*/) const { return false; }
  // Whether run() takes b as it is, too (Arguments::b_given), with the same bits: for contents that are used once, it
  // saves writing them to memory and reading them again.
  virtual bool takesGivenB() const { return false; }
  virtual size_t scratchBytes() const = 0;  // 64-byte aligned memory for run, per call in flight

  struct Arguments {
    const void* a;
    const void* b;     // packed when packedBytes() > 0 and not b_given
    const void* bias;  // nullptr without bias
    void* out;
    std::span<const void* const> post_op_operands;  // one per post-op; nullptr for those without
    void* scratch;                                  // may be nullptr when scratchBytes() is 0
    // Of a call with several results, all operands and results in the plan's order; nullptr for a result nobody asks
    // for.
    std::span<const void* const> operands;
    std::span<void* const> results;
    bool b_given = false;
  };
  // Runs inline on the calling thread and its OpenMP team.
  virtual Status run(const Arguments& arguments) const = 0;

  // What runs, for explain and tests: oneDNN's implementation name, then what could not be fused
  // into it. "brg:avx512_core" or "brg:avx512_core; copies a; then binary_add".
  virtual const std::string& implementation() const = 0;
};

}  // namespace zefuse::primitives
