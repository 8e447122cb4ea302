#include "runtime/primitives/matmul/tiled_matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/engine.h"
#include "runtime/primitives/core/scratch_parts.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/matmul/descriptor.h"
#include "runtime/primitives/matmul/matmul_tail.h"
#include "runtime/primitives/matmul/tile_panels.h"

namespace zefuse::primitives {

namespace {

using plan::DType;
using plan::LibraryWay;

// Of both sides so much depth is laid out at a time that panels of it and the task's size, and its sums if there is
// more depth, stay in the second-level cache.
constexpr double most_bytes = 1.7e6;
constexpr int64_t depths[] = {256, 512, 1024};
// Of long sums and few of them, slices of this depth are tasks of their own.
constexpr int64_t least_slice = 2048, most_slices = 16, few_sums = 1 << 17;

// One thread of a Xeon with AMX (family 6, model 167), by tests/bench/primitives/tiles.py.
constexpr double products_a_nanosecond = 1000, lay_out = 0.06, stored = 0.08, keep = 0.04, of_task = 300;

int64_t quotientUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t padded(int64_t columns) { return toBlocks(columns) + 16; }  // rows of no multiple of a page

// A thread's parts of the scratch memory.
struct Panels {
  __bf16 *left, *right;
  float* sums;
  size_t bytes;

  Panels(int64_t rows, int64_t columns, int64_t deep, bool sums_wanted, void* scratch) {
    ScratchParts take{scratch};
    take(left, rows * deep);
    take(right, columns * deep);
    take(sums, sums_wanted ? rows * padded(columns) : 0);
    bytes = take.bytes;
  }
};

// 32 numbers, of bf16 a line of the cache.
ZEFUSE_TILES void store32(float* to, __m512 low, __m512 high, __mmask32 there) {
  _mm512_mask_storeu_ps(to, __mmask16(there), low);
  _mm512_mask_storeu_ps(to + 16, __mmask16(there >> 16), high);
}
ZEFUSE_TILES void store32(__bf16* to, __m512 low, __m512 high, __mmask32 there) {
  _mm512_mask_storeu_epi16(to, there, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

// What becomes of sums: out = alpha * sums + bias.
struct Ending {
  float alpha;
  const void* bias;  // a value for each column, or nullptr
  bool wide_bias;

  ZEFUSE_TILES __m512 biasOf(int64_t column, __mmask16 there) const {
    if (!bias)
      return _mm512_setzero_ps();
    if (wide_bias)
      return _mm512_maskz_loadu_ps(there, static_cast<const float*>(bias) + column);
    const __m256i narrow = _mm256_maskz_loadu_epi16(there, static_cast<const uint16_t*>(bias) + column);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
  }

  // Of sums whole tiles are read. `column`: where in the bias `out` begins.
  template <typename To>
  ZEFUSE_TILES void operator()(const float* sums, int64_t sums_row, int64_t rows, int64_t columns, int64_t column,
                               To* out, int64_t out_row) const {
    const __m512 factor = _mm512_set1_ps(alpha);
    for (int64_t n = 0; n < columns; n += tile_block) {
      const __mmask32 there = firstOf32(columns - n);
      const __m512 low_bias = biasOf(column + n, __mmask16(there)),
                   high_bias = biasOf(column + n + 16, __mmask16(there >> 16));
      for (int64_t i = 0; i < rows; ++i) {
        const float* row = sums + i * sums_row + n;
        __m512 low = _mm512_loadu_ps(row), high = columns - n > 16 ? _mm512_loadu_ps(row + 16) : _mm512_setzero_ps();
        if (alpha != 1) {
          low = _mm512_mul_ps(low, factor);
          high = _mm512_mul_ps(high, factor);
        }
        if (bias) {
          low = _mm512_add_ps(low, low_bias);
          high = _mm512_add_ps(high, high_bias);
        }
        store32(out + i * out_row + n, low, high, there);
      }
    }
  }
};

// Part of an operand that becomes a panel: `count` rows of the left side, or columns of the right one, `depth` long.
template <typename T> struct Source {
  const T* from;
  bool along;
  int64_t stride, count, depth;

  Source(const void* operand, int64_t offset, bool is_along, int64_t line, int64_t first, int64_t how_many, int64_t k,
         int64_t deep)
      : from(static_cast<const T*>(operand) + offset + first * (is_along ? line : 1) + k * (is_along ? 1 : line)),
        along(is_along), stride(line), count(how_many), depth(deep) {}

  template <Side side> ZEFUSE_TILES void pack(__bf16* to) const {
    if (along)
      packPanel<side, Contiguous::along>(from, stride, count, depth, to);
    else
      packPanel<side, Contiguous::across>(from, stride, count, depth, to);
  }
};

ZEFUSE_TILES void multiply(bool high, bool wide, const __bf16* left, const __bf16* right, int64_t tiles,
                           const float* before, int64_t before_row, float* after, int64_t after_row) {
  if (high && wide)
    multiplyStrips<2, 2>(left, right, tiles, before, before_row, after, after_row);
  else if (high)
    multiplyStrips<2, 1>(left, right, tiles, before, before_row, after, after_row);
  else if (wide)
    multiplyStrips<1, 2>(left, right, tiles, before, before_row, after, after_row);
  else
    multiplyStrips<1, 1>(left, right, tiles, before, before_row, after, after_row);
}

}  // namespace

TiledMatmul::TiledMatmul(const MatmulDesc& desc, int threads)
    : text_(toString(desc)), wide_(desc.a.dtype == DType::f32), wide_out_(desc.out.dtype == DType::f32),
      alpha_(desc.alpha), wide_bias_(desc.bias && desc.bias->dtype == DType::f32), threads_(threads) {
  const size_t rank = desc.out.sizes.size(), row = rank - 2, column = rank - 1;
  auto batch = [&](const TensorDesc& tensor) {
    std::vector<int64_t> strides;
    for (size_t d = 0; d < row; ++d)
      strides.push_back(tensor.sizes[d] == 1 ? 0 : tensor.strides[d]);
    return strides;
  };
  auto left = [&](const TensorDesc& tensor) {  // of sums along the columns
    const bool along = tensor.strides[column] == 1;
    return View{along, tensor.strides[along ? row : column], batch(tensor)};
  };
  auto right = [&](const TensorDesc& tensor) {
    const bool along = tensor.strides[column] != 1;
    return View{along, tensor.strides[along ? column : row], batch(tensor)};
  };
  a_ = left(desc.a);
  b_ = right(desc.b);
  batch_sizes_.assign(desc.out.sizes.begin(), desc.out.sizes.end() - 2);
  batches_ = elements(batch_sizes_);
  rows_ = desc.out.sizes[row];
  columns_ = desc.out.sizes[column];
  depth_ = desc.a.sizes[column];
  out_row_ = desc.out.strides[row];
  out_batch_ = batch(desc.out);
  if (batches_ * rows_ * columns_ <= few_sums)
    slices_ = std::clamp<int64_t>(depth_ / least_slice, 1, most_slices);
  slice_depth_ = toBlocks(quotientUp(depth_, slices_));
  slices_ = quotientUp(depth_, slice_depth_);
  split(threads);
  implementation_ = "tiles:amx_bf16";
}

// How long tasks of that size take together, and infinity where they do not fit in the cache.
double TiledMatmul::nanoseconds(int64_t rows, int64_t columns, int64_t deep, int threads) const {
  const double count = double(batches_ * slices_ * quotientUp(rows_, rows) * quotientUp(columns_, columns));
  const double depth = double(slice_depth_), r = double(rows), c = double(columns);
  const double kept = double(quotientUp(slice_depth_, deep) - 1);
  const double bytes = (r + c) * double(deep) * 2 + (kept > 0 ? r * c * 4 : 0);
  if (bytes > most_bytes)
    return std::numeric_limits<double>::infinity();
  return std::ceil(count / threads) *
         (r * c * depth / products_a_nanosecond + (r + c) * depth * lay_out + r * c * (stored + kept * keep) + of_task);
}

void TiledMatmul::split(int threads) {
  nanoseconds_ = std::numeric_limits<double>::infinity();
  auto tryParts = [&](int64_t row_parts, int64_t column_parts) {
    const int64_t rows = toBlocks(quotientUp(rows_, row_parts)), columns = toBlocks(quotientUp(columns_, column_parts));
    for (const int64_t each : depths) {
      const int64_t deep = std::min(each, slice_depth_);
      const double time = nanoseconds(rows, columns, deep, threads);
      if (time < nanoseconds_) {
        nanoseconds_ = time;
        task_rows_ = rows;
        task_columns_ = columns;
        panel_depth_ = deep;
      }
    }
  };
  // Parts of at most 1024. A quarter of that fits in any case.
  constexpr int64_t most = 1024;
  auto first = [](int64_t size) { return quotientUp(size, most); };
  auto last = [&](int64_t size) {
    return std::min(quotientUp(size, tile_block), std::max(first(size) + 31, first(size) * 4));
  };
  for (int64_t m = first(rows_); m <= last(rows_); ++m)
    for (int64_t n = first(columns_); n <= last(columns_); ++n)
      tryParts(m, n);
  row_parts_ = quotientUp(rows_, task_rows_);
  column_parts_ = quotientUp(columns_, task_columns_);
}

TiledMatmul::Task TiledMatmul::task(int64_t index) const {
  Task task;
  task.column = index % column_parts_ * task_columns_;
  index /= column_parts_;
  task.row = index % row_parts_ * task_rows_;
  index /= row_parts_;
  task.slice = index % slices_;
  task.batch = index / slices_;
  return task;
}

int64_t TiledMatmul::offset(const std::vector<int64_t>& strides, int64_t batch) const {
  int64_t result = 0;
  for (size_t d = strides.size(); d-- > 0; batch /= batch_sizes_[d])
    result += batch % batch_sizes_[d] * strides[d];
  return result;
}

size_t TiledMatmul::threadBytes() const {
  return (Panels(task_rows_, task_columns_, panel_depth_, keepsSums(), nullptr).bytes + 63) & ~size_t(63);
}

int64_t TiledMatmul::partialNumbers() const { return slices_ == 1 ? 0 : toBlocks(rows_) * padded(columns_); }

float* TiledMatmul::partials(void* scratch) const {
  return reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + size_t(threads_) * threadBytes());
}

size_t TiledMatmul::scratchBytes() const {
  return size_t(threads_) * threadBytes() + size_t(slices_ * batches_ * partialNumbers()) * sizeof(float);
}

template <typename From, typename To>
void TiledMatmul::runTasks(const Primitive::Arguments& arguments, int64_t begin, int64_t end,
                           std::byte* scratch) const {
  const Panels panels(task_rows_, task_columns_, panel_depth_, keepsSums(), scratch);
  auto* partial = partials(arguments.scratch);
  const Ending ending{alpha_, arguments.bias, wide_bias_};
  const int64_t chunks = quotientUp(slice_depth_, panel_depth_);
  auto sources = [&](int64_t step) {
    const Task at = task(step / chunks);
    const int64_t k = at.slice * slice_depth_ + step % chunks * panel_depth_;
    const int64_t depth = std::min({panel_depth_, depth_ - k, at.slice * slice_depth_ + slice_depth_ - k});
    return std::pair(Source<From>(arguments.a, offset(a_.batch, at.batch), a_.along, a_.stride, at.row,
                                  std::min(task_rows_, rows_ - at.row), k, depth),
                     Source<From>(arguments.b, offset(b_.batch, at.batch), b_.along, b_.stride, at.column,
                                  std::min(task_columns_, columns_ - at.column), k, depth));
  };
  alignas(64) float block[tile_block * tile_block];
  configureTiles(tile_rows, 0);
  for (int64_t step = begin * chunks; step < end * chunks; ++step) {
    const auto [left, right] = sources(step);
    if (left.depth <= 0)  // the last slice may be shorter
      continue;
    const Task at = task(step / chunks);
    const bool begins = step % chunks == 0, ends = slices_ == 1 && step % chunks == chunks - 1;
    const int64_t tiles = quotientUp(left.depth, tile_depth);
    left.template pack<Side::left>(panels.left);
    right.template pack<Side::right>(panels.right);
    float* sums = slices_ == 1 ? panels.sums
                               : partial + (at.slice * batches_ + at.batch) * partialNumbers() +
                                     at.row * padded(columns_) + at.column;
    const int64_t sums_row = slices_ == 1 ? padded(task_columns_) : padded(columns_);
    To* out = static_cast<To*>(arguments.out) + offset(out_batch_, at.batch) + at.row * out_row_ + at.column;
    // A strip of the left side stays in the first-level cache while the right side passes by, and out is written along
    // its rows: down its columns a page a row took up to twice as long.
    for (int64_t m = 0; m < left.count; m += tile_block)
      for (int64_t n = 0; n < right.count; n += tile_block) {
        float* here = sums + m * sums_row + n;
        To* there = out + m * out_row_ + n;
        const int64_t high = std::min(tile_block, left.count - m), wide = std::min(tile_block, right.count - n);
        multiply(high > tile_rows, wide > 16, panels.left + m * tiles * tile_depth,
                 panels.right + n * tiles * tile_depth, tiles, begins ? nullptr : here, sums_row, ends ? block : here,
                 ends ? tile_block : sums_row);
        if (ends)
          ending(block, tile_block, high, wide, at.column + n, there, out_row_);
      }
  }
  releaseTiles();
}

// Slices' sums, always in the same order.
template <typename To> void TiledMatmul::addSlices(const Primitive::Arguments& arguments) const {
  auto* partial = partials(arguments.scratch);
  const Ending ending{alpha_, arguments.bias, wide_bias_};
  const int64_t row = padded(columns_), slice = batches_ * partialNumbers();
  overTeam(batches_ * rows_, std::max<int64_t>(1, 16384 / columns_), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / rows_, m = i % rows_;
      float* sums = partial + batch * partialNumbers() + m * row;
      for (int64_t s = 1; s < slices_; ++s)
        for (int64_t n = 0; n < columns_; ++n)
          sums[n] += sums[s * slice + n];
      ending(sums, row, 1, columns_, 0, static_cast<To*>(arguments.out) + offset(out_batch_, batch) + m * out_row_,
             out_row_);
    }
  });
}

template <typename From, typename To> void TiledMatmul::runAs(const Primitive::Arguments& arguments) const {
  overTeamWithScratch(
      tasks(), arguments.scratch, threadBytes(), threads_,
      [&](int64_t begin, int64_t end, std::byte* scratch) { runTasks<From, To>(arguments, begin, end, scratch); });
  if (slices_ > 1)
    addSlices<To>(arguments);
}

Status TiledMatmul::run(const Primitive::Arguments& arguments) const {
  const OneThread alone(threads_ == 1);
  return guarded(text_, [&] {
    if (wide_)
      runAs<float, float>(arguments);
    else if (wide_out_)
      runAs<__bf16, float>(arguments);
    else
      runAs<__bf16, __bf16>(arguments);
    return Status();
  });
}

namespace {

// Where sums of a left side lie across its lines, as in a weight's gradient, x^T dy: oneDNN 3.2 copies it slowly, and
// the more rows x has the more so. As it lies along them oneDNN is as quick or quicker; and sums of fewer than four
// terms would mostly be a tile's zeros.
bool gains(const MatmulDesc& desc) {
  constexpr int64_t least_depth = 4;
  const std::vector<int64_t>& strides = desc.a.strides;
  return strides.back() != 1 && strides[strides.size() - 2] == 1 && desc.a.sizes.back() >= least_depth;
}

// What the loops take.
bool takesTiles(const MatmulDesc& desc) {
  const bool narrow = desc.a.dtype == DType::bf16,
             rounded = desc.a.dtype == DType::f32 && desc.fpmath == FpMath::bf16 && desc.out.dtype == DType::f32;
  if (!tilesAvailable() || desc.way != LibraryWay::automatic || desc.pack_b || !desc.post_ops.empty() ||
      !(narrow || rounded) || elements(desc.out.sizes) == 0)
    return false;
  if (desc.bias && (desc.bias->dtype == DType::f16 || !isColumnBias(desc)))
    return false;
  const std::vector<int64_t>& right = desc.b.strides;
  return (right.back() == 1 || right[right.size() - 2] == 1) && desc.out.strides.back() == 1;
}

}  // namespace

Result<std::shared_ptr<const Matmul>> TiledMatmul::build(const MatmulDesc& desc) {
  if (!takesTiles(desc) || !gains(desc))
    return std::shared_ptr<const Matmul>();
  auto tiled = std::shared_ptr<TiledMatmul>(new TiledMatmul(desc, 1));
  const int threads = maxThreads();
  if (threadsWorth(tiled->nanoseconds_, threads) > 1)
    tiled = std::shared_ptr<TiledMatmul>(new TiledMatmul(desc, threads));
  return std::shared_ptr<const Matmul>(std::move(tiled));
}

}  // namespace zefuse::primitives
