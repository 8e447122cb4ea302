#include "runtime/primitives/attention/attention_gradient.h"

#include <algorithm>
#include <atomic>
#include <dnnl.h>
#include <functional>
#include <utility>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/attention/attention_operands.h"
#include "runtime/primitives/core/scratch_parts.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/core/tensor_desc.h"
#include "runtime/primitives/simd/amx_tiles.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/primitives/simd/panel_block.h"
#include "runtime/primitives/simd/row_softmax.h"

namespace zefuse::primitives {

namespace {

// Runs, of all heads together, so that many threads have work.
constexpr int64_t wanted_units = 64;

int64_t ceilDiv(int64_t count, int64_t by) { return (count + by - 1) / by; }

// Of 300 two of 160 and 140, not of 256 and 44: a small product takes more time for each of its numbers.
int64_t sizeOfBlock(int64_t count) {
  const int64_t blocks = std::max<int64_t>(ceilDiv(count, most_of_block), 1);
  return std::max<int64_t>(ceilDiv(ceilDiv(count, blocks), 16) * 16, 16);
}

bool wanted(const TensorDesc& tensor) { return !tensor.sizes.empty(); }

float sumOf(const void* data, const TensorDesc& tensor, int64_t batch, int64_t head, int64_t row) {
  return *reinterpret_cast<const float*>(addressOf(data, tensor, batch, head, row));
}

Status check(const AttentionGradientDesc& desc) {
  const std::string what = toString(desc);
  for (const TensorDesc* tensor : {&desc.query, &desc.key, &desc.value, &desc.gradient})
    ZEFUSE_RETURN_IF_ERROR(checkOperand(*tensor, desc.query.dtype, what));
  ZEFUSE_RETURN_IF_ERROR(checkSizes(desc.query, desc.key, desc.value, desc.gradient, what));
  ZEFUSE_RETURN_IF_ERROR(checkSums(desc.log_sums, desc.query, what));
  ZEFUSE_RETURN_IF_ERROR(checkSums(desc.row_sums, desc.query, what));
  for (auto [result, like] : {std::pair(&desc.query_gradient, &desc.query), std::pair(&desc.key_gradient, &desc.key),
                              std::pair(&desc.value_gradient, &desc.value)}) {
    if (!wanted(*result))
      continue;
    ZEFUSE_RETURN_IF_ERROR(checkOperand(*result, desc.query.dtype, what));
    if (result->sizes != like->sizes)
      return {Code::invalid_argument, what + ": has a gradient of other sizes than its operand"};
  }
  return {};
}

}  // namespace

std::string toString(const AttentionGradientDesc& desc) {
  std::string text = "attention's gradient " + toString(desc.query) + ", " + toString(desc.key) + ", " +
                     toString(desc.value) + ", " + toString(desc.gradient) + " ->";
  for (const TensorDesc* result : {&desc.query_gradient, &desc.key_gradient, &desc.value_gradient})
    text += " " + (wanted(*result) ? toString(*result) : "none");
  return text + (desc.causal ? ", causal" : "");
}

Result<std::shared_ptr<const AttentionGradient>> AttentionGradient::get(const AttentionGradientDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(check(desc));
  return std::shared_ptr<const AttentionGradient>(std::make_shared<AttentionGradient>(desc));
}

AttentionGradient::AttentionGradient(const AttentionGradientDesc& desc) : desc_(desc), threads_(maxThreads()) {
  keys_ = sizeOfBlock(desc.key.sizes[2]);
  rows_ = sizeOfBlock(desc.query.sizes[2]);
  key_blocks_ = ceilDiv(desc.key.sizes[2], keys_);
  const int64_t heads = std::max<int64_t>(desc.key.sizes[0] * desc.key.sizes[1], 1);
  blocks_a_run_ = std::max<int64_t>(key_blocks_ * heads / wanted_units, 1);
  runs_ = ceilDiv(key_blocks_, blocks_a_run_);
  if (isNarrow() && tilesAvailable())
    tiled_ = TiledAttentionGradient{rows_, keys_, desc.query.sizes[3], desc.value.sizes[3]};
  else
    panels_ = panelBlockLevel();
  implementation_ = tiled_ ? "products in tiles by blocks of scores"
                           : std::string(panels_ ? "panels" : "sgemm") + " by blocks of scores";
  if (isNarrow() && !tiled_)
    implementation_ += "; widens bf16";
}

//===-- memory -------------------------------------------------------------------------------===//

struct AttentionGradient::Call {
  const void *query, *key, *value, *gradient, *log_sums, *row_sums;
  void *query_gradient, *key_gradient, *value_gradient;
  float* queries;  // [runs, B, H, S, D], where they are gathered
};

struct AttentionGradient::Parts {
  float *scores, *of_scores;
  // Of bf16 alone:
  float *key, *value, *query, *gradient, *of_key, *of_value;
  // For products in panels alone: keys and values as columns of right sides, keys as rows; queries and gradients as
  // columns of left sides, and as rows of right ones.
  float *key_columns, *value_columns, *key_rows, *query_columns, *gradient_columns, *query_rows, *gradient_rows;
  size_t bytes;

  Parts(const AttentionGradientDesc& desc, const PanelBlockLevel* panels, void* scratch) {
    ScratchParts parts{scratch};
    auto take = [&](int64_t rows, int64_t columns) {
      float* part;
      parts(part, (rows * columns + 15) / 16 * 16);
      return part;
    };
    const int64_t narrow = desc.query.dtype == plan::DType::bf16, depth = narrow * desc.query.sizes[3],
                  width = narrow * desc.value.sizes[3], rows_of_block = sizeOfBlock(desc.query.sizes[2]),
                  keys_of_block = sizeOfBlock(desc.key.sizes[2]);
    const int64_t line = panels ? block_line : keys_of_block;
    scores = take(rows_of_block, line);
    of_scores = take(rows_of_block, line);
    key = take(keys_of_block, depth);
    value = take(keys_of_block, width);
    query = take(rows_of_block, depth);
    gradient = take(rows_of_block, width);
    of_key = take(keys_of_block, depth);
    of_value = take(keys_of_block, width);
    if (panels) {
      const int64_t all = desc.query.sizes[3], all_width = desc.value.sizes[3];
      key_columns = take(panels->padded(keys_of_block), all);
      value_columns = take(panels->padded(keys_of_block), all_width);
      key_rows = take(keys_of_block, panels->padded(all));
      query_columns = take(all, block_line);
      gradient_columns = take(all_width, block_line);
      query_rows = take(rows_of_block, panels->padded(all));
      gradient_rows = take(rows_of_block, panels->padded(all_width));
    }
    bytes = parts.bytes;
  }
};

bool AttentionGradient::isNarrow() const { return desc_.query.dtype == plan::DType::bf16; }

bool AttentionGradient::gathers() const { return wanted(desc_.query_gradient) && (runs_ > 1 || isNarrow()); }

size_t AttentionGradient::scratchOfThread() const {
  return tiled_ ? tiled_->scratchBytes() : Parts(desc_, panels_, nullptr).bytes;
}

size_t AttentionGradient::scratchOfQueries() const {
  const auto& q = desc_.query.sizes;
  return gathers() ? size_t((runs_ * q[0] * q[1] * q[2] * q[3] + 15) / 16 * 16) * sizeof(float) : 0;
}

size_t AttentionGradient::scratchBytes() const { return scratchOfQueries() + size_t(threads_) * scratchOfThread(); }

//===-- run ----------------------------------------------------------------------------------===//

Status AttentionGradient::run(const Arguments& arguments) const {
  const auto operands = arguments.operands;
  const auto results = arguments.results;
  const Call call{operands[0], operands[1], operands[2], operands[3], operands[4],
                  operands[5], results[0],  results[1],  results[2],  static_cast<float*>(arguments.scratch)};
  auto* scratch = static_cast<std::byte*>(arguments.scratch) + scratchOfQueries();
  std::atomic<bool> failed{false};
  const int64_t units = desc_.key.sizes[0] * desc_.key.sizes[1] * runs_;
  overTeamWithScratch(units, scratch, scratchOfThread(), threads_, [&](int64_t begin, int64_t end, std::byte* mine) {
    for (int64_t unit = begin; unit < end; ++unit)
      if (tiled_)
        runTiledUnit(call, unit, mine);
      else if (!runUnit(call, unit, Parts(desc_, panels_, mine)).ok())
        failed = true;
  });
  if (failed)
    return {Code::internal, toString(desc_) + ": oneDNN's sgemm failed"};
  if (wanted(desc_.query_gradient) && (gathers() || runs_ == 0)) {
    const int64_t heads = desc_.query.sizes[1], blocks = ceilDiv(desc_.query.sizes[2], rows_);
    overTeam(desc_.query.sizes[0] * heads * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        sumRuns(call, i / blocks / heads, i / blocks % heads, i % blocks * rows_);
    });
  }
  return {};
}

// to [m, n] = factor * left @ right + kept * to; T stands for a transposed operand.
bool AttentionGradient::product(char left_form, char right_form, int64_t m, int64_t n, int64_t k, float factor,
                                Rows left, Rows right, float kept, Rows to) {
  return dnnl_sgemm(left_form, right_form, m, n, k, factor, left.data, left.row, right.data, right.row, kept, to.data,
                    to.row) == dnnl_success;
}

// Of one block of keys, as f32; no data: nobody asks for it.
struct AttentionGradient::Keys {
  int64_t batch, head, first, count;
  bool first_of_run;
  Rows key, value, of_key, of_value;
};

AttentionGradient::Rows AttentionGradient::rowsOf(const void* data, const TensorDesc& tensor, int64_t batch,
                                                  int64_t head, int64_t first, float* copy) const {
  if (!wanted(tensor))
    return {nullptr, 0};
  if (isNarrow())
    return {copy, tensor.sizes[3]};
  return {reinterpret_cast<float*>(const_cast<std::byte*>(addressOf(data, tensor, batch, head, first))),
          leading(tensor)};
}

AttentionGradient::Rows AttentionGradient::read(const void* data, const TensorDesc& tensor, int64_t batch, int64_t head,
                                                int64_t first, int64_t count, float* copy) const {
  if (isNarrow())
    for (int64_t row = 0; row < count; ++row)
      std::copy_n(reinterpret_cast<const __bf16*>(addressOf(data, tensor, batch, head, first + row)), tensor.sizes[3],
                  copy + row * tensor.sizes[3]);
  return rowsOf(data, tensor, batch, head, first, copy);
}

void AttentionGradient::write(Rows from, int64_t count, void* data, const TensorDesc& tensor, int64_t batch,
                              int64_t head, int64_t first) const {
  if (!wanted(tensor) || !isNarrow())
    return;
  for (int64_t row = 0; row < count; ++row)
    std::transform(from.data + row * from.row, from.data + row * from.row + tensor.sizes[3],
                   reinterpret_cast<__bf16*>(const_cast<std::byte*>(addressOf(data, tensor, batch, head, first + row))),
                   toBf16);
}

Status AttentionGradient::runUnit(const Call& call, int64_t unit, const Parts& parts) const {
  const int64_t key_heads = desc_.key.sizes[1], shared = desc_.query.sizes[1] / key_heads, run = unit % runs_;
  const int64_t batch = unit / runs_ / key_heads, key_head = unit / runs_ % key_heads;
  for (int64_t block = run * blocks_a_run_; block < std::min((run + 1) * blocks_a_run_, key_blocks_); ++block) {
    const int64_t first = block * keys_, count = std::min(keys_, desc_.key.sizes[2] - first);
    const Keys keys{batch,
                    key_head,
                    first,
                    count,
                    block == run * blocks_a_run_,
                    read(call.key, desc_.key, batch, key_head, first, count, parts.key),
                    read(call.value, desc_.value, batch, key_head, first, count, parts.value),
                    rowsOf(call.key_gradient, desc_.key_gradient, batch, key_head, first, parts.of_key),
                    rowsOf(call.value_gradient, desc_.value_gradient, batch, key_head, first, parts.of_value)};
    for (const auto& [sums, width] :
         {std::pair(keys.of_key, desc_.key.sizes[3]), std::pair(keys.of_value, desc_.value.sizes[3])})
      for (int64_t row = 0; sums.data && row < count; ++row)
        std::fill_n(sums.data + row * sums.row, width, 0.f);
    if (panels_) {
      panels_->packLines(keys.key.data, keys.key.row, count, desc_.key.sizes[3], parts.key_columns);
      panels_->packLines(keys.value.data, keys.value.row, count, desc_.value.sizes[3], parts.value_columns);
      if (wanted(desc_.query_gradient))
        panels_->packRows(keys.key.data, keys.key.row, count, desc_.key.sizes[3], parts.key_rows);
    }
    for (int64_t head = key_head * shared; head < (key_head + 1) * shared; ++head)
      for (int64_t row = desc_.causal ? first / rows_ * rows_ : 0; row < desc_.query.sizes[2]; row += rows_)
        ZEFUSE_RETURN_IF_ERROR(runBlock(call, keys, parts, run, head, row));
    write(keys.of_key, count, call.key_gradient, desc_.key_gradient, batch, key_head, first);
    write(keys.of_value, count, call.value_gradient, desc_.value_gradient, batch, key_head, first);
  }
  return {};
}

Status AttentionGradient::runBlock(const Call& call, const Keys& keys, const Parts& parts, int64_t run, int64_t head,
                                   int64_t first) const {
  const int64_t rows = desc_.query.sizes[2], depth = desc_.query.sizes[3], width = desc_.value.sizes[3];
  const int64_t count = std::min(rows_, rows - first);
  const int64_t seen = desc_.causal ? std::min(keys.count, first + count - keys.first) : keys.count;
  if (seen <= 0)
    return {};
  const Rows query = read(call.query, desc_.query, keys.batch, head, first, count, parts.query);
  const Rows gradient = read(call.gradient, desc_.gradient, keys.batch, head, first, count, parts.gradient);
  const int64_t line = panels_ ? block_line : keys_;
  const Rows scores{parts.scores, line}, of_scores{parts.of_scores, line};
  bool ok = true;
  if (panels_) {
    panels_->transpose(query.data, query.row, count, depth, parts.query_columns);
    panels_->transpose(gradient.data, gradient.row, count, width, parts.gradient_columns);
    panels_->multiply(true, count, seen, depth, parts.query_columns, parts.key_columns, depth * panels_->columns,
                      {scores.data, line, desc_.scale, false, true});
    panels_->multiply(true, count, seen, width, parts.gradient_columns, parts.value_columns, width * panels_->columns,
                      {of_scores.data, line, 1, false, true});
  } else {
    ok = product('N', 'T', count, seen, depth, desc_.scale, query, keys.key, 0, scores) &&
         product('N', 'T', count, seen, width, 1, gradient, keys.value, 0, of_scores);
  }
  for (int64_t row = 0; row < count; ++row) {
    float *weights = scores.data + row * scores.row, *of_weights = of_scores.data + row * of_scores.row;
    const int64_t there = desc_.causal ? std::clamp<int64_t>(first + row + 1 - keys.first, 0, seen) : seen;
    softmaxGradient(weights, of_weights, there, sumOf(call.log_sums, desc_.log_sums, keys.batch, head, first + row),
                    sumOf(call.row_sums, desc_.row_sums, keys.batch, head, first + row));
    std::fill(weights + there, weights + seen, 0.f);
    std::fill(of_weights + there, of_weights + seen, 0.f);
  }
  const Rows of_query = !wanted(desc_.query_gradient) ? Rows{}
                        : gathers() ? Rows{gathered(call, run, keys.batch, head, first), depth}
                                    : rowsOf(call.query_gradient, desc_.query_gradient, keys.batch, head, first, {});
  // Every row of the block sees the run's first block of keys, if it sees any of them.
  const bool adds = !keys.first_of_run;
  if (panels_) {
    const int64_t step = count * panels_->columns;
    if (keys.of_value.data) {
      panels_->packRows(gradient.data, gradient.row, count, width, parts.gradient_rows);
      panels_->multiply(true, seen, width, count, scores.data, parts.gradient_rows, step,
                        {keys.of_value.data, keys.of_value.row, 1, true, false});
    }
    if (keys.of_key.data) {
      panels_->packRows(query.data, query.row, count, depth, parts.query_rows);
      panels_->multiply(true, seen, depth, count, of_scores.data, parts.query_rows, step,
                        {keys.of_key.data, keys.of_key.row, desc_.scale, true, false});
    }
    if (of_query.data)
      panels_->multiply(false, count, depth, seen, of_scores.data, parts.key_rows, keys.count * panels_->columns,
                        {of_query.data, of_query.row, desc_.scale, adds, false});
    return {};
  }
  if (keys.of_value.data)
    ok = ok && product('T', 'N', seen, width, count, 1, scores, gradient, 1, keys.of_value);
  if (keys.of_key.data)
    ok = ok && product('T', 'N', seen, depth, count, desc_.scale, of_scores, query, 1, keys.of_key);
  if (of_query.data)
    ok = ok && product('N', 'N', count, depth, seen, desc_.scale, of_scores, keys.key, adds, of_query);
  return ok ? Status() : Status(Code::internal, "a product failed");
}

void AttentionGradient::runTiledUnit(const Call& call, int64_t unit, void* scratch) const {
  const int64_t key_heads = desc_.key.sizes[1], shared = desc_.query.sizes[1] / key_heads, run = unit % runs_;
  const int64_t batch = unit / runs_ / key_heads, key_head = unit / runs_ % key_heads, all = desc_.query.sizes[2];
  auto narrow = [](const void* data, const TensorDesc& tensor, int64_t of, int64_t head, int64_t row) {
    return reinterpret_cast<const __bf16*>(addressOf(data, tensor, of, head, row));
  };
  auto result = [&](void* data, const TensorDesc& tensor, int64_t row) {
    return wanted(tensor) ? const_cast<__bf16*>(narrow(data, tensor, batch, key_head, row)) : nullptr;
  };
  auto leadingOf = [](const TensorDesc& tensor) { return wanted(tensor) ? leading(tensor) : 0; };
  auto sums = [&](const void* data, const TensorDesc& tensor, int64_t head, int64_t row) {
    return reinterpret_cast<const float*>(addressOf(data, tensor, batch, head, row));
  };
  for (int64_t block = run * blocks_a_run_; block < std::min((run + 1) * blocks_a_run_, key_blocks_); ++block) {
    const int64_t first = block * keys_, count = std::min(keys_, desc_.key.sizes[2] - first);
    tiled_->begin(narrow(call.key, desc_.key, batch, key_head, first), leading(desc_.key),
                  narrow(call.value, desc_.value, batch, key_head, first), leading(desc_.value), count, scratch);
    for (int64_t head = key_head * shared; head < (key_head + 1) * shared; ++head)
      for (int64_t row = desc_.causal ? first / rows_ * rows_ : 0; row < all; row += rows_) {
        const int64_t there = std::min(rows_, all - row);
        if (desc_.causal && row + there <= first)
          continue;
        const TiledAttentionGradient::Rows rows{there,
                                                row - first,
                                                narrow(call.query, desc_.query, batch, head, row),
                                                narrow(call.gradient, desc_.gradient, batch, head, row),
                                                leading(desc_.query),
                                                leading(desc_.gradient),
                                                sums(call.log_sums, desc_.log_sums, head, row),
                                                sums(call.row_sums, desc_.row_sums, head, row),
                                                desc_.log_sums.strides[2],
                                                desc_.row_sums.strides[2],
                                                wanted(desc_.query_gradient) ? gathered(call, run, batch, head, row)
                                                                             : nullptr,
                                                block != run * blocks_a_run_};
        tiled_->add(rows, count, desc_.scale, desc_.causal, wanted(desc_.key_gradient), wanted(desc_.value_gradient),
                    scratch);
      }
    tiled_->end(result(call.key_gradient, desc_.key_gradient, first), leadingOf(desc_.key_gradient),
                result(call.value_gradient, desc_.value_gradient, first), leadingOf(desc_.value_gradient), count,
                scratch);
  }
}

float* AttentionGradient::gathered(const Call& call, int64_t run, int64_t batch, int64_t head, int64_t row) const {
  const auto& q = desc_.query.sizes;
  return call.queries + (((run * q[0] + batch) * q[1] + head) * q[2] + row) * q[3];
}

void AttentionGradient::sumRuns(const Call& call, int64_t batch, int64_t head, int64_t first) const {
  const int64_t depth = desc_.query.sizes[3], count = std::min(rows_, desc_.query.sizes[2] - first);
  // Of causal attention, those whose keys some row of the block sees.
  const int64_t of_run = blocks_a_run_ * keys_;
  const int64_t runs = desc_.causal ? std::min(runs_, ceilDiv(first + count, of_run)) : runs_;
  std::vector<float> sums(static_cast<size_t>(depth));
  for (int64_t row = first; row < first + count; ++row) {
    std::ranges::fill(sums, 0.f);
    for (int64_t run = 0; run < runs; ++run)
      std::transform(sums.begin(), sums.end(), gathered(call, run, batch, head, row), sums.begin(), std::plus());
    auto* to = const_cast<std::byte*>(addressOf(call.query_gradient, desc_.query_gradient, batch, head, row));
    if (isNarrow())
      std::ranges::transform(sums, reinterpret_cast<__bf16*>(to), toBf16);
    else
      std::ranges::copy(sums, reinterpret_cast<float*>(to));
  }
}

}  // namespace zefuse::primitives
