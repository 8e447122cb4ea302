// What attention and its derivatives ask of their operands, [batch, heads, rows, columns].
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/primitive.h"

namespace zefuse::primitives {

// Where a row begins, in elements.
inline int64_t placeOf(const TensorDesc& tensor, int64_t batch, int64_t head, int64_t row) {
  return batch * tensor.strides[0] + head * tensor.strides[1] + row * tensor.strides[2];
}

// The same in memory.
inline const std::byte* addressOf(const void* data, const TensorDesc& tensor, int64_t batch, int64_t head,
                                  int64_t row) {
  const int64_t bytes = tensor.dtype == plan::DType::bf16 ? 2 : 4;
  return static_cast<const std::byte*>(data) + placeOf(tensor, batch, head, row) * bytes;
}

// A single row's stride says nothing, and sgemm wants it no smaller than the row.
inline int64_t leading(const TensorDesc& tensor) { return std::max(tensor.strides[2], tensor.sizes[3]); }

// `what`: the call, for the message.
inline Status checkOperand(const TensorDesc& tensor, plan::DType dtype, const std::string& what) {
  if (tensor.sizes.size() != 4 || tensor.strides.size() != 4)
    return {Code::invalid_argument, what + ": wants four dimensions"};
  if (tensor.dtype != dtype || (tensor.dtype != plan::DType::f32 && tensor.dtype != plan::DType::bf16))
    return {Code::unsupported, what + ": wants f32 or bf16 throughout"};
  for (size_t i = 0; i < 4; ++i)  // symbolic batches and tokens may be none
    if (tensor.sizes[i] < int64_t(i % 2) || tensor.sizes[i] > std::numeric_limits<int32_t>::max())
      return {Code::invalid_argument, what + ": has an impossible size"};
  if ((tensor.sizes[3] > 1 && tensor.strides[3] != 1) || tensor.strides[0] < 0 || tensor.strides[1] < 0 ||
      (tensor.sizes[2] > 1 && tensor.strides[2] < tensor.sizes[3]))
    return {Code::invalid_argument, what + ": wants contiguous rows that do not overlap"};
  return {};
}

// `out`: the result, or its gradient.
inline Status checkSizes(const TensorDesc& query, const TensorDesc& key, const TensorDesc& value, const TensorDesc& out,
                         const std::string& what) {
  const auto &q = query.sizes, &k = key.sizes, &v = value.sizes, &o = out.sizes;
  if (k[0] != q[0] || v[0] != q[0] || o[0] != q[0] || o[1] != q[1] || q[1] % k[1] != 0 || v[1] != k[1] ||
      o[2] != q[2] || v[2] != k[2] || k[3] != q[3] || o[3] != v[3])
    return {Code::invalid_argument, what + ": has sizes that do not fit together"};
  return {};
}

// How many elements apart what a mask has for scores is; 0: it is the same.
struct MaskStrides {
  int64_t batch = 0, head = 0, row = 0, key = 0;
  explicit MaskStrides(const TensorDesc& mask) {
    int64_t* strides[] = {&key, &row, &head, &batch};
    const size_t rank = mask.sizes.size();
    for (size_t i = 0; i < rank; ++i)
      *strides[i] = mask.sizes[rank - 1 - i] == 1 ? 0 : mask.strides[rank - 1 - i];
  }
};

inline Status checkMask(const TensorDesc& mask, const TensorDesc& query, const TensorDesc& key,
                        const std::string& what) {
  if (query.dtype != plan::DType::f32 || (mask.dtype != plan::DType::f32 && mask.dtype != plan::DType::b8))
    return {Code::unsupported, what + ": wants a mask of f32 or b8, with tensors of f32"};
  const std::vector<int64_t> scores{query.sizes[0], query.sizes[1], query.sizes[2], key.sizes[2]};
  const size_t rank = mask.sizes.size();
  if (rank > 4 || mask.strides.size() != rank)
    return {Code::invalid_argument, what + ": wants a mask of four dimensions at most"};
  for (size_t i = 0; i < rank; ++i)
    if ((mask.sizes[i] != 1 && mask.sizes[i] != scores[4 - rank + i]) || mask.strides[i] < 0)
      return {Code::invalid_argument, what + ": has a mask whose sizes are not the scores'"};
  return {};
}

// A number for each row of the queries.
inline Status checkSums(const TensorDesc& sums, const TensorDesc& query, const std::string& what) {
  if (sums.dtype != plan::DType::f32)
    return {Code::unsupported, what + ": wants rows' sums of f32"};
  if (sums.sizes != std::vector(query.sizes.begin(), query.sizes.end() - 1) || sums.strides.size() != 3)
    return {Code::invalid_argument, what + ": wants a sum for each row"};
  return {};
}

}  // namespace zefuse::primitives
