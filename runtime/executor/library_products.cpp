#include "runtime/executor/library_products.h"

#include <algorithm>
#include <bit>

#include "common/base/buffer_alignment.h"
#include "common/plan/dtype.h"

namespace zefuse::executor {
namespace {

using ze_extension::Activation;
using ze_extension::ElementType;
using ze_extension::Matrix;
using ze_extension::ProductDesc;

constexpr size_t workspace_bytes = size_t(32) << 20;  // what NVIDIA recommends for its GPUs from Hopper on

// The one step through all batches, in the result's order, that a value's dimensions before the last two make: 0 where
// it has one batch for all. Nothing: there is none.
std::optional<int64_t> batchStride(const BoundValue& value, std::span<const int64_t> batches) {
  std::optional<int64_t> stride;
  int64_t inner = 1;
  for (size_t i = batches.size(); i-- > 0;) {
    if (batches[i] == 1)
      continue;
    const int64_t own = value.sizes[i] == 1 ? 0 : value.strides[i];
    if (!stride)
      stride = own;
    else if (own != *stride * inner)
      return std::nullopt;
    inner *= batches[i];
  }
  return stride.value_or(0);
}

std::optional<Matrix> matrixOf(const BoundValue& value, std::span<const int64_t> batches) {
  const size_t rank = value.sizes.size();
  const auto type = libraryType(value.dtype);
  const auto batch_stride = batchStride(value, batches);
  if (!type || !batch_stride)
    return std::nullopt;
  // Of the first element of every batch.
  const size_t element = plan::elementSize(value.dtype);
  const size_t reached = value.offset_bytes | (size_t(*batch_stride) * element) | buffer_alignment;
  return Matrix{*type, uint32_t(size_t(1) << std::countr_zero(reached)), *batch_stride, value.strides[rank - 2],
                value.strides[rank - 1]};
}

bool wholeVectors(int64_t stride) { return stride == 1 || stride % 8 == 0; }

}  // namespace

std::optional<ElementType> libraryType(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::f32: return ElementType::f32;
  case plan::DType::bf16: return ElementType::bf16;
  case plan::DType::f16: return ElementType::f16;
  default: return std::nullopt;
  }
}

std::optional<ProductDesc> libraryProduct(const Binding& binding, const plan::MatmulT& matmul, int64_t work) {
  const BoundValue &a = binding.values[matmul.a], &b = binding.values[matmul.b], &out = binding.values[matmul.out];
  const size_t rank = out.sizes.size();
  const std::span<const int64_t> batches = out.sizes.first(rank - 2);
  ProductDesc desc{};
  desc.rows = out.sizes[rank - 2];
  desc.columns = out.sizes[rank - 1];
  desc.depth = a.sizes[rank - 1];
  if (a.sizes[rank - 2] != desc.rows || b.sizes[rank - 2] != desc.depth || b.sizes[rank - 1] != desc.columns)
    return std::nullopt;
  for (size_t i = 0; i < batches.size(); ++i)
    for (const BoundValue* operand : {&a, &b})
      if (operand->sizes[i] != batches[i] && operand->sizes[i] != 1)
        return std::nullopt;
  desc.batches = 1;
  int64_t multiplications = desc.rows;
  for (int64_t size : batches)
    if (__builtin_mul_overflow(desc.batches, size, &desc.batches))
      return std::nullopt;
  for (int64_t size : {desc.columns, desc.depth, desc.batches})
    if (size == 0 || __builtin_mul_overflow(multiplications, size, &multiplications))
      return std::nullopt;
  if (multiplications < work)
    return std::nullopt;
  const auto of_a = matrixOf(a, batches), of_b = matrixOf(b, batches), of_out = matrixOf(out, batches);
  if (!of_a || !of_b || !of_out)
    return std::nullopt;
  // For rows of 16-bit elements that begin between two multiples of 16 bytes the library has slow code alone: 4096 x
  // 768 by 768 x 50257 in bf16 took 3.3 ms on a H100, 95 TFLOP/s, where our kernels reach 240 and more.
  if (of_a->type != ElementType::f32)
    for (const Matrix* matrix : {&*of_a, &*of_b, &*of_out})
      if (matrix->alignment < 16 || !wholeVectors(matrix->row_stride) || !wholeVectors(matrix->column_stride))
        return std::nullopt;
  desc.a = *of_a;
  desc.b = *of_b;
  desc.out = *of_out;
  desc.alpha = matmul.alpha;
  desc.tf32 = matmul.tf32_math;
  desc.workspace_bytes = workspace_bytes;
  if (matmul.bias >= 0) {
    const BoundValue& bias = binding.values[size_t(matmul.bias)];
    if (bias.dtype != out.dtype || bias.elements != desc.columns || bias.sizes.back() != desc.columns ||
        (desc.columns > 1 && bias.strides.back() != 1))
      return std::nullopt;
    desc.bias = true;
  }
  for (const auto& op : matmul.post_ops)
    if (desc.activation != Activation::none)
      return std::nullopt;
    else if (op->kind == plan::PostOpKind::relu)
      desc.activation = Activation::relu;
    else if (op->kind == plan::PostOpKind::gelu_tanh)
      desc.activation = Activation::gelu_tanh;
    else
      return std::nullopt;
  return desc;
}

}  // namespace zefuse::executor
