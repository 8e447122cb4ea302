#include "runtime/primitives/matmul/split_matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/matmul/descriptor.h"
#include "runtime/primitives/matmul/matmul_tail.h"
#include "runtime/primitives/matmul/split_blocks.h"

namespace zefuse::primitives {

using plan::LibraryWay;

namespace {

// Blocks of rows, or of columns, and steps of the depth whose parts a second-level cache holds while the others go by.
constexpr int64_t chunk = 8, most_panel = 4, piece = 16;

int64_t sizeAt(const TensorDesc& desc, size_t from_the_end) { return desc.sizes[desc.sizes.size() - from_the_end]; }
int64_t strideAt(const TensorDesc& desc, size_t from_the_end) {
  return desc.strides[desc.strides.size() - from_the_end];
}

bool takesSplits(const MatmulDesc& desc) {
  const size_t rank = desc.out.sizes.size();
  return rank <= 3 && endsInPlace(desc) && desc.fpmath == FpMath::strict && desc.alpha == 1.0f &&
         elements(desc.out.sizes) > 0 && desc.a.sizes.back() > 0 && !(desc.pack_b && rank == 3 && desc.b.sizes[0] != 1);
}

MatrixView viewOf(const TensorDesc& desc, const void* data, int64_t batch) {
  const int64_t offset = desc.sizes.size() == 3 && desc.sizes[0] > 1 ? batch * desc.strides[0] : 0;
  return {static_cast<const float*>(data) + offset, strideAt(desc, 2), strideAt(desc, 1), sizeAt(desc, 2),
          sizeAt(desc, 1)};
}

}  // namespace

// One call: where everything is.
struct SplitMatmul::Run {
  const void *a, *b;
  uint16_t* left;
  const uint16_t* right;  // packed
  const float* bias;
  float* out;
  uint8_t* plain;        // of each row of the left side, in whole blocks
  uint8_t* plain_right;  // of each matrix of the right side
  std::byte* scratch;
};

struct SplitMatmul::Block {
  int64_t batch, row, column;  // in blocks
  const uint16_t* right;       // from the step on
};

// A block's sums beyond the result's edges are computed beside it.
struct SplitMatmul::EdgeBlock {
  alignas(64) float sums[tile_block * tile_block];
  alignas(64) float bias[tile_block];
};

Result<std::shared_ptr<const Matmul>> SplitMatmul::build(const MatmulDesc& desc) {
  if (desc.way != LibraryWay::split || !tilesAvailable() || !takesSplits(desc))
    return std::shared_ptr<const Matmul>();
  auto self = std::shared_ptr<SplitMatmul>(new SplitMatmul(desc));
  Sequence& sequence = self->sequence_;
  const double products = double(self->batch_ * self->rows_ * self->columns_) * double(self->depth_);
  constexpr double products_per_nanosecond = 150;
  sequence.one_thread = threadsWorth(products / products_per_nanosecond, maxThreads()) == 1;
  if (!prepareTail(sequence, desc))
    return std::shared_ptr<const Matmul>();
  return std::shared_ptr<const Matmul>(std::move(self));
}

SplitMatmul::SplitMatmul(const MatmulDesc& desc) : Prepared(toString(desc)), desc_(desc) {
  const bool batched = desc.out.sizes.size() == 3;
  native_bias_ = isColumnBias(desc);
  batch_ = batched ? desc.out.sizes[0] : 1;
  left_batch_ = batched ? desc.a.sizes[0] : 1;
  rows_ = sizeAt(desc.out, 2);
  columns_ = sizeAt(desc.out, 1);
  depth_ = desc.a.sizes.back();
  steps_ = (depth_ + tile_depth - 1) / tile_depth;
  row_blocks_ = (rows_ + tile_block - 1) / tile_block;
  column_blocks_ = (columns_ + tile_block - 1) / tile_block;
  sequence_.implementation = "tiles of three bf16";
  threads_ = maxThreads();
  panel_ = std::clamp<int64_t>(batch_ * column_blocks_ / threads_, 1, most_panel);
  left_at_ = sequence_.reserve(size_t(left_batch_ * row_blocks_ * splitBlock(depth_)) * sizeof(uint16_t));
  right_at_ = desc.pack_b ? 0 : sequence_.reserve(panelBytes() * size_t(threads_));
  plain_at_ = sequence_.reserve(size_t(left_batch_ * row_blocks_ * tile_block + batch_));
}

// What a thread takes apart of a right side that is not packed.
size_t SplitMatmul::panelBytes() const {
  return size_t(panel_ * std::min(piece, steps_) * split_step) * sizeof(uint16_t);
}

// With a line behind it, for whether it must be multiplied as it is.
size_t SplitMatmul::packedBytes() const {
  return desc_.pack_b ? size_t(column_blocks_ * splitBlock(depth_)) * sizeof(uint16_t) + 64 : 0;
}

const uint16_t* SplitMatmul::leftOf(const Run& run, int64_t batch) const {
  return run.left + (left_batch_ > 1 ? batch : 0) * row_blocks_ * splitBlock(depth_);
}

Status SplitMatmul::packB(const void* b, void* packed) const {
  const OneThread alone(sequence_.one_thread);
  auto* right = static_cast<uint16_t*>(packed);
  std::atomic<bool> plain{false};
  overTeam(column_blocks_, most_panel, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += most_panel)
      if (splitRight<true>(viewOf(desc_.b, b, 0).from(0, block * tile_block), std::min(most_panel, end - block),
                           right + block * splitBlock(depth_), splitBlock(depth_)))
        plain.store(true, std::memory_order_relaxed);
  });
  std::memset(right + column_blocks_ * splitBlock(depth_), plain, 64);
  return {};
}

bool SplitMatmul::packsLike(const Primitive& other) const {
  const auto* that = dynamic_cast<const SplitMatmul*>(&other);
  return that && desc_.pack_b && that->desc_.pack_b && desc_.b == that->desc_.b;
}

void SplitMatmul::splitLeftSide(const Run& run) const {
  overTeam(left_batch_ * row_blocks_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const MatrixView rows = viewOf(desc_.a, run.a, at / row_blocks_).from(at % row_blocks_ * tile_block, 0);
      splitLeft(rows, run.left + at * splitBlock(depth_), run.plain + at * tile_block);
    }
  });
}

// A block's sums over `steps` steps from `step` on; those before are in the result already.
void SplitMatmul::multiplyBlock(const Run& run, const Block& block, int64_t step, int64_t steps,
                                EdgeBlock& edge) const {
  constexpr int64_t edge_row = tile_block * int64_t(sizeof(float));
  const int64_t row = strideAt(desc_.out, 2), row_bytes = row * int64_t(sizeof(float));
  const int64_t height = std::min(tile_block, rows_ - block.row * tile_block);
  const int64_t width = std::min(tile_block, columns_ - block.column * tile_block);
  const bool whole = height == tile_block && width == tile_block;
  float* place = run.out + (batch_ > 1 ? block.batch * desc_.out.strides[0] : 0) + block.row * tile_block * row +
                 block.column * tile_block;
  const float* initial = whole ? place : edge.sums;
  int64_t initial_row = whole ? row_bytes : edge_row;
  if (step == 0) {
    initial = run.bias ? run.bias + block.column * tile_block : nullptr;
    initial_row = 0;
    if (initial && width < tile_block)
      initial = std::copy_n(initial, width, edge.bias) - width;
  } else if (!whole) {
    for (int64_t i = 0; i < height; ++i)
      std::copy_n(place + i * row, width, edge.sums + i * tile_block);
  }
  multiplySplitBlock(leftOf(run, block.batch) + block.row * splitBlock(depth_) + step * split_step, block.right, steps,
                     initial, initial_row, whole ? place : edge.sums, whole ? row_bytes : edge_row);
  for (int64_t i = 0; !whole && i < height; ++i)
    std::copy_n(edge.sums + i * tile_block, width, place + i * row);
}

// By a packed right side: chunks of rows whose parts a near cache holds, and for each all columns.
void SplitMatmul::multiplyPacked(const Run& run) const {
  const int64_t chunks = (row_blocks_ + chunk - 1) / chunk;
  overTeam(batch_ * chunks * column_blocks_, 1, [&](int64_t begin, int64_t end) {
    EdgeBlock edge;
    configureTiles(tile_rows, 0);
    for (int64_t at = begin; at < end;) {
      const int64_t number = at / column_blocks_, first = at % column_blocks_;
      const int64_t last = std::min(column_blocks_, first + end - at);
      const int64_t batch = number / chunks, from = number % chunks * chunk, to = std::min(from + chunk, row_blocks_);
      at += last - first;
      for (int64_t step = 0; step < steps_; step += piece)
        for (int64_t column = first; column < last; ++column)
          for (int64_t row = from; row < to; ++row)
            multiplyBlock(run, {batch, row, column, run.right + column * splitBlock(depth_) + step * split_step}, step,
                          std::min(piece, steps_ - step), edge);
    }
    releaseTiles();
  });
}

// By a right side that is not packed: some columns and a piece of the depth at a time are taken apart, which a near
// cache then holds while all rows go by.
void SplitMatmul::multiplyGiven(const Run& run) const {
  const int64_t panels = (column_blocks_ + panel_ - 1) / panel_, to_next = std::min(piece, steps_) * split_step;
  overTeamWithScratch(
      batch_ * panels, run.scratch + right_at_, panelBytes(), threads_,
      [&](int64_t begin, int64_t end, std::byte* scratch) {
        EdgeBlock edge;
        auto* right = reinterpret_cast<uint16_t*>(scratch);
        configureTiles(tile_rows, 0);
        for (int64_t at = begin; at < end; ++at) {
          const int64_t batch = at / panels, first = at % panels * panel_,
                        last = std::min(first + panel_, column_blocks_);
          for (int64_t step = 0; step < steps_; step += piece) {
            const int64_t count = std::min(piece, steps_ - step);
            const MatrixView view = viewOf(desc_.b, run.b, batch).from(step * tile_depth, first * tile_block);
            if (splitRight<false>(view.firstRows(count * tile_depth), last - first, right, to_next))
              run.plain_right[batch] = 1;
            for (int64_t row = 0; row < row_blocks_; ++row)
              for (int64_t column = first; column < last; ++column)
                multiplyBlock(run, {batch, row, column, right + (column - first) * to_next}, step, count, edge);
          }
        }
        releaseTiles();
      });
}

// What tiles did not multiply rightly.
void SplitMatmul::multiplyPlainRows(const Run& run) const {
  auto isPlain = [](uint8_t plain) { return plain != 0; };
  if (std::none_of(run.plain, run.plain + left_batch_ * row_blocks_ * tile_block, isPlain) &&
      std::none_of(run.plain_right, run.plain_right + batch_, isPlain))
    return;
  overTeam(batch_ * rows_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t batch = at / rows_, row = at % rows_;
      if (!run.plain_right[batch] && !run.plain[(left_batch_ > 1 ? batch : 0) * row_blocks_ * tile_block + row])
        continue;
      const MatrixView x = viewOf(desc_.a, run.a, batch).from(row, 0);
      float* out = run.out + (batch_ > 1 ? batch * desc_.out.strides[0] : 0) + row * strideAt(desc_.out, 2);
      for (int64_t column = 0; column < columns_; column += tile_block) {
        const float* bias = run.bias ? run.bias + column : nullptr;
        if (desc_.pack_b)
          multiplyPlainRow(x, SplitColumns{run.right + column / tile_block * splitBlock(depth_)}, bias, out + column,
                           columns_ - column);
        else
          multiplyPlainRow(x, PlainColumns{viewOf(desc_.b, run.b, batch).from(0, column)}, bias, out + column,
                           columns_ - column);
      }
    }
  });
}

Status SplitMatmul::run(const Primitive::Arguments& arguments) const {
  {
    const OneThread alone(sequence_.one_thread);
    auto* scratch = static_cast<std::byte*>(arguments.scratch);
    auto* plain = reinterpret_cast<uint8_t*>(scratch + plain_at_);
    const Run run{arguments.a,
                  arguments.b,
                  reinterpret_cast<uint16_t*>(scratch + left_at_),
                  static_cast<const uint16_t*>(arguments.b),
                  native_bias_ ? static_cast<const float*>(arguments.bias) : nullptr,
                  static_cast<float*>(arguments.out),
                  plain,
                  plain + left_batch_ * row_blocks_ * tile_block,
                  scratch};
    const bool plain_right = desc_.pack_b && run.right[column_blocks_ * splitBlock(depth_)] != 0;
    std::fill_n(run.plain_right, batch_, uint8_t(plain_right));
    splitLeftSide(run);
    desc_.pack_b ? multiplyPacked(run) : multiplyGiven(run);
    multiplyPlainRows(run);
  }
  return sequence_.steps.empty() ? Status() : sequence_.run(arguments);
}

}  // namespace zefuse::primitives
