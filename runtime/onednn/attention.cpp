#include "runtime/onednn/attention.h"

#include <algorithm>
#include <atomic>
#include <dnnl.h>
#include <limits>

#include "common/plan/plan_generated.h"
#include "runtime/onednn/descriptor.h"
#include "runtime/onednn/row_softmax.h"
#include "runtime/onednn/team.h"

namespace zefuse::onednn {

namespace {

// Scores of one block: beside the keys and values of a head, in a second-level cache of 1 to 2 MiB.
constexpr int64_t block_scores = 192 << 10;
constexpr int64_t fewest_rows = 32;  // below, the product reads its right side too often

int64_t at(const TensorDesc& tensor, int64_t batch, int64_t head, int64_t row) {
  return batch * tensor.strides[0] + head * tensor.strides[1] + row * tensor.strides[2];
}

Status refuse(Code code, const AttentionDesc& desc, const std::string& why) {
  return {code, toString(desc) + ": " + why};
}

Status check(const AttentionDesc& desc) {
  for (const TensorDesc* tensor : {&desc.query, &desc.key, &desc.value, &desc.out}) {
    if (tensor->sizes.size() != 4 || tensor->strides.size() != 4)
      return refuse(Code::invalid_argument, desc, "wants four dimensions");
    if (tensor->dtype != plan::DType::f32)
      return refuse(Code::unsupported, desc, "wants f32");
    for (int64_t size : tensor->sizes)
      if (size < 1 || size > std::numeric_limits<int32_t>::max())
        return refuse(Code::invalid_argument, desc, "has an impossible size");
    if ((tensor->sizes[3] > 1 && tensor->strides[3] != 1) || tensor->strides[0] < 0 || tensor->strides[1] < 0 ||
        (tensor->sizes[2] > 1 && tensor->strides[2] < tensor->sizes[3]))
      return refuse(Code::invalid_argument, desc, "wants contiguous rows that do not overlap");
  }
  const auto &q = desc.query.sizes, &k = desc.key.sizes, &v = desc.value.sizes, &o = desc.out.sizes;
  if (k[0] != q[0] || v[0] != q[0] || o[0] != q[0] || o[1] != q[1] || q[1] % k[1] != 0 || v[1] != k[1] ||
      o[2] != q[2] || v[2] != k[2] || k[3] != q[3] || o[3] != v[3])
    return refuse(Code::invalid_argument, desc, "has sizes that do not fit together");
  return {};
}

}  // namespace

std::string toString(const AttentionDesc& desc) {
  return "attention " + toString(desc.query) + ", " + toString(desc.key) + ", " + toString(desc.value) + " -> " +
         toString(desc.out) + (desc.causal ? ", causal" : "");
}

Result<std::shared_ptr<const Attention>> Attention::get(const AttentionDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(check(desc));
  return std::shared_ptr<const Attention>(std::make_shared<Attention>(desc));
}

Attention::Attention(const AttentionDesc& desc) : desc_(desc), threads_(maxThreads()) {
  const int64_t rows = desc.query.sizes[2], columns = desc.key.sizes[2];
  const int64_t wanted = std::clamp<int64_t>(block_scores / columns, std::min(fewest_rows, rows), rows);
  blocks_ = (rows + wanted - 1) / wanted;
  rows_ = (rows + blocks_ - 1) / blocks_;
}

size_t Attention::scratchBytes() const { return size_t(threads_) * size_t(rows_ * desc_.key.sizes[2]) * sizeof(float); }

Status Attention::run(const Arguments& arguments) const {
  const int64_t total = desc_.query.sizes[0] * desc_.query.sizes[1] * blocks_;
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  overTeam(total, 1, [&](int64_t begin, int64_t end) {
    // Each part of the team has scratch of its own; there are no more parts than threads at preparation.
    const int mine = next.fetch_add(1, std::memory_order_relaxed);
    float* scores = static_cast<float*>(arguments.scratch) + int64_t(mine % threads_) * rows_ * desc_.key.sizes[2];
    for (int64_t block = begin; block < end; ++block)
      if (!runBlock(arguments, block, scores).ok())
        failed = true;
  });
  return failed ? Status(Code::internal, toString(desc_) + ": oneDNN's sgemm failed") : Status();
}

Status Attention::runBlock(const Arguments& arguments, int64_t block, float* scores) const {
  const int64_t heads = desc_.query.sizes[1], shared = heads / desc_.key.sizes[1];
  const int64_t batch = block / blocks_ / heads, head = block / blocks_ % heads, first = block % blocks_ * rows_;
  const int64_t rows = std::min(rows_, desc_.query.sizes[2] - first);
  if (rows <= 0)
    return {};
  const int64_t depth = desc_.query.sizes[3], width = desc_.value.sizes[3], all = desc_.key.sizes[2];
  const int64_t columns = desc_.causal ? std::min(all, first + rows) : all;
  const float* query = static_cast<const float*>(arguments.a) + at(desc_.query, batch, head, first);
  const float* key = static_cast<const float*>(arguments.b) + at(desc_.key, batch, head / shared, 0);
  const float* value =
      static_cast<const float*>(arguments.post_op_operands[0]) + at(desc_.value, batch, head / shared, 0);
  float* out = static_cast<float*>(arguments.out) + at(desc_.out, batch, head, first);
  // A single row's stride says nothing, and sgemm wants it no smaller than the row.
  auto leading = [](const TensorDesc& tensor) { return std::max(tensor.strides[2], tensor.sizes[3]); };

  if (dnnl_sgemm('N', 'T', rows, columns, depth, desc_.scale, query, leading(desc_.query), key, leading(desc_.key), 0.f,
                 scores, columns) != dnnl_success)
    return {Code::internal, "q k^T"};
  float sums[1 << 10];
  float* sum_of_row = sums;
  std::vector<float> many;
  if (rows > int64_t(std::size(sums))) {
    many.resize(size_t(rows));
    sum_of_row = many.data();
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* scores_of_row = scores + row * columns;
    const int64_t seen = desc_.causal ? std::min(columns, first + row + 1) : columns;
    sum_of_row[row] = exponentials(scores_of_row, seen);
    std::fill(scores_of_row + seen, scores_of_row + columns, 0.f);
  }
  if (dnnl_sgemm('N', 'N', rows, width, columns, 1.f, scores, columns, value, leading(desc_.value), 0.f, out,
                 leading(desc_.out)) != dnnl_success)
    return {Code::internal, "p v"};
  for (int64_t row = 0; row < rows; ++row) {
    float* out_of_row = out + row * leading(desc_.out);
    for (int64_t i = 0; i < width; ++i)
      out_of_row[i] /= sum_of_row[row];
  }
  return {};
}

}  // namespace zefuse::onednn
