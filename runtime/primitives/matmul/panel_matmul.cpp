#include "runtime/primitives/matmul/panel_matmul.h"

#include <algorithm>
#include <utility>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/matmul/descriptor.h"
#include "runtime/primitives/matmul/matmul_tail.h"
#include "runtime/primitives/simd/cpu_isa.h"
#include "runtime/primitives/simd/panel_packing.h"
#include "runtime/primitives/simd/panel_product.h"
#include "runtime/primitives/simd/vector_memory.h"

namespace zefuse::primitives {

using plan::LibraryWay;

namespace {

constexpr int lanes = 8;
constexpr int64_t columns_of = panel_columns<lanes>, most_rows = 6;
// Depth at most: sums are added to memory once in so many steps. Two panels of it stay in the first-level cache, and in
// the second, with 32 strips (192 KiB), while the strips go by.
constexpr int64_t most_depth = 256, group = 2, most_strips = 32;
// Of a right side that is not packed: it is laid out anew for each so many strips.
constexpr int64_t most_strips_given = 96;

int64_t quotientUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of the last two dimensions.
int64_t rowStride(const TensorDesc& desc) { return desc.strides[desc.strides.size() - 2]; }
int64_t batchStride(const TensorDesc& desc) {
  return desc.sizes.size() == 3 && desc.sizes[0] > 1 ? desc.strides[0] : 0;
}

bool takes(const MatmulDesc& desc) {
  const size_t rank = desc.out.sizes.size();
  return desc.pack_b && rank <= 3 && endsInPlace(desc) && desc.fpmath == FpMath::strict && desc.alpha == 1.0f &&
         elements(desc.out.sizes) > 0 && desc.a.sizes.back() > 0 && (rank == 2 || desc.b.sizes[0] == 1);
}

// Columns fill their panels, nearly, and a call is worth its preparations.
bool pays(const MatmulDesc& desc) {
  const int64_t columns = desc.out.sizes.back();
  constexpr double least = 1 << 14;  // products
  return hasIsa(dnnl_cpu_isa_avx2) && !hasIsa(dnnl_cpu_isa_avx512_core) &&
         quotientUp(columns, columns_of) * columns_of * 4 <= columns * 5 &&
         double(elements(desc.out.sizes)) * double(desc.a.sizes.back()) >= least;
}

[[ZEFUSE_AVX2]] void interleave(const Lines& lines, float* to, int64_t step) { interleaveLines(lines, to, step); }

// A strip by the panels of a group, one behind the other.
struct Group {
  const float* panel;
  int64_t panels, depth;
  int64_t columns;    // of the result, less than the panels have where it ends
  const float* next;  // what to fetch while the first panel is multiplied
};

// The group's last panel where the result has not all its columns: computed beside it.
template <int rows>
[[gnu::always_inline]] inline void multiplyEdge(const float* strip, const float* panel, int64_t depth, int64_t columns,
                                                const PanelResult& to) {
  alignas(32) float sums[rows * columns_of] = {}, bias[columns_of] = {};
  if (to.bias)
    std::copy_n(to.bias, columns, bias);
  for (int64_t r = 0; to.add && r < rows; ++r)
    std::copy_n(to.out + r * to.row, columns, sums + r * columns_of);
  multiplyPanels<lanes, rows, 1, Ahead::none>(strip, panel, 0, depth, nullptr,
                                              {sums, columns_of, to.bias ? bias : nullptr, to.add});
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(sums + r * columns_of, columns, to.out + r * to.row);
}

// `rows` rows need so many panels at once, so that enough sums are under way.
template <int rows> constexpr int panels_at_once = rows <= 3 ? group : 1;

template <int rows, Ahead ahead>
[[ZEFUSE_AVX2]] void multiplyGroup(const float* strip, const Group& group, const PanelResult& to) {
  constexpr int wide = panels_at_once<rows>;
  const int64_t panel_step = group.depth * columns_of, whole = group.columns / columns_of;
  auto result = [&](int64_t p) {
    return PanelResult{to.out + p * columns_of, to.row, to.bias ? to.bias + p * columns_of : nullptr, to.add};
  };
  int64_t p = 0;
  for (; p + wide <= whole; p += wide)
    multiplyPanels<lanes, rows, wide, ahead>(strip, group.panel + p * panel_step, panel_step, group.depth,
                                             group.next + p * panel_step, result(p));
  if constexpr (wide > 1)
    for (; p < whole; ++p)
      multiplyPanels<lanes, rows, 1, ahead>(strip, group.panel + p * panel_step, panel_step, group.depth,
                                            group.next + p * panel_step, result(p));
  if (p < group.panels)
    multiplyEdge<rows>(strip, group.panel + p * panel_step, group.depth, group.columns - p * columns_of, result(p));
}

using GroupProduct = void(const float* strip, const Group& group, const PanelResult& to);

template <Ahead ahead, size_t... rows> GroupProduct* groupProduct(int64_t count, std::index_sequence<rows...>) {
  static constexpr GroupProduct* by_rows[] = {multiplyGroup<int(rows) + 1, ahead>...};
  return by_rows[count - 1];
}

GroupProduct* groupProduct(int64_t rows, Ahead ahead) {
  constexpr std::make_index_sequence<most_rows> all;
  switch (ahead) {
  case Ahead::none: return groupProduct<Ahead::none>(rows, all);
  case Ahead::quarter: return groupProduct<Ahead::quarter>(rows, all);
  case Ahead::all: return groupProduct<Ahead::all>(rows, all);
  }
}

}  // namespace

// One call: where everything is.
struct PanelMatmul::Run {
  const float *a, *b, *bias;
  float* out;
  bool given;  // b is not packed
};

Result<std::shared_ptr<const Matmul>> PanelMatmul::build(const MatmulDesc& desc) {
  const bool wanted = desc.way == LibraryWay::panels && hasIsa(dnnl_cpu_isa_avx2);
  if (!takes(desc) || !(wanted || (desc.way == LibraryWay::automatic && pays(desc))))
    return std::shared_ptr<const Matmul>();
  auto self = std::shared_ptr<PanelMatmul>(new PanelMatmul(desc));
  if (!prepareTail(self->sequence_, desc))
    return std::shared_ptr<const Matmul>();
  return std::shared_ptr<const Matmul>(std::move(self));
}

PanelMatmul::PanelMatmul(const MatmulDesc& desc)
    : Prepared(toString(desc)), desc_(desc), native_bias_(isColumnBias(desc)) {
  const size_t rank = desc.out.sizes.size();
  batch_ = rank == 3 ? desc.out.sizes[0] : 1;
  rows_ = desc.out.sizes[rank - 2];
  columns_ = desc.out.sizes.back();
  depth_ = desc.a.sizes.back();
  strips_ = quotientUp(rows_, most_rows);
  panels_ = quotientUp(columns_, columns_of);
  depth_blocks_ = quotientUp(depth_, most_depth);
  sequence_.implementation = "panels:avx2";
  const double products = double(batch_ * rows_ * columns_) * double(depth_);
  constexpr double products_per_nanosecond = 50, bytes_per_nanosecond = 20;
  const double nanoseconds = std::max(products / products_per_nanosecond, double(packedBytes()) / bytes_per_nanosecond);
  sequence_.one_thread = threadsWorth(nanoseconds, maxThreads()) == 1;
  threads_ = sequence_.one_thread ? 1 : maxThreads();
  share(threads_);
  const int64_t strips = std::min(most_strips_given, quotientUp(batch_ * strips_, row_parts_));
  // A last strip's vectors end behind it.
  const int64_t numbers = (group * columns_of + strips * most_rows) * std::min(depth_, most_depth) + lanes;
  scratch_bytes_ = size_t(quotientUp(numbers * int64_t(sizeof(float)), 64) * 64);
  scratch_at_ = sequence_.reserve(scratch_bytes_ * size_t(threads_));
}

// As many parts as threads, of strips by panels, with the least work for the one that has most: packing a number of the
// left side, which all do whose rows they are, takes as long as four products.
void PanelMatmul::share(int threads) {
  const int64_t strips = batch_ * strips_;
  double least = 0;
  for (int64_t row_parts = 1; row_parts <= std::min<int64_t>(strips, threads); ++row_parts) {
    const int64_t column_parts = std::min<int64_t>(threads / row_parts, panels_);
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
int64_t PanelMatmul::depthOf(int64_t block) const {
  const int64_t each = quotientUp(quotientUp(depth_, depth_blocks_), 4) * 4;
  return std::min(depth_, block * each);
}

// The rows are shared out evenly among a matrix' strips.
int64_t PanelMatmul::firstRow(int64_t strip) const { return rows_ * strip / strips_; }

size_t PanelMatmul::packedBytes() const { return size_t(panels_ * columns_of * depth_) * sizeof(float); }

void PanelMatmul::packPanel(const float* b, int64_t panel, int64_t k, int64_t depth, float* to) const {
  const int64_t along = rowStride(desc_.b), column = desc_.b.strides.back();
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t first = panel * columns_of + half * lanes;
    const int64_t count = std::clamp<int64_t>(columns_ - first, 0, lanes);
    const float* data = count > 0 ? b + first * column + k * along : b;
    interleave({data, column, along, count, depth}, to + half * lanes, columns_of);
  }
}

// [blocks of the depth][panels][depth][16 columns]
Status PanelMatmul::packB(const void* b, void* packed) const {
  const OneThread alone(sequence_.one_thread);
  overTeam(panels_, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = 0; block < depth_blocks_; ++block) {
      const int64_t k = depthOf(block), depth = depthOf(block + 1) - k;
      for (int64_t panel = begin; panel < end; ++panel)
        packPanel(static_cast<const float*>(b), panel, k, depth,
                  static_cast<float*>(packed) + (k * panels_ + panel * depth) * columns_of);
    }
  });
  return {};
}

bool PanelMatmul::packsLike(const Primitive& other) const {
  const auto* that = dynamic_cast<const PanelMatmul*>(&other);
  return that && desc_.b == that->desc_.b;
}

void PanelMatmul::packStrips(const Run& run, int64_t first, int64_t last, int64_t k, int64_t depth, float* to) const {
  const int64_t row = rowStride(desc_.a), step = desc_.a.strides.back();
  for (int64_t strip = first; strip < last; ++strip) {
    const int64_t number = strip % strips_, rows = firstRow(number + 1) - firstRow(number);
    const float* data = run.a + strip / strips_ * batchStride(desc_.a) + firstRow(number) * row + k * step;
    interleave({data, row, step, rows, depth}, to, rows);
    to += rows * depth;
  }
}

// Some strips, packed behind a group of panels in the scratch memory, by the part's panels: a group of them stays in
// the near caches while the strips go by, and the first strips fetch the next group, which lies behind it if packed.
void PanelMatmul::multiplyBlock(const Run& run, const Part& part, int64_t k, int64_t depth, float* scratch) const {
  const int64_t row = rowStride(desc_.out), panel_numbers = depth * columns_of;
  const bool few = part.last_strip - part.first_strip < 4;
  for (int64_t panel = part.first_panel; panel < part.last_panel; panel += group) {
    const int64_t panels = std::min(group, part.last_panel - panel), column = panel * columns_of;
    const float* right = run.given ? scratch : run.b + (k * panels_ + panel * depth) * columns_of;
    for (int64_t p = 0; run.given && p < panels; ++p)
      packPanel(run.b, panel + p, k, depth, scratch + p * panel_numbers);
    const float* left = scratch + group * panel_numbers;
    for (int64_t strip = part.first_strip; strip < part.last_strip; ++strip) {
      const int64_t number = strip % strips_, rows = firstRow(number + 1) - firstRow(number);
      const int64_t before = strip - part.first_strip;
      const Ahead ahead = run.given ? Ahead::none : few ? Ahead::all : before < 4 ? Ahead::quarter : Ahead::none;
      const float* next =
          ahead == Ahead::quarter ? right + group * panel_numbers + before * (panel_numbers / 4) : right;
      float* out = run.out + strip / strips_ * batchStride(desc_.out) + firstRow(number) * row + column;
      groupProduct(rows, ahead)(left, {right, panels, depth, std::min(panels * columns_of, columns_ - column), next},
                                {out, row, run.bias ? run.bias + column : nullptr, k > 0});
      left += rows * depth;
    }
  }
}

void PanelMatmul::multiplyPart(const Run& run, const Part& part, float* scratch) const {
  const int64_t strips = part.last_strip - part.first_strip;
  const int64_t blocks = quotientUp(strips, run.given ? most_strips_given : most_strips);
  for (int64_t block = 0; block < blocks; ++block) {
    Part some = part;
    some.first_strip = part.first_strip + strips * block / blocks;
    some.last_strip = part.first_strip + strips * (block + 1) / blocks;
    for (int64_t piece = 0; piece < depth_blocks_; ++piece) {
      const int64_t k = depthOf(piece), depth = depthOf(piece + 1) - k;
      packStrips(run, some.first_strip, some.last_strip, k, depth, scratch + group * depth * columns_of);
      multiplyBlock(run, some, k, depth, scratch);
    }
  }
}

Status PanelMatmul::run(const Primitive::Arguments& arguments) const {
  {
    const OneThread alone(sequence_.one_thread);
    const Run run{static_cast<const float*>(arguments.a), static_cast<const float*>(arguments.b),
                  native_bias_ ? static_cast<const float*>(arguments.bias) : nullptr,
                  static_cast<float*>(arguments.out), arguments.b_given};
    const int64_t strips = batch_ * strips_;
    overTeamWithScratch(row_parts_ * column_parts_, static_cast<std::byte*>(arguments.scratch) + scratch_at_,
                        scratch_bytes_, threads_, [&](int64_t begin, int64_t end, std::byte* scratch) {
                          for (int64_t at = begin; at < end; ++at) {
                            const int64_t i = at / column_parts_, j = at % column_parts_;
                            multiplyPart(run,
                                         {strips * i / row_parts_, strips * (i + 1) / row_parts_,
                                          panels_ * j / column_parts_, panels_ * (j + 1) / column_parts_},
                                         reinterpret_cast<float*>(scratch));
                          }
                        });
  }
  return sequence_.steps.empty() ? Status() : sequence_.run(arguments);
}

}  // namespace zefuse::primitives
