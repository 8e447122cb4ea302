#include "tests/unit/primitives/reference.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "runtime/primitives/simd/f16.h"

namespace zefuse::primitives::testing {

using plan::DType;
using plan::PostOpKind;

namespace {

uint16_t narrowed(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

bool isNarrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

int64_t offsetOf(const TensorDesc& desc, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d)
    offset += index[d] * desc.strides[d];
  return offset;
}

// Visits every index of `sizes`.
template <typename Body> void forEach(const std::vector<int64_t>& sizes, Body body) {
  for (int64_t size : sizes)
    if (size == 0)
      return;
  std::vector<int64_t> index(sizes.size(), 0);
  for (;;) {
    body(index);
    size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1])
      index[--d] = 0;
    if (d == 0)
      return;
  }
}

}  // namespace

double apply(PostOpKind kind, double x, double operand) {
  switch (kind) {
  case PostOpKind::relu: return std::isnan(x) ? x : std::max(x, 0.0);
  case PostOpKind::relu6: return std::isnan(x) ? x : std::clamp(x, 0.0, 6.0);
  case PostOpKind::hardswish: return x * std::clamp(x + 3, 0.0, 6.0) / 6;
  case PostOpKind::gelu_erf: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  case PostOpKind::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case PostOpKind::silu: return x / (1 + std::exp(-x));
  case PostOpKind::tanh: return std::tanh(x);
  case PostOpKind::sigmoid: return 1 / (1 + std::exp(-x));
  case PostOpKind::add: return x + operand;
  case PostOpKind::mul: return x * operand;
  }
  return x;
}

const void* Tensor::data() const {
  return isNarrow(desc.dtype) ? static_cast<const void*>(narrow.data()) : wide.data();
}
void* Tensor::data() { return isNarrow(desc.dtype) ? static_cast<void*>(narrow.data()) : wide.data(); }

double Tensor::at(const std::vector<int64_t>& index) const {
  int64_t offset = offsetOf(desc, index);
  if (desc.dtype == DType::f16)
    return floatOfF16(narrow[offset]);
  return desc.dtype == DType::bf16 ? std::bit_cast<float>(uint32_t(narrow[offset]) << 16) : wide[offset];
}

double Tensor::broadcastAt(const std::vector<int64_t>& index) const {
  std::vector<int64_t> mine(index.end() - desc.sizes.size(), index.end());
  for (size_t d = 0; d < mine.size(); ++d)
    if (desc.sizes[d] == 1)
      mine[d] = 0;
  return at(mine);
}

Tensor randomTensor(const TensorDesc& desc, uint32_t seed, double scale) {
  Tensor tensor{desc, {}, {}};
  int64_t extent = 1;
  for (size_t d = 0; d < desc.sizes.size(); ++d)
    extent += std::max<int64_t>(desc.sizes[d] - 1, 0) * desc.strides[d];
  tensor.wide.assign(extent + 16, std::numeric_limits<float>::quiet_NaN());
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> draw(float(-scale), float(scale));
  forEach(desc.sizes, [&](auto& index) { tensor.wide[offsetOf(desc, index)] = draw(generator); });
  if (isNarrow(desc.dtype)) {
    const bool f16 = desc.dtype == DType::f16;
    for (float value : tensor.wide)
      tensor.narrow.push_back(f16 ? f16OfFloat(value) : std::isnan(value) ? 0x7fc0 : narrowed(value));
    tensor.wide.clear();
  }
  return tensor;
}

TensorDesc dense(DType dtype, std::vector<int64_t> sizes) {
  std::vector<size_t> order;
  for (size_t d = 0; d < sizes.size(); ++d)
    order.push_back(d);
  return permuted(dtype, std::move(sizes), std::move(order));
}

TensorDesc permuted(DType dtype, std::vector<int64_t> sizes, std::vector<size_t> memory_order) {
  TensorDesc desc{dtype, sizes, std::vector<int64_t>(sizes.size())};
  int64_t stride = 1;
  for (size_t i = memory_order.size(); i-- > 0;) {
    desc.strides[memory_order[i]] = stride;
    stride *= std::max<int64_t>(sizes[memory_order[i]], 1);
  }
  return desc;
}

TensorDesc Draw::layout(std::vector<int64_t> sizes, bool transposed, bool gaps) {
  std::vector<size_t> order;
  for (size_t d = 0; d < sizes.size(); ++d)
    order.push_back(d);
  const size_t last = sizes.size() - 1;
  if (transposed)
    std::swap(order[last - 1], order[last]);
  TensorDesc desc = permuted(DType::f32, std::move(sizes), std::move(order));
  const int64_t gap = gaps ? (*this)(0, 2) : 0;  // 1: between rows or columns, 2: everywhere
  for (int64_t& stride : desc.strides)
    stride *= gap == 0 || (gap == 1 && stride == 1) ? 1 : 2;
  return desc;
}

std::vector<PostOpDesc> Draw::postOps(int64_t rows, int64_t columns) {
  std::vector<PostOpDesc> found;
  for (int64_t i = (*this)(0, 2); i > 0; --i) {
    const auto kind = PostOpKind((*this)(0, int(PostOpKind::MAX)));
    const bool binary = kind == PostOpKind::add || kind == PostOpKind::mul;
    found.push_back({kind, binary ? std::optional(dense(DType::f32, {rows, columns})) : std::nullopt});
  }
  return found;
}

Case makeCase(const MatmulDesc& desc, uint32_t seed) {
  Case test{desc, randomTensor(desc.a, seed), randomTensor(desc.b, seed + 1), randomTensor(desc.out, seed + 2), {}, {}};
  if (desc.bias)
    test.bias = randomTensor(*desc.bias, seed + 3);
  for (size_t i = 0; i < desc.post_ops.size(); ++i)
    test.operands.push_back(desc.post_ops[i].operand ? randomTensor(*desc.post_ops[i].operand, seed + 4 + i)
                                                     : Tensor());
  return test;
}

std::string runAndCompare(Case& test, std::string* implementation) {
  auto matmul = Matmul::get(test.desc);
  if (!matmul.ok())
    return matmul.status().toString();
  if (implementation)
    *implementation = (*matmul)->implementation();
  // Scratch and packed memory full of NaN: whoever reads what he did not write shows.
  AlignedBuffer packed((*matmul)->packedBytes()), scratch((*matmul)->scratchBytes());
  std::memset(packed.data, 0xff, (*matmul)->packedBytes());
  std::memset(scratch.data, 0xff, (*matmul)->scratchBytes());
  const void* b = test.b.data();
  if ((*matmul)->packedBytes()) {
    Status status = (*matmul)->packB(b, packed.data);
    if (!status.ok())
      return status.toString();
    b = packed.data;
  }
  std::vector<const void*> operands;
  for (const Tensor& operand : test.operands)
    operands.push_back(operand.desc.sizes.empty() && operand.wide.empty() && operand.narrow.empty() ? nullptr
                                                                                                    : operand.data());
  Status status = (*matmul)->run(
      {test.a.data(), b, test.desc.bias ? test.bias.data() : nullptr, test.out.data(), operands, scratch.data});
  if (!status.ok())
    return status.toString();
  std::string difference = compare(test);
  return difference.empty() ? "" : difference + " (" + (*matmul)->implementation() + ")";
}

std::string compare(const Case& test) {
  const MatmulDesc& desc = test.desc;
  size_t rank = desc.out.sizes.size();
  int64_t depth = desc.a.sizes.back();
  bool narrow = isNarrow(desc.out.dtype) || desc.fpmath == FpMath::bf16;
  double worst = 0;
  std::string difference;
  size_t written = 0;
  forEach(desc.out.sizes, [&](const std::vector<int64_t>& index) {
    ++written;
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < depth; ++k) {
      auto a = index, b = index;
      a[rank - 1] = k;
      b[rank - 2] = k;
      for (size_t d = 0; d + 2 < rank; ++d) {
        a[d] = desc.a.sizes[d] == 1 ? 0 : a[d];
        b[d] = desc.b.sizes[d] == 1 ? 0 : b[d];
      }
      double product = test.a.at(a) * test.b.at(b);
      sum += product;
      magnitude += std::abs(product);
    }
    double expected = desc.alpha * sum;
    magnitude *= std::abs(desc.alpha);
    if (desc.bias) {
      expected += test.bias.broadcastAt(index);
      magnitude += std::abs(expected);
    }
    for (size_t i = 0; i < desc.post_ops.size(); ++i) {
      double operand = desc.post_ops[i].operand ? test.operands[i].broadcastAt(index) : 0;
      expected = apply(desc.post_ops[i].kind, expected, operand);
      magnitude += std::abs(expected);
    }
    double got = test.out.at(index);
    // Rounding of the sum; bf16 rounds once or, where a post-op was not fused, a few times.
    double allowed = magnitude * (narrow ? 1.0 / 100 : 1e-6) + (narrow ? 1e-4 : 2e-6);
    double error = std::abs(got - expected);
    if (!(error <= allowed) && !(error <= worst && !difference.empty())) {
      worst = error;
      difference = "at [";
      for (int64_t i : index)
        difference += std::to_string(i) + " ";
      difference += "] got " + std::to_string(got) + ", expected " + std::to_string(expected);
    }
  });
  size_t kept = 0;  // elements outside the tensor keep their NaN
  for (float value : test.out.wide)
    kept += std::isnan(value);
  for (uint16_t value : test.out.narrow)
    kept += value == (test.out.desc.dtype == DType::f16 ? 0x7e00 : 0x7fc0);
  if (difference.empty() && kept + written != test.out.wide.size() + test.out.narrow.size())
    difference = "wrote outside of out";
  return difference;
}

std::string implementationOf(const MatmulDesc& desc) {
  auto found = Matmul::get(desc);
  return found.ok() ? (*found)->implementation() : found.status().toString();
}

}  // namespace zefuse::primitives::testing
