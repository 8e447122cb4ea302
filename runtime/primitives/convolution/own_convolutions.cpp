// The convolutions that oneDNN's kernels for them do not carry out, and when: Winograd's filtering, strided sequences
// and windows of one place as matrix products, gradients of weights in panels, depthwise ones that oneDNN has no kernel
// for.
#include "runtime/primitives/convolution/prepared_convolution.h"

#include "common/plan/plan_generated.h"
#include "runtime/primitives/convolution/depthwise.h"
#include "runtime/primitives/convolution/panel_gradient.h"
#include "runtime/primitives/convolution/sequence_product.h"
#include "runtime/primitives/convolution/winograd.h"
#include "runtime/primitives/convolution/winograd_gradient.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/core/tensor_desc.h"
#include "runtime/primitives/matmul/panel_step.h"
#include "runtime/primitives/simd/vector_post_ops.h"

namespace zefuse::primitives {

using plan::ConvolutionKind;
using plan::DType;

namespace {

bool isWide(const std::optional<TensorDesc>& tensor) { return !tensor || tensor->dtype == DType::f32; }

// Whether the convolution is of f32 alone, but for what its post-ops read.
bool isWide(const ConvolutionDesc& desc) {
  return isWide(desc.input) && isWide(desc.weight) && isWide(desc.out) && isWide(desc.bias);
}

bool readsWide(const std::vector<PostOpDesc>& post_ops) {
  return std::ranges::all_of(post_ops, [](const PostOpDesc& op) { return isWide(op.operand); });
}

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

// nullopt for what is left to a pass over the result. `places`: of an image, one after the other in the operand too.
std::optional<RowPostOp> rowPostOp(const TailOp& op, int64_t places) {
  if (!hasVectorPostOp(op.kind))
    return std::nullopt;
  RowPostOp found{op.kind, op.slot};
  if (op.slot < 0)
    return found;
  const auto &sizes = op.operand.sizes, &strides = op.operand.strides;
  auto stride = [&](size_t d) { return sizes[d] == 1 ? 0 : strides[d]; };
  const int64_t of_image = elements(sizes) / (sizes[0] * sizes[1]);
  if (op.operand.dtype != DType::f32 || (of_image != 1 && of_image != places) || stride(1) > 1)
    return std::nullopt;
  found.batch = stride(0);
  found.column = stride(1);
  for (size_t d = 2; d < sizes.size(); ++d)  // the last one of several places
    if (sizes[d] > 1)
      found.row = strides[d];
  return found;
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
  if (window[axes.places] != 3 || (!flat && window_rows != 3) || (gradient && (flat || moved || desc_.groups != 1)) ||
      desc_.stride != std::vector<int64_t>(window.size() - 2, 1) || !isWide(desc_) || !readsWide(desc_.post_ops))
    return std::nullopt;
  Plan plan = makePlan({.widen = false, .channels_last = true, .mirrored = transposed, .padded = false});
  auto image = [&](const TensorDesc& tensor) {
    return ChannelsLast{along(tensor.sizes, axes.rows, 1),   tensor.sizes[axes.places],
                        tensor.sizes[1] / desc_.groups,      tensor.strides[0],
                        along(tensor.strides, axes.rows, 0), tensor.strides[axes.places],
                        along(tensor.sizes, axes.slices, 1), along(tensor.strides, axes.slices, 0)};
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
  shape.groups = desc_.groups;
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
  const WinogradWeight weight{strides[transposed],
                              strides[!transposed],
                              along(strides, axes.rows, 0),
                              strides[axes.places],
                              plan.given_origin,
                              along(strides, axes.slices, 0),
                              plan.given.sizes[0] / desc_.groups * strides[0]};
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
  if (!isWide(desc_) || !readsWide(desc_.post_ops))
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

PostOpShape PreparedConvolution::rowPostOps(Plan& plan) const {
  const int64_t images = plan.out.sizes[0], channels = plan.out.sizes[1];
  const int64_t places = elements(plan.out.sizes) / (images * channels);
  PostOpShape shape{images, places, channels, {}};
  for (plan.fused = 0; plan.fused < plan.tail.size(); ++plan.fused) {
    const std::optional<RowPostOp> op = rowPostOp(plan.tail[plan.fused], places);
    if (!op)
      break;
    shape.post_ops.push_back(*op);
  }
  // All images are one matrix, for all post-ops too: a few places of each fill strips together.
  if (std::ranges::all_of(shape.post_ops, [&](const RowPostOp& op) { return op.batch == places * op.row; })) {
    shape.rows *= images;
    shape.batch = 1;
  }
  return shape;
}

// oneDNN's depthwise kernel takes twice to three times as long with an activation: a pass over the result is sooner.
bool PreparedConvolution::tailByPass(Plan& plan, Kind kind, std::string& why) {
  auto isActivation = [](const TailOp& op) { return op.slot < 0; };
  if (kind != Kind::depthwise || !postOpPassAvailable() || plan.input.dtype != DType::f32 ||
      plan.out.dtype != DType::f32 || plan.out.strides[1] != 1 || desc_.kind == ConvolutionKind::weights ||
      std::ranges::none_of(plan.tail, isActivation))
    return false;
  PostOpShape shape = rowPostOps(plan);
  if (plan.fused < plan.tail.size())
    return false;
  plan.fused = 0;
  if (!add(plan, kind, why))
    return false;
  plan.fused = plan.tail.size();
  sequence_.implementation += "; then a pass";
  sequence_.own_tail = std::make_shared<PostOpPass>(std::move(shape));
  return true;
}

// A convolution whose window is one place, with steps of one, is a product: of all places by channels, channels last.
std::optional<PreparedConvolution::Plan> PreparedConvolution::searchPanels() {
  const bool transposed = desc_.kind == ConvolutionKind::transposed;
  const size_t rank = desc_.out.sizes.size();
  for (size_t d = 2; d < rank; ++d)
    if (desc_.weight.sizes[d] != 1 || desc_.stride[d - 2] != 1 || desc_.padding[d - 2] != 0 ||
        desc_.out.sizes[d] != desc_.input.sizes[d])
      return std::nullopt;
  if (desc_.kind == ConvolutionKind::weights || desc_.groups != 1 || !isWide(desc_))
    return std::nullopt;
  Plan plan = makePlan({.widen = false, .channels_last = true, .mirrored = false, .padded = false});
  const int64_t images = plan.out.sizes[0], out = plan.out.sizes[1], in = plan.input.sizes[1];
  const int64_t places = elements(plan.out.sizes) / (images * out);
  const auto& weight = plan.given.strides;
  PostOpShape results = rowPostOps(plan);
  PanelShape shape{results.batch,
                   results.rows,
                   out,
                   in,
                   {places * in, in, 1},
                   {0, weight[!transposed], weight[transposed]},
                   {places * out, out, 1},
                   desc_.bias.has_value(),
                   std::move(results.post_ops)};
  const bool wanted = desc_.way == plan::LibraryWay::panels && panelsAvailable();
  // Of sums alone oneDNN's convolution is as quick or quicker; its activations take long (sequence.h, eltwise).
  if (!wanted && (shape.post_ops.empty() || !panelsPay(shape)))
    return std::nullopt;
  sequence_.implementation = "panels:avx2";
  std::string why;
  if (!appendTail(sequence_, plan.tail, plan.fused, plan.out, why))
    return std::nullopt;
  const auto step = std::make_shared<PanelStep>(sequence_, std::move(shape), desc_.pack_weight);
  sequence_.own = step;
  if (desc_.pack_weight) {
    sequence_.own_takes_given = true;
    sequence_.prepareOwnPacking(plan.given, step->packedBytes());
  }
  return plan;
}

// The gradient of a weight by products in panels, where that pays.
std::optional<PreparedConvolution::Plan> PreparedConvolution::searchPanelGradient() {
  const size_t rank = desc_.stride.size();
  if (desc_.kind != ConvolutionKind::weights || desc_.groups != 1 || !panelGradientAvailable() || rank > 3 ||
      !isWide(desc_))
    return std::nullopt;
  Plan plan = makePlan({.widen = false, .channels_last = true, .mirrored = false, .padded = false});
  const size_t missing = 3 - rank;
  auto images = [&](const TensorDesc& tensor) {
    GradientImages result{tensor.sizes[1], {tensor.sizes[0], 1, 1, 1}, {tensor.strides[0], 0, 0, 0}};
    for (size_t d = 0; d < rank; ++d) {
      result.sizes[1 + missing + d] = tensor.sizes[2 + d];
      result.strides[1 + missing + d] = tensor.strides[2 + d];
    }
    return result;
  };
  PanelGradientShape shape{images(plan.input), images(plan.weight), {}};
  for (size_t d = 0; d < rank; ++d)
    shape.window[1 + missing + d] = {desc_.out.sizes[2 + d], desc_.stride[d], desc_.padding[d], desc_.dilation[d]};
  if (desc_.way != plan::LibraryWay::panels && !panelGradientPays(shape))
    return std::nullopt;
  sequence_.implementation = "panels";
  sequence_.own = std::make_shared<PanelGradientStep>(sequence_, shape);
  return plan;
}

// A depthwise kernel of our own, for what oneDNN has none for. Other types than f32 are computed in it.
std::optional<PreparedConvolution::Plan> PreparedConvolution::searchOwnDepthwise() {
  if (!isDepthwise(desc_) || !depthwiseAvailable() || hasCodes(desc_.input))
    return std::nullopt;
  const bool transposed = desc_.kind == ConvolutionKind::transposed, gradient = desc_.kind == ConvolutionKind::weights;
  const bool narrow = !isWide(desc_) || !readsWide(desc_.post_ops);
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
