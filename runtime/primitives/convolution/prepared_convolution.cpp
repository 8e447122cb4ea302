#include "runtime/primitives/convolution/prepared_convolution.h"

#include "common/base/fork.h"
#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/engine.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/core/tensor_desc.h"
#include "runtime/primitives/simd/cpu_isa.h"

namespace zefuse::primitives {

namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::prop_kind;
using plan::ConvolutionKind;
using plan::DType;
using plan::PostOpKind;

TensorDesc channelsLast(const TensorDesc& desc, DType dtype) {
  std::vector<int64_t> strides(desc.sizes.size());
  int64_t step = 1;
  auto take = [&](size_t d) {
    strides[d] = step;
    step *= std::max<int64_t>(desc.sizes[d], 1);
  };
  take(1);
  for (size_t d = desc.sizes.size(); d-- > 2;)
    take(d);
  take(0);
  return {dtype, desc.sizes, std::move(strides)};
}

// oneDNN's depthwise kernels take images, no rows: sequences become images of one row. What it has for sequences takes
// 4 to 30 times as long.
ConvolutionDesc withRows(const ConvolutionDesc& desc) {
  if (!isDepthwise(desc) || desc.stride.size() != 1)
    return desc;
  ConvolutionDesc result = desc;
  auto insert = [](TensorDesc& tensor) {
    tensor.sizes.insert(tensor.sizes.begin() + 2, 1);
    tensor.strides.insert(tensor.strides.begin() + 2, tensor.strides[2] * tensor.sizes[3]);
  };
  insert(result.input);
  insert(result.weight);
  insert(result.out);
  for (PostOpDesc& op : result.post_ops)
    if (op.operand)
      insert(*op.operand);
  result.stride.insert(result.stride.begin(), 1);
  result.padding.insert(result.padding.begin(), 0);
  result.dilation.insert(result.dilation.begin(), 1);
  return result;
}

// Without these instructions oneDNN adds pairs of products of u8 and i8 in 16 bits, which do not hold them.
bool multipliesCodesExactly() { return hasIsa(dnnl_cpu_isa_avx2_vnni) || hasIsa(dnnl_cpu_isa_avx512_core_vnni); }

bool hasEveryElement(const TensorDesc& operand, const TensorDesc& out) { return operand.sizes == out.sizes; }

}  // namespace

PreparedConvolution::PreparedConvolution(const ConvolutionDesc& desc) : Prepared(toString(desc)), desc_(desc) {
  sequence_.post_ops = desc.post_ops.size();
}

// Whether this transposed convolution is a forward one with the weight mirrored: one channel per group, steps of one.
// oneDNN 3.2's backward kernel for those takes up to 60 times as long on channels-last images as its forward one.
bool PreparedConvolution::mirrors() const {
  if (desc_.kind != ConvolutionKind::transposed || desc_.weight.sizes[0] != desc_.groups || desc_.weight.sizes[1] != 1)
    return false;
  for (size_t d = 0; d < desc_.stride.size(); ++d)
    if (desc_.stride[d] != 1 || desc_.padding[d] > desc_.dilation[d] * (desc_.weight.sizes[d + 2] - 1))
      return false;
  return true;
}

// Whether the input may be copied with its padding: little beside what is read and written anyway.
bool PreparedConvolution::mayPad() const {
  if (desc_.kind != ConvolutionKind::forward)
    return false;
  const std::vector<int64_t> padded = paddedSizes();
  return padded != desc_.input.sizes &&
         elements(padded) <= 2 * (elements(desc_.input.sizes) + elements(desc_.out.sizes));
}

// As many elements of each dimension as the outputs reach, the input's at least.
std::vector<int64_t> PreparedConvolution::paddedSizes() const {
  std::vector<int64_t> sizes = desc_.input.sizes;
  for (size_t d = 0; d < desc_.stride.size(); ++d) {
    const int64_t reach = (desc_.weight.sizes[d + 2] - 1) * desc_.dilation[d] + 1;
    sizes[d + 2] = std::max((desc_.out.sizes[d + 2] - 1) * desc_.stride[d] + reach, sizes[d + 2] + desc_.padding[d]);
  }
  return sizes;
}

// `widen`: bf16 and codes compute in f32. Without `channels_last`, images are row-major.
PreparedConvolution::Plan PreparedConvolution::makePlan(const Way& way) const {
  const auto [widen, channels_last, mirrored, padded] = way;
  auto type = [&](const TensorDesc& tensor) { return widen ? DType::f32 : tensor.dtype; };
  auto image = [&](const TensorDesc& tensor) {
    return channels_last ? channelsLast(tensor, type(tensor)) : dense(tensor, type(tensor));
  };
  const bool gradient = desc_.kind == ConvolutionKind::weights;
  Plan plan;
  plan.input = image(padded ? TensorDesc{desc_.input.dtype, paddedSizes(), {}} : desc_.input);
  plan.mirrored = mirrored;
  plan.padded = padded;
  plan.given = desc_.weight;
  for (size_t d = 2; mirrored && d < plan.given.sizes.size(); ++d) {
    plan.given_origin +=
        size_t((plan.given.sizes[d] - 1) * plan.given.strides[d]) * bytesOf({plan.given.dtype, {}, {}});
    plan.given.strides[d] = -plan.given.strides[d];
  }
  plan.weight = gradient ? image(desc_.weight)
                : !mirrored && distinct(desc_.weight) && type(desc_.weight) == desc_.weight.dtype
                    ? desc_.weight
                    : dense(desc_.weight, type(desc_.weight));
  plan.out = gradient ? dense(desc_.out, type(desc_.out)) : image(desc_.out);
  if (desc_.bias)
    plan.bias = dense(*desc_.bias, plan.input.dtype == DType::f32 ? DType::f32 : desc_.bias->dtype);
  for (size_t i = 0; i < desc_.post_ops.size(); ++i) {
    const PostOpDesc& op = desc_.post_ops[i];
    plan.operands.push_back(!op.operand                               ? TensorDesc()
                            : hasEveryElement(*op.operand, desc_.out) ? image(*op.operand)
                                                                      : dense(*op.operand, type(*op.operand)));
    plan.tail.push_back({op.kind, op.operand ? int(firstOperand + i) : -1, plan.operands.back()});
  }
  return plan;
}

// In order of preference: Winograd's filtering and panels, where they pay; a kernel of depthwise convolutions; channels
// last as it is, mirrored where that serves, or with its padding copied; with post-ops run on their own; row-major; by
// a product (`isByProduct`), computing in f32 on a CPU without bf16 instructions, or without those for codes. oneDNN's
// reference implementation, slow and right, where it has no other.
std::optional<PreparedConvolution::Plan> PreparedConvolution::search(std::string& why) {
  using plan::LibraryWay;
  std::optional<Plan> found;
  if (desc_.way == LibraryWay::automatic || desc_.way == LibraryWay::winograd)
    found = searchWinograd();
  else if (desc_.way == LibraryWay::by_product)
    found = searchAmong({Kind::product}, {false}, why);
  else if (desc_.way == LibraryWay::direct || desc_.way == LibraryWay::padded)
    found = searchAmong({Kind::depthwise, Kind::direct}, {desc_.way == LibraryWay::padded}, why);
  if (!found && (desc_.way == LibraryWay::automatic || desc_.way == LibraryWay::panels))
    found = desc_.kind == ConvolutionKind::weights ? searchPanelGradient() : searchPanels();
  if (!found && desc_.way == LibraryWay::automatic)
    found = searchSequenceProduct();
  // Also with its padding copied: a kernel of groups takes 4 to 5 times as long.
  if (!found)
    found = searchAmong({Kind::depthwise}, {false, true}, why);
  if (!found)
    found = searchOwnDepthwise();
  return found ? found : searchAmong({Kind::direct, Kind::product, Kind::reference}, {false, true}, why);
}

std::optional<PreparedConvolution::Plan> PreparedConvolution::searchAmong(std::initializer_list<Kind> kinds,
                                                                          std::initializer_list<bool> paddings,
                                                                          std::string& why) {
  auto narrow = [](const std::optional<TensorDesc>& tensor) { return tensor && tensor->dtype == DType::bf16; };
  bool has_bf16 = narrow(desc_.input) || narrow(desc_.bias);
  for (const PostOpDesc& op : desc_.post_ops)
    has_bf16 |= narrow(op.operand);
  const bool codes = hasCodes(desc_.input), exact = !codes || multipliesCodesExactly();
  std::vector<std::pair<Kind, bool>> order;
  for (bool reference : {false, true})
    for (bool widen : {false, true})
      for (Kind kind : kinds)
        if ((kind == Kind::reference) == reference && (kind != Kind::depthwise || isDepthwise(desc_)))
          order.emplace_back(kind, widen);
  for (auto [kind, widen] : order)
    for (bool channels_last : {true, false})
      for (bool mirrored : {true, false})
        for (bool padded : paddings) {
          if ((widen && !has_bf16 && !codes) || (!widen && !exact) || (mirrored && (!mirrors() || padded)) ||
              (padded && (kind > Kind::direct || !mayPad())))
            continue;
          Plan plan = makePlan({widen, channels_last, mirrored, padded});
          // One pass over memory for each of a product's post-ops takes a tenth of the time they take in it. A result
          // in codes is rounded after all of them.
          if (tailByPass(plan, kind, why))
            return plan;
          const bool rounded = hasCodes(plan.out);
          const size_t all = plan.tail.size(), fewest = rounded ? all : 0;
          for (plan.fused = kind == Kind::product && !rounded ? 1 : all + 1; plan.fused-- > fewest;)
            if (add(plan, kind, why) && appendTail(sequence_, plan.tail, plan.fused, plan.out, why))
              return plan;
          // Of bf16 the sum without its bias would be rounded.
          if (desc_.kind != ConvolutionKind::transposed || !plan.bias || plan.out.dtype != DType::f32)
            continue;
          plan.fused = 0;
          plan.bias_apart = true;
          TensorDesc bias{plan.bias->dtype, std::vector<int64_t>(plan.out.sizes.size(), 1), {}};
          bias.sizes[1] = plan.bias->sizes[0];
          plan.tail.insert(plan.tail.begin(), {PostOpKind::add, slotBias, dense(bias, bias.dtype)});
          if (add(plan, kind, why) && appendTail(sequence_, plan.tail, 0, plan.out, why))
            return plan;
        }
  return std::nullopt;
}

PreparedConvolution::Kind PreparedConvolution::kindOf(const std::string& implementation) const {
  if (isReference(implementation))
    return Kind::reference;
  if (isByProduct(implementation))
    return Kind::product;
  return isDepthwise(desc_) && implementation.find("_dw:") != implementation.npos ? Kind::depthwise : Kind::direct;
}

memory::desc PreparedConvolution::weightLayout(const TensorDesc& weight, bool transposed) const {
  const auto &sizes = weight.sizes, &strides = weight.strides;
  // Two channel dimensions; torch's first one is split by the groups.
  memory::dims out_sizes, out_strides;
  const int64_t groups = desc_.groups, first = sizes[0] / groups;
  if (groups > 1) {
    out_sizes.push_back(groups);
    out_strides.push_back(strides[0] * first);
  }
  for (int64_t dim : transposed ? std::initializer_list<int64_t>{1, 0} : std::initializer_list<int64_t>{0, 1}) {
    out_sizes.push_back(dim == 0 ? first : sizes[1]);
    out_strides.push_back(strides[size_t(dim)]);
  }
  out_sizes.insert(out_sizes.end(), sizes.begin() + 2, sizes.end());
  out_strides.insert(out_strides.end(), strides.begin() + 2, strides.end());
  return {out_sizes, dataType(weight.dtype), out_strides};
}

bool PreparedConvolution::add(const Plan& plan, Kind kind, std::string& why) {
  if (desc_.kind == ConvolutionKind::weights)
    return addWeights(plan, kind, why);
  const bool transposed = desc_.kind == ConvolutionKind::transposed && !plan.mirrored;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post_ops;
  std::vector<Binding> operands;
  appendPostOps(plan.tail, plan.fused, post_ops, operands);
  attr.set_post_ops(post_ops);

  const memory::desc input = memoryDesc(plan.input), out = memoryDesc(plan.out);
  const bool with_bias = plan.bias && !plan.bias_apart;
  const memory::desc bias = with_bias ? memoryDesc(*plan.bias) : memory::desc();
  const memory::desc plain = weightLayout(plan.weight, transposed);
  const memory::desc wanted(plain.get_dims(), plain.get_data_type(), memory::format_tag::any);
  memory::dims dilation, begin, end;
  for (size_t d = 0; d < desc_.stride.size(); ++d) {
    const int64_t x = transposed ? desc_.out.sizes[d + 2] : plan.input.sizes[d + 2];
    const int64_t y = transposed ? desc_.input.sizes[d + 2] : desc_.out.sizes[d + 2];
    const int64_t reach = (desc_.weight.sizes[d + 2] - 1) * desc_.dilation[d];
    dilation.push_back(desc_.dilation[d] - 1);
    begin.push_back(plan.padded ? 0 : plan.mirrored ? reach - desc_.padding[d] : desc_.padding[d]);
    end.push_back((y - 1) * desc_.stride[d] + reach + 1 - x - begin.back());
    // Input that no output reads; oneDNN takes less than a stride of it.
    end.back() = std::max(end.back(), 1 - desc_.stride[d]);
  }
  auto append = [&](const auto& description, auto make) {
    if (!description) {
      why = "oneDNN has no implementation for these shapes and types on this CPU";
      return false;
    }
    if (kindOf(description.impl_info_str()) != kind) {
      why = "only oneDNN's reference implementation";
      return false;
    }
    const std::string name = description.impl_info_str();
    // A derivative by the input: a depthwise one of 64 channels, 56x56, with two additions took 30 ms, and 0.1 in
    // passes.
    if (name.starts_with("conv:any") && plan.fused > 0 && !hasCodes(plan.out)) {
      why = "oneDNN applies post-ops to a derivative's results one by one";
      return false;
    }
    if (name.find("brgconv_strided") != std::string::npos && (with_bias || plan.fused > 0)) {
      why = "oneDNN 3.2 adds the bias and applies post-ops with each of several blocks of channels";
      return false;
    }
    sequence_.implementation = name + std::string(plan.mirrored ? "; mirrors the weight" : "");
    sequence_.b_layout = plain;
    sequence_.packed_layout = description.weights_desc();
    PrimitiveStep step{make(description),
                       {{DNNL_ARG_SRC, slotA, input},
                        {DNNL_ARG_WEIGHTS, slotWeights, description.weights_desc()},
                        {DNNL_ARG_DST, slotOut, out},
                        {DNNL_ARG_SCRATCHPAD, slotScratchpad, description.scratchpad_desc()}}};
    if (with_bias)
      step.bindings.push_back({DNNL_ARG_BIAS, slotBias, bias});
    step.bindings.insert(step.bindings.end(), operands.begin(), operands.end());
    sequence_.steps.push_back(std::move(step));
    return true;
  };
  if (transposed)
    return append(dnnl::deconvolution_forward::primitive_desc(
                      engine(), prop_kind::forward_inference, algorithm::deconvolution_direct, input, wanted, bias, out,
                      desc_.stride, dilation, begin, end, attr, /*allow_empty=*/true),
                  [](auto& d) { return dnnl::deconvolution_forward(d); });
  return append(dnnl::convolution_forward::primitive_desc(
                    engine(), prop_kind::forward_inference, algorithm::convolution_direct, input, wanted, bias, out,
                    desc_.stride, dilation, begin, end, attr, /*allow_empty=*/true),
                [](auto& d) { return dnnl::convolution_forward(d); });
}

// Whether an element of the weight meets nothing but padding at every place.
bool PreparedConvolution::hasElementOverPaddingAlone() const {
  for (size_t d = 0; d < desc_.stride.size(); ++d) {
    const int64_t step = desc_.stride[d], places = desc_.weight.sizes[d + 2], size = desc_.input.sizes[d + 2];
    for (int64_t element = 0; element < desc_.out.sizes[d + 2]; ++element) {
      const int64_t begin = desc_.padding[d] - element * desc_.dilation[d];  // of the input, at the first place
      const int64_t place = begin > 0 ? (begin + step - 1) / step : 0;       // the first that is not before it
      if (place >= places || place * step - begin >= size)
        return true;
    }
  }
  return false;
}

bool PreparedConvolution::addWeights(const Plan& plan, Kind kind, std::string& why) {
  // oneDNN 3.2 and 3.12 leave there what was in a tile, or in memory, before.
  if (plan.input.dtype == DType::bf16 && kind != Kind::reference && hasElementOverPaddingAlone()) {
    why = "oneDNN's kernels for bf16 do not write the gradient of elements that meet padding alone";
    return false;
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc input = memoryDesc(plan.input), gradient = memoryDesc(plan.weight);
  const memory::desc plain = weightLayout(plan.out, false);
  const memory::desc wanted(plain.get_dims(), plain.get_data_type(), memory::format_tag::any);
  memory::dims dilation, end;
  for (size_t d = 0; d < desc_.stride.size(); ++d) {
    dilation.push_back(desc_.dilation[d] - 1);
    end.push_back((desc_.weight.sizes[d + 2] - 1) * desc_.stride[d] + (desc_.out.sizes[d + 2] - 1) * desc_.dilation[d] +
                  1 - desc_.input.sizes[d + 2] - desc_.padding[d]);
    end.back() = std::max(end.back(), 1 - desc_.stride[d]);
  }
  dnnl::convolution_forward::primitive_desc forward(engine(), prop_kind::forward_training,
                                                    algorithm::convolution_direct, input, wanted, gradient,
                                                    desc_.stride, dilation, desc_.padding, end, attr, true);
  if (!forward) {
    why = "oneDNN has no implementation for these shapes and types on this CPU";
    return false;
  }
  dnnl::convolution_backward_weights::primitive_desc description(engine(), algorithm::convolution_direct, input, wanted,
                                                                 gradient, desc_.stride, dilation, desc_.padding, end,
                                                                 forward, attr, true);
  if (!description || kindOf(description.impl_info_str()) != kind) {
    why = "only oneDNN's reference implementation";
    return false;
  }
  sequence_.implementation = description.impl_info_str();
  const memory::desc made = description.diff_weights_desc();
  const bool reordered = made != plain;
  sequence_.steps.push_back({dnnl::convolution_backward_weights(description),
                             {{DNNL_ARG_SRC, slotA, input},
                              {DNNL_ARG_DIFF_DST, slotB, gradient},
                              {DNNL_ARG_DIFF_WEIGHTS, reordered ? slotWeights : slotOut, made},
                              {DNNL_ARG_SCRATCHPAD, slotScratchpad, description.scratchpad_desc()}}});
  if (reordered) {
    dnnl::reorder::primitive_desc back(engine(), made, engine(), plain, attr);
    sequence_.steps.push_back({dnnl::reorder(back),
                               {{DNNL_ARG_FROM, slotWeights, made},
                                {DNNL_ARG_TO, slotOut, plain},
                                {DNNL_ARG_SCRATCHPAD, slotScratchpad, back.scratchpad_desc()}}});
    sequence_.packed_layout = made;
  }
  return true;
}

// How long one thread takes, roughly, by what it multiplies in a nanosecond.
static double nanoseconds(const ConvolutionDesc& desc) {
  const bool transposed = desc.kind == ConvolutionKind::transposed, weights = desc.kind == ConvolutionKind::weights;
  const auto& results = (transposed ? desc.input : weights ? desc.weight : desc.out).sizes;
  const auto& window = (weights ? desc.out : desc.weight).sizes;
  const double rate = desc.groups > 1 ? 20 : desc.input.dtype == DType::f32 ? 80 : 300;
  return double(elements(results)) * double(elements(window)) / double(std::max<int64_t>(window[0], 1)) / rate;
}

Result<std::shared_ptr<const Convolution>> PreparedConvolution::build(const ConvolutionDesc& given) {
  const ConvolutionDesc desc = withRows(given);
  auto self = std::shared_ptr<PreparedConvolution>(new PreparedConvolution(desc));
  Sequence& sequence = self->sequence_;
  if (elements(desc.out.sizes) == 0) {
    sequence.empty = true;
    sequence.implementation = "empty";
    return std::shared_ptr<const Convolution>(std::move(self));
  }
  if (elements(desc.input.sizes) == 0 || elements(desc.weight.sizes) == 0) {
    if (desc.kind != ConvolutionKind::weights || desc.bias || !desc.post_ops.empty())
      return Status(Code::unsupported, sequence.text + ": an empty operand");
    sequence.zero_first = desc.out;  // a sum over no images
    sequence.implementation = "zeros";
    return std::shared_ptr<const Convolution>(std::move(self));
  }
  sequence.one_thread = threadsWorth(nanoseconds(desc), maxThreads()) == 1;
  const OneThread alone(sequence.one_thread);
  Status status = guarded(sequence.text, [&]() -> Status {
    const WithoutFork without_fork;  // as in prepared_matmul.cpp
    std::string why;
    std::optional<Plan> found = self->search(why);
    if (!found)
      return Status(Code::unsupported, sequence.text + ": " + why);
    const Plan& plan = *found;
    if (plan.padded) {
      std::vector<int64_t> begin = {0, 0};
      begin.insert(begin.end(), desc.padding.begin(), desc.padding.end());
      sequence.stagePadded(slotA, desc.input, plan.input, begin, "the input");
    } else {
      sequence.stageOperand(slotA, desc.input, plan.input, "the input");
    }
    if (desc.kind == ConvolutionKind::weights) {
      sequence.stageOperand(slotB, desc.weight, plan.weight, "the gradient");
      if (sequence.steps.size() > 1)
        sequence.weights_offset = sequence.reserve(sequence.packed_layout.get_size());
    } else if (sequence.own) {
      // It takes the weight as it lies.
    } else if (desc.pack_weight && (plan.given != plan.weight || sequence.packed_layout != sequence.b_layout)) {
      sequence.preparePacking(plan.given, plan.weight, plan.given_origin);
    } else {
      // Not worth keeping, or already as oneDNN wants it: through scratch at each call.
      sequence.stageOperand(slotB, plan.given, plan.weight, "the weight", plan.given_origin);
      sequence.weights_offset = sequence.reserve(sequence.packed_layout.get_size());
      dnnl::primitive_attr attr;
      attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      dnnl::reorder::primitive_desc pack(engine(), sequence.b_layout, engine(), sequence.packed_layout, attr);
      sequence.steps.insert(sequence.steps.begin(), {dnnl::reorder(pack),
                                                     {{DNNL_ARG_FROM, slotB, sequence.b_layout},
                                                      {DNNL_ARG_TO, slotWeights, sequence.packed_layout},
                                                      {DNNL_ARG_SCRATCHPAD, slotScratchpad, pack.scratchpad_desc()}}});
    }
    if (desc.bias)
      sequence.stageOperand(slotBias, *desc.bias, *plan.bias, "the bias");
    for (size_t i = 0; i < desc.post_ops.size(); ++i)
      if (desc.post_ops[i].operand)
        sequence.stageOperand(int(firstOperand + i), *desc.post_ops[i].operand, plan.operands[i], "a post-op operand");
    sequence.stageOut(desc.out, plan.out);
    sequence.placeScratchpad();
    return Status();
  });
  if (!status.ok())
    return status;
  return std::shared_ptr<const Convolution>(std::move(self));
}

}  // namespace zefuse::primitives
