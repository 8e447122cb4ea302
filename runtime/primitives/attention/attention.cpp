#include "runtime/primitives/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <dnnl.h>
#include <utility>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/attention/attention_operands.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/core/tensor_desc.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/primitives/simd/row_softmax.h"

namespace zefuse::primitives {

namespace {

// Scores of one block: beside the keys and values of a head, in a second-level cache of 1 to 2 MiB.
constexpr int64_t block_scores = 192 << 10;
constexpr int64_t fewest_rows = 32;  // below, the product reads its right side too often
// From so many rows on laying out a head's keys and values for them pays.
constexpr int64_t fewest_of_panels = 16;
// A causal block's rows see all keys that its last one sees: of 512 tokens blocks of 128 compute 5/8 of the scores,
// where blocks of 384 compute 13/16 (docs/attention.md).
constexpr int64_t most_causal_rows = 128;

Status check(const AttentionDesc& desc) {
  const std::string what = toString(desc);
  for (const TensorDesc* tensor : {&desc.query, &desc.key, &desc.value, &desc.out})
    ZEFUSE_RETURN_IF_ERROR(checkOperand(*tensor, desc.query.dtype, what));
  ZEFUSE_RETURN_IF_ERROR(checkSizes(desc.query, desc.key, desc.value, desc.out, what));
  if (!desc.log_sums.sizes.empty())
    ZEFUSE_RETURN_IF_ERROR(checkSums(desc.log_sums, desc.query, what));
  if (!desc.mask.sizes.empty())
    ZEFUSE_RETURN_IF_ERROR(checkMask(desc.mask, desc.query, desc.key, what));
  if (desc.key.sizes[2] == 0 && desc.query.sizes[0] * desc.query.sizes[2] != 0)
    return {Code::unsupported, what + ": has queries and no keys"};
  return {};
}

}  // namespace

std::string toString(const AttentionDesc& desc) {
  return "attention " + toString(desc.query) + ", " + toString(desc.key) + ", " + toString(desc.value) + " -> " +
         toString(desc.out) + (desc.mask.sizes.empty() ? "" : ", mask " + toString(desc.mask)) +
         (desc.causal ? ", causal" : "");
}

Result<std::shared_ptr<const Attention>> Attention::get(const AttentionDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(check(desc));
  return std::shared_ptr<const Attention>(std::make_shared<Attention>(desc));
}

Attention::Attention(const AttentionDesc& desc) : desc_(desc), threads_(maxThreads()) {
  const bool narrow = desc.query.dtype == plan::DType::bf16, tiled = narrow && TiledAttention::available();
  // Where there is nothing to compute, no block has a row.
  const int64_t rows = std::max<int64_t>(desc.query.sizes[2], 1), columns = std::max<int64_t>(desc.key.sizes[2], 1);
  // In tiles, keys and values lie beside the scores once more.
  const int64_t scores = tiled ? block_scores / 2 : block_scores;
  const int64_t most = desc.causal ? std::min(rows, most_causal_rows) : rows;
  const int64_t wanted = std::clamp<int64_t>(scores / columns, std::min(fewest_rows, most), most);
  blocks_ = (rows + wanted - 1) / wanted;
  rows_ = (rows + blocks_ - 1) / blocks_;
  if (tiled) {
    tiled_ = TiledAttention{rows_, columns, desc.query.sizes[3], desc.value.sizes[3]};
  } else if (PanelAttention::available() && rows >= fewest_of_panels) {
    panels_ = PanelAttention{columns, desc.query.sizes[3], desc.value.sizes[3], narrow};
    shareInPanels();
  }
  implementation_ = tiled     ? "products in tiles around softmax by blocks of rows"
                    : panels_ ? (narrow ? "products in vectors around softmax by panels of rows; widens bf16"
                                        : "products in vectors around softmax by panels of rows")
                    : narrow  ? "sgemm, softmax, sgemm by blocks of rows; widens bf16"
                              : "sgemm, softmax, sgemm by blocks of rows";
}

// In few large blocks, or in as many as keep the threads busy: what is computed for a row depends on its panel alone.
void Attention::shareInPanels() {
  const auto& query = desc_.query.sizes;
  const int64_t heads = query[0] * query[1];
  constexpr double products_per_nanosecond = 50;
  const double products =
      double(heads * query[2] * desc_.key.sizes[2]) * double(query[3] + desc_.value.sizes[3]) / (desc_.causal ? 2 : 1);
  threads_ = threadsWorth(products / products_per_nanosecond, threads_);
  rows_ = PanelAttention::mostQueries();
  auto blocks = [&] { return (query[2] + rows_ - 1) / rows_; };
  while (threads_ > 1 && heads * blocks() < 4 * threads_ && rows_ > PanelAttention::queriesOfPanel())
    rows_ /= 2;
  blocks_ = blocks();
}

size_t Attention::scratchOfThread() const {
  if (tiled_)
    return tiled_->scratchBytes();
  if (panels_)
    return panels_->scratchBytes();
  const int64_t keys = desc_.key.sizes[2], depth = desc_.query.sizes[3], width = desc_.value.sizes[3];
  int64_t floats = rows_ * keys;
  if (desc_.query.dtype == plan::DType::bf16)
    floats += (rows_ + keys) * (depth + width);
  return size_t(floats) * sizeof(float);
}

size_t Attention::scratchBytes() const { return size_t(threads_) * scratchOfThread(); }

Status Attention::run(const Arguments& arguments) const {
  const OneThread alone(threads_ == 1);
  const int64_t total = desc_.query.sizes[2] == 0 ? 0 : desc_.query.sizes[0] * desc_.query.sizes[1] * blocks_;
  std::atomic<bool> failed{false};
  auto run_blocks = [&](int64_t begin, int64_t end, std::byte* scratch) {
    int64_t packed = -1;
    for (int64_t block = begin; block < end; ++block) {
      const Place place = placeOf(arguments, block);
      if (place.rows <= 0)
        continue;
      if ((tiled_ || panels_) && std::exchange(packed, place.key_head) != place.key_head)
        pack(place, scratch);
      if (!runPlace(place, scratch).ok())
        failed = true;
    }
  };
  overTeamWithScratch(total, arguments.scratch, scratchOfThread(), threads_, run_blocks);
  return failed ? Status(Code::internal, toString(desc_) + ": oneDNN's sgemm failed") : Status();
}

PanelAttention::Mask Attention::maskOf(const Arguments& arguments, int64_t batch, int64_t head, int64_t first) const {
  if (desc_.mask.sizes.empty())
    return {};
  const MaskStrides strides(desc_.mask);
  const bool boolean = desc_.mask.dtype == plan::DType::b8;
  const int64_t at = batch * strides.batch + head * strides.head + first * strides.row;
  return {static_cast<const std::byte*>(arguments.post_op_operands[1]) + at * (boolean ? 1 : 4), strides.row,
          strides.key, boolean};
}

Attention::Place Attention::placeOf(const Arguments& arguments, int64_t block) const {
  const int64_t heads = desc_.query.sizes[1], shared = heads / desc_.key.sizes[1];
  const int64_t batch = block / blocks_ / heads, head = block / blocks_ % heads, first = block % blocks_ * rows_;
  return {batch * desc_.key.sizes[1] + head / shared,
          first,
          std::min(rows_, desc_.query.sizes[2] - first),
          addressOf(arguments.a, desc_.query, batch, head, first),
          addressOf(arguments.b, desc_.key, batch, head / shared, 0),
          addressOf(arguments.post_op_operands[0], desc_.value, batch, head / shared, 0),
          const_cast<std::byte*>(addressOf(arguments.out, desc_.out, batch, head, first)),
          desc_.log_sums.sizes.empty()
              ? nullptr
              : static_cast<float*>(arguments.results[0]) + primitives::placeOf(desc_.log_sums, batch, head, first),
          maskOf(arguments, batch, head, first),
          leading(desc_.query),
          leading(desc_.key),
          leading(desc_.value),
          leading(desc_.out)};
}

void Attention::pack(const Place& place, void* scratch) const {
  if (panels_)
    panels_->pack({place.key, place.key_row}, {place.value, place.value_row}, scratch);
  else
    tiled_->pack(static_cast<const __bf16*>(place.key), place.key_row, static_cast<const __bf16*>(place.value),
                 place.value_row, scratch);
}

Status Attention::runPlace(const Place& place, void* scratch) const {
  const int64_t sums_row = place.log_sums ? desc_.log_sums.strides[2] : 0;
  if (panels_) {
    panels_->run({place.query, place.query_row}, place.first, place.rows, desc_.scale, desc_.causal, place.mask,
                 {place.out, place.out_row, place.log_sums, sums_row}, scratch);
    return {};
  }
  if (tiled_) {
    tiled_->run(static_cast<const __bf16*>(place.query), place.query_row, place.first, place.rows, desc_.scale,
                desc_.causal, static_cast<__bf16*>(place.out), place.out_row, place.log_sums, sums_row, scratch);
    return {};
  }
  auto* floats = static_cast<float*>(scratch);
  return desc_.query.dtype == plan::DType::bf16 ? runWidened(place, floats) : runBlock(place, floats);
}

Status Attention::runBlock(const Place& place, float* scores) const {
  const int64_t depth = desc_.query.sizes[3], width = desc_.value.sizes[3], all = desc_.key.sizes[2];
  const int64_t rows = place.rows, columns = desc_.causal ? std::min(all, place.first + rows) : all;
  auto* out = static_cast<float*>(place.out);
  if (dnnl_sgemm('N', 'T', rows, columns, depth, desc_.scale, static_cast<const float*>(place.query), place.query_row,
                 static_cast<const float*>(place.key), place.key_row, 0.f, scores, columns) != dnnl_success)
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
    const int64_t seen = desc_.causal ? std::min(columns, place.first + row + 1) : columns;
    for (int64_t key = 0; place.mask.data && key < seen; ++key)
      scores_of_row[key] += place.mask.at(row, key);
    const RowSum sum = exponentials(scores_of_row, seen);
    sum_of_row[row] = sum.sum;
    if (place.log_sums)
      place.log_sums[row * desc_.log_sums.strides[2]] = sum.maximum + std::log(sum.sum);
    std::fill(scores_of_row + seen, scores_of_row + columns, 0.f);
  }
  if (dnnl_sgemm('N', 'N', rows, width, columns, 1.f, scores, columns, static_cast<const float*>(place.value),
                 place.value_row, 0.f, out, place.out_row) != dnnl_success)
    return {Code::internal, "p v"};
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; ++i)
      out[row * place.out_row + i] /= divisorOf(sum_of_row[row]);
  return {};
}

// With a block's queries and the keys and values of a head as f32, which are few beside the scores.
Status Attention::runWidened(const Place& place, float* scratch) const {
  const int64_t all = desc_.key.sizes[2], depth = desc_.query.sizes[3], width = desc_.value.sizes[3];
  const int64_t keys = desc_.causal ? std::min(all, place.first + place.rows) : all;  // that some row sees
  float* next = scratch + rows_ * all;
  auto widened = [&](const void* from, int64_t from_row, int64_t rows, int64_t columns) {
    float* to = next;
    for (int64_t row = 0; row < rows; ++row, next += columns)
      std::copy_n(static_cast<const __bf16*>(from) + row * from_row, columns, next);
    return to;
  };
  Place wide = place;
  wide.query = widened(place.query, place.query_row, place.rows, depth);
  wide.key = widened(place.key, place.key_row, keys, depth);
  wide.value = widened(place.value, place.value_row, keys, width);
  wide.out = next;
  wide.query_row = wide.key_row = depth;
  wide.value_row = wide.out_row = width;
  ZEFUSE_RETURN_IF_ERROR(runBlock(wide, scratch));
  for (int64_t row = 0; row < place.rows; ++row, next += width)
    std::transform(next, next + width, static_cast<__bf16*>(place.out) + row * place.out_row, toBf16);
  return {};
}

}  // namespace zefuse::primitives
