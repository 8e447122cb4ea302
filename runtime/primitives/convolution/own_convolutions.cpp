// The convolutions that oneDNN's kernels for them do not carry out, and when: Winograd's filtering, strided sequences
// as a matrix product, depthwise ones that oneDNN has no kernel for.
#include "runtime/primitives/convolution/prepared_convolution.h"

#include "common/plan/plan_generated.h"
#include "runtime/primitives/convolution/depthwise.h"
#include "runtime/primitives/convolution/sequence_product.h"
#include "runtime/primitives/convolution/winograd.h"
#include "runtime/primitives/convolution/winograd_gradient.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/core/tensor_desc.h"
#include "runtime/primitives/simd/vector_post_ops.h"

namespace zefuse::primitives {

using plan::ConvolutionKind;
using plan::DType;

namespace {

// Which dimensions of an image are a row's places, the rows and the slices for Winograd's filtering, that of windows of
// 3 places, or 3 rows of these: those of 3 come last. 0: none.
struct WinogradAxes {
  size_t slices = 0, rows = 0, places = 0;
};
WinogradAxes winogradAxes(const std::vector<int64_t>& window) {
  std::vector<size_t> order;
  for (const bool of_three : {false, true})
    for (size_t d = 2; d < window.size(); ++d)
      if ((window[d] == 3) == of_three)
        order.push_back(d);
  order.insert(order.begin(), 3 - std::min<size_t>(3, order.size()), 0);
  return {order[0], order[1], order[2]};
}

// nullopt for what Winograd's convolution leaves to oneDNN: a pass over the result.
std::optional<WinogradPostOp> winogradPostOp(const TailOp& op, const WinogradAxes& axes) {
  if (!hasVectorPostOp(op.kind))
    return std::nullopt;
  WinogradPostOp found{op.kind};
  if (op.slot < 0)
    return found;
  auto stride = [&](size_t d) { return op.operand.sizes[d] == 1 ? 0 : op.operand.strides[d]; };
  auto along = [&](size_t axis) { return axis ? stride(axis) : 0; };
  found.slot = op.slot;
  found.image = stride(0);
  found.channel = stride(1);
  found.slice = along(axes.slices);
  found.row = along(axes.rows);
  found.place = along(axes.places);
  return found.channel > 1 ? std::nullopt : std::optional(found);
}

// Slices that no window goes across are images by themselves: small ones fill the products' rows together.
void joinSlices(WinogradShape& shape) {
  const int64_t depth = shape.out.depth;
  auto joins = [&](const auto& images) { return shape.images == 1 || images.image == depth * images.slice; };
  if (shape.depth.window > 1 || shape.depth.padding || !joins(shape.input) || !joins(shape.out) ||
      !std::ranges::all_of(shape.post_ops, joins))
    return;
  auto join = [](auto& images) {
    images.image = images.slice;
    images.slice = 0;
  };
  for (ChannelsLast* images : {&shape.input, &shape.out}) {
    join(*images);
    images->depth = 1;
  }
  for (WinogradPostOp& op : shape.post_ops)
    join(op);
  shape.images *= depth;
}

// Makes `step` the sequence's own, with room for its packed weight: kept where `pack`, else in scratch memory.
template <typename Step>
void carryOutBy(Sequence& sequence, const std::shared_ptr<Step>& step, const TensorDesc& given, bool pack) {
  sequence.own = step;
  if (pack)
    sequence.prepareOwnPacking(given, step->packedBytes());
  else
    sequence.weights_offset = sequence.reserve(step->packedBytes());
}

}  // namespace

// Winograd's convolution, where it pays.
std::optional<PreparedConvolution::Plan> PreparedConvolution::searchWinograd() {
  const bool transposed = desc_.kind == ConvolutionKind::transposed, gradient = desc_.kind == ConvolutionKind::weights;
  const auto& window = gradient ? desc_.out.sizes : desc_.weight.sizes;
  auto isWide = [](const std::optional<TensorDesc>& tensor) { return !tensor || tensor->dtype == DType::f32; };
  const bool operands = std::all_of(desc_.post_ops.begin(), desc_.post_ops.end(),
                                    [&](const PostOpDesc& op) { return isWide(op.operand); });
  if (window.size() < 3 || window.size() > 5)
    return std::nullopt;
  const WinogradAxes axes = winogradAxes(window);
  auto along = [](const std::vector<int64_t>& all, size_t axis, int64_t otherwise) {
    return axis ? all[axis] : otherwise;
  };
  const int64_t window_slices = along(window, axes.slices, 1), window_rows = along(window, axes.rows, 1);
  const bool flat = window_rows == 1;
  // A gradient's windows are written as they lie: only slices of one may come from behind the rows.
  const bool moved = axes.slices > axes.rows && window_slices > 1;
  if (window[axes.places] != 3 || (!flat && window_rows != 3) || (gradient && (flat || moved)) ||
      desc_.stride != std::vector<int64_t>(window.size() - 2, 1) || desc_.groups != 1 || !isWide(desc_.input) ||
      !isWide(desc_.weight) || !isWide(desc_.out) || !isWide(desc_.bias) || !operands)
    return std::nullopt;
  Plan plan = makePlan({.widen = false, .channels_last = true, .mirrored = transposed, .padded = false});
  auto image = [&](const TensorDesc& tensor) {
    return ChannelsLast{along(tensor.sizes, axes.rows, 1),
                        tensor.sizes[axes.places],
                        tensor.sizes[1],
                        tensor.strides[0],
                        along(tensor.strides, axes.rows, 0),
                        tensor.strides[axes.places],
                        along(tensor.sizes, axes.slices, 1),
                        along(tensor.strides, axes.slices, 0)};
  };
  // Where the window begins, in the input.
  auto padding = [&](size_t d) {
    return transposed ? (window[d + 2] - 1) * desc_.dilation[d] - desc_.padding[d] : desc_.padding[d];
  };
  WinogradShape shape{desc_.input.sizes[0], image(plan.input), image(gradient ? plan.weight : plan.out), {}, {}, {}};
  for (size_t d = 0; d < desc_.stride.size(); ++d)
    if (padding(d) < 0)
      return std::nullopt;
  shape.flat = flat;
  auto dilationAlong = [&](size_t axis) { return axis ? desc_.dilation[axis - 2] : 1; };
  auto paddingAlong = [&](size_t axis) { return axis ? padding(axis - 2) : 0; };
  for (size_t d : {0, 1}) {
    const size_t axis = d ? axes.places : axes.rows;
    shape.dilation[d] = dilationAlong(axis);
    shape.padding[d] = paddingAlong(axis);
  }
  shape.depth = {window_slices, paddingAlong(axes.slices), dilationAlong(axes.slices)};
  for (; plan.fused < plan.tail.size(); ++plan.fused) {
    const std::optional<WinogradPostOp> op = winogradPostOp(plan.tail[plan.fused], axes);
    if (!op)
      break;
    shape.post_ops.push_back(*op);
  }
  joinSlices(shape);
  const bool wanted = desc_.way == plan::LibraryWay::winograd && winogradAvailable();
  if (gradient) {
    if (!wanted && !winogradGradientPays(shape))
      return std::nullopt;
    sequence_.implementation = "winograd F(3x3, 2x2)";
    sequence_.own = std::make_shared<WinogradGradientStep>(sequence_, shape);
    return plan;
  }
  if (!wanted && !winogradPays(shape, desc_.pack_weight && !desc_.weight_changes, maxThreads()))
    return std::nullopt;
  const auto& strides = plan.given.strides;
  const WinogradWeight weight{strides[transposed],  strides[!transposed], along(strides, axes.rows, 0),
                              strides[axes.places], plan.given_origin,    along(strides, axes.slices, 0)};
  sequence_.implementation = flat ? "winograd F(2, 3)" : "winograd F(2x2, 3x3)";
  std::string why;
  if (!appendTail(sequence_, plan.tail, plan.fused, plan.out, why))
    return std::nullopt;
  const auto step = std::make_shared<WinogradStep>(sequence_, shape, weight, desc_.bias.has_value(), desc_.pack_weight);
  carryOutBy(sequence_, step, plan.given, desc_.pack_weight);
  return plan;
}

// Sequences as one matrix product, where that pays.
std::optional<PreparedConvolution::Plan> PreparedConvolution::searchSequenceProduct() {
  if (desc_.kind != ConvolutionKind::forward || desc_.stride.size() != 1 || desc_.groups != 1 ||
      desc_.dilation[0] != 1 || desc_.padding[0] != 0)  // its zeros times infinite weights would be NaN
    return std::nullopt;
  auto isWide = [](const std::optional<TensorDesc>& tensor) { return !tensor || tensor->dtype == DType::f32; };
  auto isOperand = [&](const PostOpDesc& op) { return isWide(op.operand); };
  if (!isWide(desc_.input) || !isWide(desc_.weight) || !isWide(desc_.out) || !isWide(desc_.bias) ||
      !std::ranges::all_of(desc_.post_ops, isOperand))
    return std::nullopt;
  Plan plan = makePlan({.widen = false, .channels_last = true, .mirrored = false, .padded = false});
  const SequenceProductShape shape{plan.input, plan.out, plan.given, desc_.stride[0], plan.tail, plan.bias.has_value()};
  if (!sequenceProductPays(shape))
    return std::nullopt;
  const auto step = SequenceProductStep::build(sequence_, shape, desc_.pack_weight);
  if (!step)
    return std::nullopt;
  plan.fused = plan.tail.size();
  sequence_.implementation = "one product: " + step->implementation();
  carryOutBy(sequence_, step, plan.given, desc_.pack_weight);
  return plan;
}

// A depthwise kernel of our own, for what oneDNN has none for. Other types than f32 are computed in it.
std::optional<PreparedConvolution::Plan> PreparedConvolution::searchOwnDepthwise() {
  if (!isDepthwise(desc_) || !depthwiseAvailable() || hasCodes(desc_.input))
    return std::nullopt;
  const bool transposed = desc_.kind == ConvolutionKind::transposed, gradient = desc_.kind == ConvolutionKind::weights;
  auto isNarrow = [](const std::optional<TensorDesc>& tensor) { return tensor && tensor->dtype != DType::f32; };
  bool narrow = isNarrow(desc_.input) || isNarrow(desc_.weight) || isNarrow(desc_.out) || isNarrow(desc_.bias);
  for (const PostOpDesc& op : desc_.post_ops)
    narrow |= isNarrow(op.operand);
  Plan plan = makePlan({.widen = narrow, .channels_last = true, .mirrored = false, .padded = false});
  const size_t rank = desc_.stride.size(), missing = 3 - rank;
  // Dimensions that are not there have one place.
  auto inVolume = [&](const std::vector<int64_t>& given, size_t begin, int64_t other, int64_t (&to)[3]) {
    for (size_t d = 0; d < 3; ++d)
      to[d] = d < missing ? other : given[begin + d - missing];
  };
  auto volume = [&](const TensorDesc& tensor) {
    DepthwiseVolume result{{}, {}, tensor.strides[0]};
    inVolume(tensor.sizes, 2, 1, result.sizes);
    inVolume(tensor.strides, 2, 0, result.strides);
    return result;
  };
  DepthwiseShape shape{desc_.input.sizes[0],
                       desc_.groups,
                       volume(plan.input),
                       volume(gradient ? plan.weight : plan.out),
                       {},
                       {},
                       {},
                       {},
                       transposed,
                       {}};
  const TensorDesc& window = gradient ? plan.out : plan.given;
  inVolume(window.sizes, 2, 1, shape.window);
  inVolume(desc_.stride, 0, 1, shape.stride);
  inVolume(desc_.padding, 0, 0, shape.padding);
  inVolume(desc_.dilation, 0, 1, shape.dilation);
  DepthwiseWeight weight{window.strides[0], {}, 0, window.dtype == DType::bf16};
  inVolume(window.strides, 2, 0, weight.strides);
  sequence_.implementation = "depthwise";
  if (gradient) {
    sequence_.own = std::make_shared<DepthwiseGradientStep>(sequence_, std::move(shape), weight);
    return plan;
  }
  for (; plan.fused < plan.tail.size() && hasVectorPostOp(plan.tail[plan.fused].kind); ++plan.fused) {
    const TailOp& op = plan.tail[plan.fused];
    DepthwisePostOp found{op.kind, op.slot, 0, 0, {}};
    if (op.slot >= 0) {
      auto stride = [&](size_t d) { return op.operand.sizes[d] == 1 ? 0 : op.operand.strides[d]; };
      found.image = stride(0);
      found.channel = stride(1);
      for (size_t d = 0; d < rank; ++d)
        found.strides[missing + d] = stride(2 + d);
      if (found.channel > 1)
        break;
    }
    shape.post_ops.push_back(found);
  }
  std::string why;
  if (!appendTail(sequence_, plan.tail, plan.fused, plan.out, why))
    return std::nullopt;
  const bool bias = desc_.bias.has_value();
  const auto step = std::make_shared<DepthwiseStep>(sequence_, std::move(shape), weight, bias, desc_.pack_weight);
  carryOutBy(sequence_, step, plan.given, desc_.pack_weight);
  return plan;
}

}  // namespace zefuse::primitives
