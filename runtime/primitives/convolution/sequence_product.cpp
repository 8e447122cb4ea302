#include "runtime/primitives/convolution/sequence_product.h"

#include <stdexcept>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/strided_copy.h"

namespace zefuse::primitives {

using plan::DType;

namespace {

// [N, C, L] as the product's [N, L, C].
TensorDesc rowsOf(const TensorDesc& images) {
  auto turned = [](const std::vector<int64_t>& of) { return std::vector<int64_t>{of[0], of[2], of[1]}; };
  return {images.dtype, turned(images.sizes), turned(images.strides)};
}

}  // namespace

// One thread, ms of eager, oneDNN's kernel and the product (Zen 4; AVX-512, AVX2 alone): 512 to 512 channels, 3 places
// by steps of 2, 3199 long, 25.4, 32.2, 23.3 and 26.2, 30.2, 25.0; 799 long 6.9, 8.7, 6.2; 1 to 512 channels, 10 places
// by steps of 5, 16000 long, 2.3, 2.8, 1.1 and 1.5, 2.6, 1.6. Of 128 results the product takes longer (3.3, 3.6), and
// with steps of 1 as long.
bool sequenceProductPays(const SequenceProductShape& shape) {
  constexpr int64_t fewest_results = 256, most_overlap = 4;
  constexpr double least = 1 << 20;  // products
  const int64_t window = shape.weight.sizes[2];
  return shape.stride > 1 && shape.weight.sizes[0] >= fewest_results && window <= most_overlap * shape.stride &&
         double(elements(shape.out.sizes)) * double(shape.weight.sizes[1] * window) >= least;
}

std::shared_ptr<SequenceProductStep> SequenceProductStep::build(Sequence& sequence, const SequenceProductShape& shape,
                                                                bool packed) {
  const int64_t results = shape.weight.sizes[0], channels = shape.weight.sizes[1], window = shape.weight.sizes[2];
  const int64_t depth = window * channels;
  MatmulDesc desc;
  desc.a = rowsOf(shape.input);
  desc.a.sizes = {shape.input.sizes[0], shape.out.sizes[2], depth};
  desc.a.strides[1] *= shape.stride;
  desc.b = {DType::f32, {1, depth, results}, {depth * results, 1, depth}};
  desc.out = rowsOf(shape.out);
  if (shape.has_bias)
    desc.bias = TensorDesc{DType::f32, {results}, {1}};
  std::shared_ptr<SequenceProductStep> step(new SequenceProductStep());
  for (const TailOp& op : shape.post_ops)
    desc.post_ops.push_back({op.kind, op.slot < 0 ? std::nullopt : std::optional(rowsOf(op.operand))});
  step->post_ops_ = shape.post_ops.size();
  desc.pack_b = true;
  auto product = Matmul::get(desc);
  if (!product.ok())
    return nullptr;
  step->product_ = *product;
  step->weight_ = shape.weight;
  step->ordered_ = {DType::f32, shape.weight.sizes, {depth, 1, channels}};
  step->has_bias_ = shape.has_bias;
  step->packed_ = packed;
  step->scratch_at_ = sequence.reserve(step->product_->scratchBytes());
  return step;
}

size_t SequenceProductStep::packedBytes() const {
  const size_t bytes = product_->packedBytes();
  return bytes ? bytes : bytesOf(ordered_);
}

void SequenceProductStep::pack(const void* weight, void* packed) const {
  if (!product_->packedBytes()) {
    stridedCopy(weight_, weight, ordered_, packed);
    return;
  }
  std::vector<float> ordered(size_t(elements(ordered_.sizes)));
  stridedCopy(weight_, weight, ordered_, ordered.data());
  if (Status status = product_->packB(ordered.data(), packed); !status.ok())
    throw std::runtime_error(status.message());
}

void SequenceProductStep::run(std::span<void* const> addresses, std::byte* scratch) const {
  if (!packed_)
    pack(addresses[slotB], addresses[slotWeights]);
  const std::span<const void* const> operands(addresses.data() + firstOperand, post_ops_);
  Primitive::Arguments call{addresses[slotA],
                            addresses[slotWeights],
                            has_bias_ ? addresses[slotBias] : nullptr,
                            addresses[slotOut],
                            operands,
                            scratch + scratch_at_,
                            {},
                            {}};
  if (Status status = product_->run(call); !status.ok())
    throw std::runtime_error(status.message());
}

}  // namespace zefuse::primitives
