#include "runtime/primitives/matmul/panel_step.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/cpu_isa.h"
#include "runtime/primitives/simd/panel_packing.h"
#include "runtime/primitives/simd/panel_product.h"

namespace zefuse::primitives {

namespace {

constexpr int lanes = 8;
constexpr int64_t columns_of = panel_columns<lanes>, most_rows = 6;
// Depth at most: sums are added to memory once in so many steps. Two panels of it stay in the first-level cache, and in
// the second, with 32 strips (192 KiB), while the strips go by.
constexpr int64_t most_depth = 256, group = 2, most_strips = 32;
// Of a right side that is not packed: it is laid out anew for each so many strips.
constexpr int64_t most_strips_given = 96;
// Of the result, so few that packing a strip, which all panels read, takes longer than it saves them.
constexpr int64_t most_columns_in_place = 128;

int64_t quotientUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A panel of two vectors and a rest of one at most make a last panel of three.
bool lastIsWide(int64_t columns) { return columns > columns_of && (columns - 1) % columns_of < lanes; }
int64_t panelsOf(int64_t columns) { return quotientUp(columns, columns_of) - (lastIsWide(columns) ? 1 : 0); }
int64_t paddedColumns(int64_t columns) { return panelsOf(columns) * columns_of + (lastIsWide(columns) ? lanes : 0); }
// Those of panels of two vectors that have all their columns.
int64_t wholeColumns(int64_t columns) {
  return lastIsWide(columns) ? columns / columns_of * columns_of - columns_of : columns / columns_of * columns_of;
}

[[ZEFUSE_AVX2]] void interleave(const Lines& lines, float* to, int64_t step) { interleaveLines(lines, to, step); }

// A strip by the panels of a group, one behind the other. The last one may have three vectors: all columns behind the
// other panels then.
struct Group {
  const float* panel;
  int64_t depth;
  int64_t columns;    // of the result
  const float* next;  // what to fetch while the first panel is multiplied
};

struct Strip {
  const float* data;
  int64_t row;  // stride, where it is read in place
};

// Those that take few instructions: each product's code has them.
bool isShort(const RowPostOp& op) {
  using plan::PostOpKind;
  return op.slot >= 0 || op.kind == PostOpKind::relu || op.kind == PostOpKind::relu6;
}

struct ShortPostOps {
  const RowOperands& operands;

  using Vector = VectorOf<lanes>::Float;
  template <int rows, int vectors> [[gnu::always_inline]] void operator()(Vector (&sums)[rows][vectors]) const {
    for (const RowPostOp& op : operands.post_ops) {
      auto apply = [&](auto function) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
        for (int r = 0; r < rows; ++r)
#pragma clang loop unroll(full)
          for (int v = 0; v < vectors; ++v)
            function(sums[r][v], r, v);
      };
      if (op.slot < 0) {
        apply([](Vector& x, int, int) __attribute__((always_inline)) { clampBelow<lanes>(x); });
        if (op.kind == plan::PostOpKind::relu6)
          apply([](Vector& x, int, int) __attribute__((always_inline)) { clampAbove<lanes>(x); });
        continue;
      }
      const float* from = operands.of(op);
      const int64_t row = op.row;
      auto vector = [&](int r, int v) __attribute__((always_inline)) {
        return *reinterpret_cast<const Vector*>(from + r * row + v * lanes);
      };
      if (op.kind == plan::PostOpKind::add && op.column)
        apply([&](Vector& x, int r, int v) __attribute__((always_inline)) { x += vector(r, v); });
      else if (op.kind == plan::PostOpKind::add)
        apply([&](Vector& x, int r, int) __attribute__((always_inline)) { x += from[r * row]; });
      else if (op.column)
        apply([&](Vector& x, int r, int v) __attribute__((always_inline)) { x *= vector(r, v); });
      else
        apply([&](Vector& x, int r, int) __attribute__((always_inline)) { x *= from[r * row]; });
    }
  }
};

[[ZEFUSE_AVX2]] void finish(const RowOperands& operands, int64_t rows, int64_t columns, float* out, int64_t out_row) {
  if (columns == columns_of)
    finishRows<lanes, 2, true>(operands, rows, columns, out, out_row);
  else
    finishRows<lanes, 3, false>(operands, rows, columns, out, out_row);
}

// A panel where the result has not all its columns: computed beside it.
template <int rows, int width, int packed_rows>
[[gnu::always_inline]] inline void multiplyEdge(const Strip& strip, const float* panel, int64_t depth, int64_t columns,
                                                const PanelResult& to, const RowOperands& operands) {
  constexpr int64_t most = width * lanes;
  alignas(32) float sums[rows * most] = {}, bias[most] = {};
  if (to.bias)
    std::copy_n(to.bias, columns, bias);
  for (int64_t r = 0; to.add && r < rows; ++r)
    std::copy_n(to.out + r * to.row, columns, sums + r * most);
  multiplyPanels<lanes, rows, 1, Ahead::none, width, packed_rows>(
      strip.data, panel, 0, depth, nullptr, {sums, most, to.bias ? bias : nullptr, to.add}, strip.row);
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(sums + r * most, columns, to.out + r * to.row);
  if (!operands.post_ops.empty())
    finish(operands, rows, columns, to.out, to.row);
}

// The last panel, all of whose columns the result has, or not.
template <int rows, int width, int packed_rows>
[[gnu::always_inline]] inline void multiplyLast(const Strip& strip, const float* panel, int64_t depth, int64_t columns,
                                                const PanelResult& to, const RowOperands& operands) {
  if (columns < width * lanes) {
    multiplyEdge<rows, width, packed_rows>(strip, panel, depth, columns, to, operands);
    return;
  }
  multiplyPanels<lanes, rows, 1, Ahead::none, width, packed_rows>(strip.data, panel, 0, depth, nullptr, to, strip.row,
                                                                  ShortPostOps{operands});
}

// `rows` rows need so many panels at once, so that enough sums are under way.
template <int rows> constexpr int panels_at_once = rows <= 3 ? group : 1;

template <int rows, Ahead ahead, bool in_place>
[[ZEFUSE_AVX2]] void multiplyGroup(const Strip& strip, const Group& group, const PanelResult& to,
                                   const RowOperands& operands) {
  constexpr int packed_rows = in_place ? 0 : rows;
  const int64_t panel_step = group.depth * columns_of;
  int64_t column = 0;
  auto result = [&](int64_t r) {
    return PanelResult{to.out + r * to.row + column, to.row, to.bias ? to.bias + column : nullptr, to.add};
  };
  auto multiply = [&]<int panels>(std::integral_constant<int, panels>) __attribute__((always_inline)) {
    const int64_t before = column * group.depth;
    const RowOperands own = operands.at(0, column);
    multiplyPanels<lanes, rows, panels, ahead, 2, packed_rows>(strip.data, group.panel + before, panel_step,
                                                               group.depth, group.next + before, result(0), strip.row,
                                                               ShortPostOps{own});
  };
  constexpr int wide = panels_at_once<rows>;
  const int64_t whole = wholeColumns(group.columns);
  for (; column + wide * columns_of <= whole; column += wide * columns_of)
    multiply(std::integral_constant<int, wide>());
  if constexpr (wide > 1)
    for (; column < whole; column += columns_of)
      multiply(std::integral_constant<int, 1>());
  const int64_t rest = group.columns - column;
  if (rest == 0)
    return;
  const float* panel = group.panel + column * group.depth;
  if (rest <= columns_of) {
    multiplyLast<rows, 2, packed_rows>(strip, panel, group.depth, rest, result(0), operands.at(0, column));
    return;
  }
  // Three vectors of three rows are enough sums under way; more have no registers.
  constexpr int first = rows > 3 ? rows / 2 : rows, second = rows - first;
  multiplyLast<first, 3, packed_rows>(strip, panel, group.depth, rest, result(0), operands.at(0, column));
  if constexpr (second > 0) {
    const float* data = strip.data + first * (in_place ? strip.row : 1);
    multiplyLast<second, 3, packed_rows>({data, strip.row}, panel, group.depth, rest, result(first),
                                         operands.at(first, column));
  }
}

using GroupProduct = void(const Strip& strip, const Group& group, const PanelResult& to, const RowOperands& operands);

template <Ahead ahead, bool in_place, size_t... rows>
GroupProduct* groupProduct(int64_t count, std::index_sequence<rows...>) {
  static constexpr GroupProduct* by_rows[] = {multiplyGroup<int(rows) + 1, ahead, in_place>...};
  return by_rows[count - 1];
}

template <bool in_place> GroupProduct* groupProduct(int64_t rows, Ahead ahead) {
  constexpr std::make_index_sequence<most_rows> all;
  switch (ahead) {
  case Ahead::none: return groupProduct<Ahead::none, in_place>(rows, all);
  case Ahead::quarter: return groupProduct<Ahead::quarter, in_place>(rows, all);
  case Ahead::all: return groupProduct<Ahead::all, in_place>(rows, all);
  }
}

}  // namespace

bool panelsAvailable() { return hasIsa(dnnl_cpu_isa_avx2); }

bool panelsPay(const PanelShape& shape) {
  constexpr double least = 1 << 14;  // products
  return panelsAvailable() && !hasIsa(dnnl_cpu_isa_avx512_core) &&
         paddedColumns(shape.columns) * 4 <= shape.columns * 5 &&
         double(shape.batch * shape.rows * shape.columns) * double(shape.depth) >= least;
}

double panelNanoseconds(const PanelShape& shape) {
  constexpr double products_per_nanosecond = 50, bytes_per_nanosecond = 20;
  const double right = double(paddedColumns(shape.columns) * shape.depth) * sizeof(float);
  return std::max(double(shape.batch * shape.rows * shape.columns) * double(shape.depth) / products_per_nanosecond,
                  right / bytes_per_nanosecond);
}

// One call: where everything is.
struct PanelStep::Run {
  const float *left, *right, *bias;
  float* out;
  const void* const* addresses;  // by slot, of the post-ops' operands
  bool given;                    // the right side is not packed
};

// What a thread multiplies: strips and panels of a product, from the first to before the last.
struct PanelStep::Part {
  int64_t product, first_strip, last_strip, first_panel, last_panel;
};

PanelStep::PanelStep(Sequence& sequence, PanelShape shape, bool packed)
    : shape_(std::move(shape)), packed_(packed),
      in_place_(shape_.left.column == 1 && shape_.columns <= most_columns_in_place),
      products_(shape_.right.batch ? shape_.batch : 1), strips_(quotientUp(shape_.rows, most_rows)),
      panels_(panelsOf(shape_.columns)), columns_(paddedColumns(shape_.columns)),
      depth_blocks_(quotientUp(shape_.depth, most_depth)),
      short_post_ops_(std::ranges::all_of(shape_.post_ops, isShort)), threads_(maxThreads()) {
  share(threads_);
  const int64_t strips = std::min(most_strips_given, quotientUp(shape_.batch / products_ * strips_, row_parts_));
  // A last strip's vectors end behind it.
  const int64_t rows = in_place_ ? 0 : strips * most_rows;
  const int64_t numbers = (group * columns_of + lanes + rows) * std::min(shape_.depth, most_depth) + lanes;
  scratch_bytes_ = size_t(quotientUp(numbers * int64_t(sizeof(float)), 64) * 64);
  scratch_at_ = sequence.reserve(scratch_bytes_ * size_t(threads_));
}

// As many parts of each product as threads are left for it, of strips by panels, with the least work for the one that
// has most: packing a number of the left side, which all do whose rows they are, takes as long as four products.
void PanelStep::share(int threads) {
  const int64_t strips = shape_.batch / products_ * strips_, each = quotientUp(threads, products_);
  double least = 0;
  for (int64_t row_parts = 1; row_parts <= std::min<int64_t>(strips, each); ++row_parts) {
    const int64_t column_parts = std::min<int64_t>(each / row_parts, panels_);
    const double work =
        double(quotientUp(strips, row_parts)) * double(quotientUp(panels_, column_parts) * columns_of + 4);
    if (row_parts > 1 && work >= least)
      continue;
    least = work;
    row_parts_ = row_parts;
    column_parts_ = column_parts;
  }
}

// Where a block of the depth begins: blocks are of like sizes, of whole turns of the loops.
int64_t PanelStep::depthOf(int64_t block) const {
  const int64_t each = quotientUp(quotientUp(shape_.depth, depth_blocks_), 4) * 4;
  return std::min(shape_.depth, block * each);
}

// The rows are shared out evenly among a matrix' strips.
int64_t PanelStep::firstRow(int64_t strip) const { return shape_.rows * strip / strips_; }
int64_t PanelStep::rowsOf(int64_t strip) const { return firstRow(strip % strips_ + 1) - firstRow(strip % strips_); }

size_t PanelStep::packedBytes() const { return size_t(columns_ * shape_.depth) * sizeof(float); }

// Of [depth][its columns].
void PanelStep::packPanel(const float* right, int64_t panel, int64_t k, int64_t depth, float* to) const {
  const auto [batch, along, column] = shape_.right;
  const int64_t begin = panel * columns_of, width = widthOf(panel);
  for (int64_t at = 0; at < width; at += lanes) {
    const int64_t count = std::clamp<int64_t>(shape_.columns - begin - at, 0, lanes);
    const float* data = count > 0 ? right + (begin + at) * column + k * along : right;
    interleave({data, column, along, count, depth}, to + at, width);
  }
}

int64_t PanelStep::widthOf(int64_t panel) const {
  return panel + 1 < panels_ ? columns_of : columns_ - panel * columns_of;
}

// [blocks of the depth][panels][depth][16 columns, or 24 of the last one]
void PanelStep::pack(const void* right, void* packed) const {
  overTeam(panels_, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = 0; block < depth_blocks_; ++block) {
      const int64_t k = depthOf(block), depth = depthOf(block + 1) - k;
      for (int64_t panel = begin; panel < end; ++panel)
        packPanel(static_cast<const float*>(right), panel, k, depth,
                  static_cast<float*>(packed) + k * columns_ + panel * depth * columns_of);
    }
  });
}

const float* PanelStep::stripOf(const Run& run, int64_t strip, int64_t k) const {
  return run.left + strip / strips_ * shape_.left.batch + firstRow(strip % strips_) * shape_.left.row +
         k * shape_.left.column;
}

void PanelStep::packStrips(const Run& run, const Part& part, int64_t k, int64_t depth, float* to) const {
  for (int64_t strip = part.first_strip; strip < part.last_strip; ++strip) {
    const int64_t rows = rowsOf(strip);
    interleave({stripOf(run, strip, k), shape_.left.row, shape_.left.column, rows, depth}, to, rows);
    to += rows * depth;
  }
}

// Some strips, in place or packed behind a group of panels in the scratch memory, by the part's panels: a group of them
// stays in the near caches while the strips go by, and the first strips fetch the next group, which lies behind it if
// packed.
void PanelStep::multiplyBlock(const Run& run, const Part& part, int64_t k, int64_t depth, float* scratch) const {
  const int64_t panel_numbers = depth * columns_of;
  const bool few = part.last_strip - part.first_strip < 4;
  const std::span<const RowPostOp> post_ops(shape_.post_ops.data(),
                                            k + depth == shape_.depth ? shape_.post_ops.size() : 0);
  for (int64_t panel = part.first_panel; panel < part.last_panel; panel += group) {
    const int64_t panels = std::min(group, part.last_panel - panel), column = panel * columns_of;
    const bool ends = panel + panels == panels_;
    const int64_t columns = ends ? shape_.columns - column : panels * columns_of;
    const float* right = run.given ? scratch : run.right + k * columns_ + panel * panel_numbers;
    for (int64_t p = 0; run.given && p < panels; ++p)
      packPanel(run.right, panel + p, k, depth, scratch + p * panel_numbers);
    const float* packed = scratch + (group * columns_of + lanes) * depth;
    for (int64_t strip = part.first_strip; strip < part.last_strip; ++strip) {
      const int64_t batch = strip / strips_, first = firstRow(strip % strips_), rows = rowsOf(strip);
      const int64_t before = strip - part.first_strip;
      const Ahead ahead = run.given ? Ahead::none : few ? Ahead::all : before < 4 ? Ahead::quarter : Ahead::none;
      const float* next =
          ahead == Ahead::quarter ? right + group * panel_numbers + before * (panel_numbers / 4) : right;
      float* out = run.out + batch * shape_.out.batch + first * shape_.out.row + column;
      const RowOperands operands{post_ops, run.addresses, part.product + batch, first, column};
      GroupProduct* multiply = in_place_ ? groupProduct<true>(rows, ahead) : groupProduct<false>(rows, ahead);
      multiply({in_place_ ? stripOf(run, strip, k) : packed, shape_.left.row}, {right, depth, columns, next},
               {out, shape_.out.row, run.bias ? run.bias + column : nullptr, k > 0},
               short_post_ops_ ? operands : RowOperands{});
      packed += rows * depth;
      if (!short_post_ops_ && !post_ops.empty())
        for (int64_t at = 0; at < columns; at += columns_of)
          finish(operands.at(0, at), rows, std::min(columns_of, columns - at), out + at, shape_.out.row);
    }
  }
}

void PanelStep::multiplyPart(const Run& run, const Part& part, float* scratch) const {
  const int64_t strips = part.last_strip - part.first_strip;
  const int64_t blocks = quotientUp(strips, run.given ? most_strips_given : most_strips);
  for (int64_t block = 0; block < blocks; ++block) {
    Part some = part;
    some.first_strip = part.first_strip + strips * block / blocks;
    some.last_strip = part.first_strip + strips * (block + 1) / blocks;
    for (int64_t piece = 0; piece < depth_blocks_; ++piece) {
      const int64_t k = depthOf(piece), depth = depthOf(piece + 1) - k;
      if (!in_place_)
        packStrips(run, some, k, depth, scratch + (group * columns_of + lanes) * depth);
      multiplyBlock(run, some, k, depth, scratch);
    }
  }
}

void PanelStep::run(std::span<void* const> addresses, std::byte* scratch) const {
  const void* packed = packed_ ? addresses[slotWeights] : nullptr;
  const void* right = packed ? packed : addresses[size_t(shape_.right_slot)];
  const Run whole{static_cast<const float*>(addresses[size_t(shape_.left_slot)]),
                  static_cast<const float*>(right),
                  shape_.has_bias ? static_cast<const float*>(addresses[slotBias]) : nullptr,
                  static_cast<float*>(addresses[slotOut]),
                  addresses.data(),
                  !packed};
  const int64_t strips = shape_.batch / products_ * strips_;
  overTeamWithScratch(products_ * row_parts_ * column_parts_, scratch + scratch_at_, scratch_bytes_, threads_,
                      [&](int64_t begin, int64_t end, std::byte* own) {
                        for (int64_t at = begin; at < end; ++at) {
                          const int64_t product = at / column_parts_ / row_parts_;
                          const int64_t i = at / column_parts_ % row_parts_, j = at % column_parts_;
                          Run run = whole;
                          run.left += product * shape_.left.batch;
                          run.right += product * shape_.right.batch;
                          run.out += product * shape_.out.batch;
                          multiplyPart(run,
                                       {product, strips * i / row_parts_, strips * (i + 1) / row_parts_,
                                        panels_ * j / column_parts_, panels_ * (j + 1) / column_parts_},
                                       reinterpret_cast<float*>(own));
                        }
                      });
}

}  // namespace zefuse::primitives
