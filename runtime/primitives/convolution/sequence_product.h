// A convolution of sequences as one matrix product. Where channels are contiguous, all that a window meets is one run
// of numbers: row p of the left side begins `stride` places behind row p - 1, which it overlaps. The right side is the
// weight, [window * channels, out channels].
#pragma once

#include <memory>
#include <vector>

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

struct SequenceProductShape {
  TensorDesc input, out;  // [N, C, L] and [N, O, places], f32, channels contiguous, no padding
  TensorDesc weight;      // [O, C, window], as it lies
  int64_t stride;
  std::vector<TailOp> post_ops;  // all of the call's, in order; operands have three dimensions
  bool has_bias;
};

// Whether the library's kernel for strided windows takes longer.
bool sequenceProductPays(const SequenceProductShape& shape);

class SequenceProductStep final : public OwnStep {
public:
  // Reserves the sequence's scratch. nullptr where the product cannot be had. `packed`: slotWeights holds what pack()
  // made; else it is scratch for that.
  static std::shared_ptr<SequenceProductStep> build(Sequence& sequence, const SequenceProductShape& shape, bool packed);

  size_t packedBytes() const;
  void pack(const void* weight, void* packed) const override;
  // With the calling thread's team. Thread-safe, as is pack(). Throws what the product reports.
  void run(std::span<void* const> addresses, std::byte* scratch) const override;
  const std::string& implementation() const { return product_->implementation(); }

private:
  SequenceProductStep() = default;

  TensorDesc weight_, ordered_;  // as it lies, and [O, window, C] by the strides of the first's dimensions
  std::shared_ptr<const Matmul> product_;
  size_t post_ops_ = 0;
  bool has_bias_ = false, packed_ = false;
  size_t scratch_at_ = 0;
};

}  // namespace zefuse::primitives
