#include "runtime/executor/library_convolutions.h"

#include <algorithm>
#include <bit>

#include "common/base/buffer_alignment.h"
#include "runtime/executor/library_products.h"

namespace zefuse::executor {
namespace {

// As a product's is for NVIDIA's GPUs from Hopper on, and as much again.
constexpr size_t most_convolution_bytes = size_t(64) << 20;

std::optional<ze_extension::ConvolutionTensor> tensorOf(const BoundValue& value) {
  ze_extension::ConvolutionTensor tensor{};
  for (size_t i = 0; i < value.sizes.size(); ++i) {
    if (value.sizes[i] < 1 || (value.sizes[i] > 1 && value.strides[i] < 1))
      return std::nullopt;
    tensor.sizes[i] = value.sizes[i];
    tensor.strides[i] = value.strides[i];
  }
  tensor.alignment = uint32_t(size_t(1) << std::countr_zero(value.offset_bytes | buffer_alignment));
  return tensor;
}

// How far padding goes at the end, so that the result has its size. Nothing: none does.
std::optional<int64_t> paddingAfter(int64_t image, int64_t kernel, int64_t result, int64_t stride, int64_t dilation,
                                    int64_t before) {
  const int64_t reached = (result - 1) * stride + dilation * (kernel - 1) + 1 - before;
  const int64_t after = std::max<int64_t>(0, reached - image);
  // What the last step leaves over of the image must be less than a step.
  return image + after - reached < stride ? std::optional(after) : std::nullopt;
}

}  // namespace

std::optional<ze_extension::ConvolutionDesc> libraryConvolution(const Binding& binding,
                                                                const plan::ConvolutionT& convolution, int64_t work) {
  const BoundValue &input = binding.values[convolution.input], &weight = binding.values[convolution.weight],
                   &out = binding.values[convolution.out];
  const size_t rank = out.sizes.size(), spatial = rank - 2;
  if (rank < 3 || rank > 5 || input.sizes.size() != rank || weight.sizes.size() != rank ||
      convolution.stride.size() != spatial || convolution.padding.size() != spatial ||
      convolution.dilation.size() != spatial)
    return std::nullopt;
  ze_extension::ConvolutionDesc desc{};
  desc.spatial = uint32_t(spatial);
  const auto type = libraryType(out.dtype);
  if (!type || input.dtype != out.dtype || weight.dtype != out.dtype)
    return std::nullopt;
  desc.type = *type;
  // Forward's image, weight and result.
  const BoundValue *image = &input, *kernel = &weight, *result = &out;
  switch (convolution.kind) {
  case plan::ConvolutionKind::forward: desc.kind = ze_extension::ConvolutionKind::forward; break;
  case plan::ConvolutionKind::transposed:
    desc.kind = ze_extension::ConvolutionKind::by_data;
    image = &out;
    result = &input;
    break;
  case plan::ConvolutionKind::weights:
    desc.kind = ze_extension::ConvolutionKind::by_weight;
    kernel = &out;
    result = &weight;
    break;
  }
  const auto of_image = tensorOf(*image), of_kernel = tensorOf(*kernel), of_result = tensorOf(*result);
  if (!of_image || !of_kernel || !of_result)
    return std::nullopt;
  desc.image = *of_image;
  desc.weight = *of_kernel;
  desc.result = *of_result;
  const int64_t groups = convolution.groups;
  if (image->sizes[0] != result->sizes[0] || kernel->sizes[0] != result->sizes[1] ||
      kernel->sizes[1] * groups != image->sizes[1])
    return std::nullopt;
  int64_t multiplications = 1;
  for (int64_t size : result->sizes)
    if (__builtin_mul_overflow(multiplications, size, &multiplications))
      return std::nullopt;
  for (int64_t size : kernel->sizes.subspan(1))
    if (__builtin_mul_overflow(multiplications, size, &multiplications))
      return std::nullopt;
  if (multiplications < work)
    return std::nullopt;
  for (size_t i = 0; i < spatial; ++i) {
    desc.strides[i] = convolution.stride[i];
    desc.dilations[i] = convolution.dilation[i];
    desc.padding_before[i] = convolution.padding[i];
    const auto after = paddingAfter(image->sizes[i + 2], kernel->sizes[i + 2], result->sizes[i + 2], desc.strides[i],
                                    desc.dilations[i], desc.padding_before[i]);
    if (!after || desc.padding_before[i] < 0)
      return std::nullopt;
    desc.padding_after[i] = *after;
  }
  desc.tf32 = convolution.tf32_math;
  desc.workspace_bytes = most_convolution_bytes;
  if (convolution.bias >= 0) {
    const BoundValue& bias = binding.values[size_t(convolution.bias)];
    if (desc.kind != ze_extension::ConvolutionKind::forward || bias.dtype != out.dtype || bias.sizes.size() != 1 ||
        bias.elements != out.sizes[1] || (bias.elements > 1 && bias.strides[0] != 1) || bias.offset_bytes % 16 != 0)
      return std::nullopt;
    desc.bias = true;
  }
  for (const auto& op : convolution.post_ops)
    if (op->kind == plan::PostOpKind::add && desc.bias && !desc.residual && op->operand >= 0 &&
        desc.activation == ze_extension::Activation::none) {
      const BoundValue& residual = binding.values[size_t(op->operand)];
      const auto lies = tensorOf(residual);
      if (residual.dtype != out.dtype || !std::ranges::equal(residual.sizes, out.sizes) || !lies ||
          lies->alignment < desc.result.alignment)
        return std::nullopt;
      for (size_t i = 0; i < rank; ++i)
        if (residual.sizes[i] > 1 && residual.strides[i] != out.strides[i])
          return std::nullopt;
      desc.residual = true;
    } else if (op->kind == plan::PostOpKind::relu && desc.bias && desc.activation == ze_extension::Activation::none)
      desc.activation = ze_extension::Activation::relu;
    else
      return std::nullopt;
  return desc;
}

ze_extension::ConvolutionOperands libraryOperands(plan::ConvolutionKind kind, void* input, void* weight,
                                                  const void* bias, const void* residual, void* out) {
  switch (kind) {
  case plan::ConvolutionKind::transposed: return {out, weight, input, bias, nullptr, nullptr};
  case plan::ConvolutionKind::weights: return {input, out, weight, bias, nullptr, nullptr};
  default: return {input, weight, out, bias, residual, nullptr};
  }
}

}  // namespace zefuse::executor
