#include "runtime/primitives/convolution/convolution.h"

#include <algorithm>

#include "common/base/number_list.h"
#include "common/plan/plan_generated.h"
#include "runtime/primitives/convolution/prepared_convolution.h"
#include "runtime/primitives/core/primitive_cache.h"
#include "runtime/primitives/core/tensor_desc.h"

namespace zefuse::primitives {

namespace {

using plan::ConvolutionKind;
using plan::DType;

constexpr int64_t most = int64_t(1) << 31;  // oneDNN computes in int

Status refuse(Code code, const ConvolutionDesc& desc, const std::string& why) {
  return Status(code, toString(desc) + ": " + why);
}

Status checkTensor(const ConvolutionDesc& desc, const TensorDesc& tensor, const char* name) {
  if (tensor.sizes.size() != tensor.strides.size())
    return refuse(Code::invalid_argument, desc, std::string(name) + " has not as many strides as sizes");
  for (size_t d = 0; d < tensor.sizes.size(); ++d)
    if (tensor.sizes[d] < 0 || tensor.strides[d] < 0 || tensor.sizes[d] >= most)
      return refuse(Code::invalid_argument, desc, std::string(name) + " has an impossible size or stride");
  if (tensor.dtype != DType::f32 && tensor.dtype != DType::bf16 && !hasCodes(tensor))
    return refuse(Code::unsupported, desc,
                  std::string(name) + " is " + plan::EnumNameDType(tensor.dtype) +
                      "; oneDNN convolves f32, bf16 and codes of 8 bits here: run it through ATen");
  return Status();
}

Status check(const ConvolutionDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.input, "the input"));
  ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.weight, "the weight"));
  ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, desc.out, "the result"));
  if ((hasCodes(desc.input) || hasCodes(desc.weight) || hasCodes(desc.out)) &&
      (desc.kind != ConvolutionKind::forward || !hasCodes(desc.input) || desc.weight.dtype != DType::i8 ||
       desc.out.dtype == DType::bf16))
    return refuse(Code::unsupported, desc, "codes are convolved forward, by weights of i8, to f32 or codes");
  const size_t rank = desc.out.sizes.size();
  if (rank < 3 || rank > 5 || desc.input.sizes.size() != rank || desc.weight.sizes.size() != rank)
    return refuse(Code::invalid_argument, desc, "wants three tensors of one rank, 3 to 5");
  const size_t spatial = rank - 2;
  if (desc.stride.size() != spatial || desc.padding.size() != spatial || desc.dilation.size() != spatial)
    return refuse(Code::invalid_argument, desc, "wants stride, padding and dilation for each spatial dimension");
  // The forward convolution behind each kind: x [N, C, ...], w [O, C / groups, ...], y [N, O, ...].
  const auto& x = desc.kind == ConvolutionKind::transposed ? desc.out.sizes : desc.input.sizes;
  const auto& w = desc.kind == ConvolutionKind::weights ? desc.out.sizes : desc.weight.sizes;
  const auto& y = desc.kind == ConvolutionKind::forward   ? desc.out.sizes
                  : desc.kind == ConvolutionKind::weights ? desc.weight.sizes
                                                          : desc.input.sizes;
  if (desc.groups < 1 || desc.groups >= most || x[0] != y[0] || w[0] != y[1] || w[0] % desc.groups != 0 ||
      w[1] * desc.groups != x[1])
    return refuse(Code::invalid_argument, desc, "batch, channels and groups do not fit");
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t stride = desc.stride[d], padding = desc.padding[d], dilation = desc.dilation[d];
    if (stride < 1 || dilation < 1 || padding < 0 || stride >= most || dilation >= most || padding >= most)
      return refuse(Code::invalid_argument, desc, "stride and dilation must be positive, padding not negative");
    if (elements(x) == 0 || elements(y) == 0 || w[d + 2] == 0)
      continue;
    const int64_t window = (w[d + 2] - 1) * dilation + 1;
    const int64_t reached = (y[d + 2] - 1) * stride + window;
    if (reached - x[d + 2] - padding > std::max(padding + stride + dilation, window))
      return refuse(Code::invalid_argument, desc, "the result reaches further than the padded input");
  }
  if (desc.kind == ConvolutionKind::weights && (desc.bias || !desc.post_ops.empty()))
    return refuse(Code::invalid_argument, desc, "the weight's gradient takes neither bias nor post-ops");
  if (desc.bias) {
    ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, *desc.bias, "the bias"));
    if (hasCodes(*desc.bias))
      return refuse(Code::unsupported, desc, "the bias has codes");
    if (desc.bias->sizes != std::vector<int64_t>{desc.out.sizes[1]})
      return refuse(Code::invalid_argument, desc, "the bias is not one value per channel of the result");
  }
  for (const PostOpDesc& op : desc.post_ops) {
    if (!op.operand)
      continue;
    ZEFUSE_RETURN_IF_ERROR(checkTensor(desc, *op.operand, "a post-op operand"));
    if (hasCodes(*op.operand))
      return refuse(Code::unsupported, desc, "a post-op operand has codes");
    bool fits = op.operand->sizes.size() == rank;
    for (size_t d = 0; fits && d < rank; ++d)
      fits = op.operand->sizes[d] == 1 || op.operand->sizes[d] == desc.out.sizes[d];
    if (!fits)
      return refuse(Code::invalid_argument, desc, "a post-op operand does not broadcast to the result");
  }
  return Status();
}

CacheKey makeKey(const ConvolutionDesc& desc) {
  CacheKey key = beginKey(CachedKind::convolution);
  key.insert(key.end(), {int64_t(desc.kind), desc.groups, desc.pack_weight, desc.weight_changes, int64_t(desc.way)});
  append(key, desc.input);
  append(key, desc.weight);
  append(key, desc.out);
  append(key, desc.bias);
  for (const auto* list : {&desc.stride, &desc.padding, &desc.dilation})
    key.insert(key.end(), list->begin(), list->end());
  append(key, desc.post_ops);
  return key;
}

}  // namespace

std::string toString(const ConvolutionDesc& desc) {
  return std::string("convolution (") + plan::EnumNameConvolutionKind(desc.kind) + ") " + toString(desc.input) +
         " with " + toString(desc.weight) + " -> " + toString(desc.out) + ", stride " + numberList(desc.stride, ",") +
         ", padding " + numberList(desc.padding, ",") + ", dilation " + numberList(desc.dilation, ",") + ", groups " +
         std::to_string(desc.groups);
}

bool Convolution::isCached(const ConvolutionDesc& desc) { return check(desc).ok() && findCached(makeKey(desc)); }

Result<std::shared_ptr<const Convolution>> Convolution::get(const ConvolutionDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(check(desc));
  CacheKey key = makeKey(desc);
  if (auto known = findCached(key))
    return std::static_pointer_cast<const Convolution>(known);
  auto built = PreparedConvolution::build(desc);  // outside the lock: generating code takes milliseconds
  if (!built.ok())
    return built;
  return std::static_pointer_cast<const Convolution>(insertCached(key, *built));
}

}  // namespace zefuse::primitives
