#include "runtime/primitives/attention/panel_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/primitives/core/scratch_parts.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/primitives/simd/cpu_isa.h"
#include "runtime/primitives/simd/panel_packing.h"
#include "runtime/primitives/simd/panel_product.h"
#include "runtime/primitives/simd/vector_memory.h"

namespace zefuse::primitives {

namespace {

// Of registers: 24 of 32, and 12 of 16, hold sums.
template <int lanes> constexpr int most_rows = lanes == 16 ? 12 : 6;
template <int lanes> constexpr int64_t most_columns = 2 * lanes;
// Keys of a block at most, whole strips: its scores, 17 KiB, stay in the first-level cache.
template <int lanes> constexpr int64_t most_keys = lanes == 16 ? 132 : 264;
constexpr int64_t most_panels = 4;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity(), log2_e = 1.44269504f;
constexpr double log_2 = 0.69314718055994531;

// Lines in strips of at most `most`, of like sizes.
struct Strips {
  int64_t lines, count;
  Strips(int64_t lines, int64_t most) : lines(lines), count((lines + most - 1) / most) {}
  int64_t first(int64_t strip) const { return lines * strip / count; }
};

// Keys of a block: blocks are of like sizes, of whole strips but the last.
template <int lanes> int64_t keysOfBlock(int64_t keys) {
  auto quotientUp = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  constexpr int64_t rows = most_rows<lanes>;
  return quotientUp(quotientUp(keys, quotientUp(keys, most_keys<lanes>)), rows) * rows;
}

struct Parts {
  float* key;     // [block of keys][strip of keys][depth][keys of the strip]
  float* value;   // [block of keys][strip of columns][keys of the block][columns of the strip]
  float* query;   // [panel][depth][queries]
  float* out;     // [panel][width][queries]
  float* scores;  // [keys of a block][queries], then weights
  float* wide;    // rows of bf16, widened
  size_t bytes;

  // `columns`: of a panel. Whole vectors are written, beyond the end of what is packed, too.
  Parts(const PanelAttention& a, int64_t columns, void* scratch) {
    ScratchParts take{scratch};
    auto floats = [&](float*& part, int64_t count) { take(part, (count + columns / 2 + 15) / 16 * 16); };
    floats(key, a.keys * a.depth);
    floats(value, a.keys * a.width);
    floats(query, most_panels * a.depth * columns);
    floats(out, most_panels * outOfPanel(a, columns));
    floats(scores, std::max(most_keys<8> * most_columns<8>, most_keys<16> * most_columns<16>));
    floats(wide, a.narrow ? columns * std::max(a.depth, a.width) : 0);
    bytes = take.bytes;
  }
  static int64_t outOfPanel(const PanelAttention& a, int64_t columns) { return (a.width + 7) / 8 * 8 * columns; }
};

// `count` rows of f32: those, or a widened copy.
[[gnu::always_inline]] inline const float* widened(const PanelAttention& a, const PanelAttention::Rows& rows,
                                                   int64_t first, int64_t count, float* wide, int64_t& row) {
  if (!a.narrow) {
    row = rows.row;
    return static_cast<const float*>(rows.data) + first * row;
  }
  row = a.depth;
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(static_cast<const __bf16*>(rows.data) + (first + i) * rows.row, a.depth, wide + i * row);
  return wide;
}

template <int lanes>
[[gnu::always_inline]] inline void packKeys(const PanelAttention& a, const PanelAttention::Rows& key,
                                            const Parts& parts) {
  const int64_t keys = keysOfBlock<lanes>(a.keys);
  for (int64_t block = 0; block < a.keys; block += keys) {
    const Strips strips(std::min(a.keys - block, keys), most_rows<lanes>);
    for (int64_t strip = 0; strip < strips.count; ++strip) {
      const int64_t first = block + strips.first(strip), count = block + strips.first(strip + 1) - first;
      int64_t row;
      const float* data = widened(a, key, first, count, parts.wide, row);
      float* to = parts.key + first * a.depth;
      // What a vector of the upper lines writes beyond them the lower ones set right.
      if (count > 8)
        interleaveLines({data + 8 * row, row, 1, count - 8, a.depth}, to + 8, count);
      interleaveLines({data, row, 1, std::min<int64_t>(count, 8), a.depth}, to, count);
    }
  }
}

template <int lanes>
[[gnu::always_inline]] inline void packValues(const PanelAttention& a, const PanelAttention::Rows& value,
                                              const Parts& parts) {
  using Vector = typename VectorOf<lanes>::Float;
  const Strips strips(a.width, most_rows<lanes>);
  float* to = parts.value;
  const int64_t keys = keysOfBlock<lanes>(a.keys);
  for (int64_t key = 0; key < a.keys; key += keys) {
    const int64_t last = std::min(a.keys, key + keys);
    for (int64_t strip = 0; strip < strips.count; ++strip) {
      const int64_t first = strips.first(strip), count = strips.first(strip + 1) - first;
      for (int64_t k = key; k < last; ++k, to += count) {
        Vector x{};
        if (a.narrow) {
          const auto* from = static_cast<const __bf16*>(value.data) + k * value.row + first;
          for (int64_t lane = 0; lane < count; ++lane)
            x[lane] = from[lane];
        } else {
          load<lanes>(x, static_cast<const float*>(value.data) + k * value.row + first, count);
        }
        *reinterpret_cast<Vector*>(to) = x;
      }
    }
  }
}

// A strip of `count` rows times the panel of queries, or of weights.
template <int lanes, int vectors, int rows>
[[gnu::always_inline]] inline void multiplyStrip(int64_t count, const float* strip, const float* panel, int64_t depth,
                                                 const PanelResult& to) {
  if constexpr (rows > 0) {
    if (count == rows)
      multiplyPanels<lanes, rows, 1, Ahead::none, vectors>(strip, panel, 0, depth, nullptr, to);
    else
      multiplyStrip<lanes, vectors, rows - 1>(count, strip, panel, depth, to);
  }
}

// Of a panel's columns so far: their largest scores, times the scale (and log2(e) without a mask), and the sums of the
// weights that softmax makes of them, not yet divided.
template <int lanes, int vectors> struct Columns {
  typename VectorOf<lanes>::Float maximum[vectors], sum[vectors];
};

// Weights of columns in which so far no number is larger than -infinity: zeros, but NaN stay.
template <int lanes, int vectors> void weightsOfNothing(float* weights, int64_t keys, int64_t lane, float& sum) {
  sum = sum == sum ? 0 : sum;
  for (int64_t key = 0; key < keys; ++key) {
    float& weight = weights[key * vectors * lanes + lane];
    weight = weight == weight ? 0 : weight;
    sum += weight;
  }
}

// Scores become weights. With a mask they are scaled already, and what is the lowest number of all may not be
// multiplied before the largest is subtracted. What the weights before, and all that was summed with them, are to be
// multiplied with: factor.
template <int lanes, int vectors, bool masked>
[[gnu::always_inline]] inline void softmaxDown(float* scores, int64_t keys, float scale,
                                               Columns<lanes, vectors>& columns,
                                               typename VectorOf<lanes>::Float (&factor)[vectors]) {
  using Vector = typename VectorOf<lanes>::Float;
  constexpr int64_t row = vectors * lanes, chains = 4 / vectors;  // so that additions do not wait for each other
  Vector most[chains][vectors], sums[chains][vectors];
  for (int64_t c = 0; c < chains; ++c)
    for (int v = 0; v < vectors; ++v) {
      most[c][v] = columns.maximum[v];
      sums[c][v] = Vector{};
    }
  auto eachKey = [&](auto of) __attribute__((always_inline)) {
    auto step = [&](int64_t key, int64_t c) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v)
        of(*reinterpret_cast<Vector*>(scores + key * row + v * lanes), c, v);
    };
    int64_t key = 0;
    for (; key + chains <= keys; key += chains)
#pragma clang loop unroll(full)
      for (int64_t c = 0; c < chains; ++c)
        step(key + c, c);
    for (; key < keys; ++key)
      step(key, 0);
  };
  eachKey([&](const Vector& x, int64_t c, int v) __attribute__((always_inline)) {
    const Vector scaled = x * scale;
    most[c][v] = scaled > most[c][v] ? scaled : most[c][v];
  });
  auto power = [](Vector& x) __attribute__((always_inline)) {
    if constexpr (masked)
      x *= log2_e;
    const Vector none = Vector{} - 127.f, given = x;
    powerOfTwo<lanes>(x);
    if constexpr (masked)  // what is masked must not count at all
      x = given < none ? Vector{} : x;
  };
  Vector shift[vectors];
  bool nothing = false;
  for (int v = 0; v < vectors; ++v) {
    for (int64_t c = 1; c < chains; ++c)
      most[0][v] = most[c][v] > most[0][v] ? most[c][v] : most[0][v];
    shift[v] = most[0][v] == minus_infinity ? Vector{} : most[0][v];
    factor[v] = columns.maximum[v] - shift[v];
    power(factor[v]);
    columns.maximum[v] = most[0][v];
    for (int lane = 0; lane < lanes; ++lane)
      nothing |= most[0][v][lane] == minus_infinity;
  }
  eachKey([&](Vector& x, int64_t c, int v) __attribute__((always_inline)) {
    Vector weight = x * scale - shift[v];
    power(weight);
    x = weight;
    sums[c][v] += weight;
  });
  for (int v = 0; v < vectors; ++v) {
    for (int64_t c = 1; c < chains; ++c)
      sums[0][v] += sums[c][v];
    columns.sum[v] = columns.sum[v] * factor[v] + sums[0][v];
  }
  for (int64_t i = 0; nothing && i < row; ++i)
    if (columns.maximum[i / lanes][i % lanes] == minus_infinity) {
      float sum = columns.sum[i / lanes][i % lanes];
      weightsOfNothing<lanes, vectors>(scores, keys, i, sum);
      columns.sum[i / lanes][i % lanes] = sum;
    }
}

// What a mask has for 8 rows of queries, or `rows`, and 8 keys, or `keys`: [key][row].
[[gnu::always_inline]] inline void loadMask(const PanelAttention::Mask& mask, int64_t row, int64_t rows, int64_t key,
                                            int64_t keys, Eight (&square)[8]) {
  typedef uint8_t Bytes __attribute__((vector_size(8), aligned(1)));
  const bool whole = keys >= 8 && mask.key == 1;
#pragma clang loop unroll(full)
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t from = row + std::min(i, rows - 1);  // rows that are not there do not count
    if (i > 0 && mask.row == 0) {
      square[i] = square[0];
    } else if (whole && mask.boolean) {
      const auto bytes =
          *reinterpret_cast<const Bytes*>(static_cast<const uint8_t*>(mask.data) + from * mask.row + key);
      const auto kept = __builtin_convertvector(bytes, VectorOf<8>::Int) != 0;
      square[i] = kept ? Eight{} : Eight{} + minus_infinity;
    } else if (whole) {
      square[i] = *reinterpret_cast<const Eight*>(static_cast<const float*>(mask.data) + from * mask.row + key);
    } else {
      square[i] = Eight{};
      for (int64_t lane = 0; lane < std::min<int64_t>(keys, 8); ++lane)
        square[i][lane] = mask.at(from, key + lane);
    }
  }
  transpose8(square);
}

// scores [keys][queries], of which `rows` count, become scale * scores + mask, whose rows begin at `row` and keys at
// `key`.
template <int64_t queries>
[[gnu::always_inline]] inline void addMask(float* scores, int64_t rows, int64_t keys, float scale,
                                           const PanelAttention::Mask& mask, int64_t row, int64_t key) {
  for (int64_t k = 0; k < keys; k += 8)
    for (int64_t query = 0; query < std::min(rows, queries); query += 8) {
      Eight square[8];
      loadMask(mask, row + query, rows - query, key + k, keys - k, square);
#pragma clang loop unroll(full)
      for (int64_t i = 0; i < 8; ++i)
        if (i < keys - k) {
          auto* place = reinterpret_cast<Eight*>(scores + (k + i) * queries + query);
          *place = *place * scale + square[i];
        }
    }
}

// Of the keys that some rows of a causal panel do not see. `first`: the panel's first row, counted from the first key.
template <int64_t queries> void fillUnseen(float* scores, int64_t first, int64_t keys, float value) {
  for (int64_t key = std::max<int64_t>(first + 1, 0); key < keys; ++key)
    std::fill_n(scores + key * queries, std::min(queries, key - first), value);
}

// out [count, width] = (sums [width, queries] / the columns' sums)^T
template <int lanes, int vectors>
[[gnu::always_inline]] inline void finish(const PanelAttention& a, bool masked, const float* sums, float* wide,
                                          int64_t count, const Columns<lanes, vectors>& columns,
                                          const PanelAttention::Results& to) {
  constexpr int64_t queries = vectors * lanes;
  alignas(64) float inverse[queries];
  for (int64_t i = 0; i < queries; ++i) {
    const float sum = columns.sum[i / lanes][i % lanes];
    inverse[i] = sum == 0 ? 1 : 1 / sum;
  }
  float* out = a.narrow ? wide : static_cast<float*>(to.out);
  const int64_t row = a.narrow ? a.width : to.out_row;
  for (int64_t query = 0; query < count; query += 8)
    for (int64_t column = 0; column < a.width; column += 8) {
      Eight square[8];
      const Eight factor = *reinterpret_cast<const Eight*>(inverse + query);
#pragma clang loop unroll(full)
      for (int64_t i = 0; i < 8; ++i)
        square[i] = *reinterpret_cast<const Eight*>(sums + (column + i) * queries + query) * factor;
      transpose8(square);
      for (int64_t i = 0; i < std::min<int64_t>(8, count - query); ++i)
        store<8>(out + (query + i) * row + column, square[i], a.width - column);
    }
  for (int64_t query = 0; a.narrow && query < count; ++query)
    std::transform(out + query * row, out + query * row + a.width, static_cast<__bf16*>(to.out) + query * to.out_row,
                   toBf16);
  const double unit = masked ? 1 : log_2;  // of the maxima
  for (int64_t query = 0; to.log_sums && query < count; ++query)
    to.log_sums[query * to.log_sums_row] = float(double(columns.maximum[query / lanes][query % lanes]) * unit +
                                                 std::log(double(columns.sum[query / lanes][query % lanes])));
}

// One call of run().
struct Call {
  const PanelAttention& a;
  PanelAttention::Rows query;
  int64_t first, count;
  float scale;
  bool causal;
  PanelAttention::Mask mask;
  PanelAttention::Results to;
  Parts parts;
};

template <int lanes, int vectors> [[gnu::always_inline]] inline void packQueries(const Call& call, int64_t panel) {
  constexpr int64_t queries = vectors * lanes;
  const PanelAttention& a = call.a;
  const int64_t first = panel * most_columns<lanes>, count = std::min(call.count - first, queries);
  int64_t row;
  const float* data = widened(a, call.query, first, count, call.parts.wide, row);
  float* to = call.parts.query + panel * a.depth * most_columns<lanes>;
  for (int64_t i = 0; i < queries; i += 8)
    interleaveLines({data + std::min(i, count - 1) * row, row, 1, std::clamp<int64_t>(count - i, 0, 8), a.depth},
                    to + i, queries);
}

// The keys of a block, `packed` of them, of which the panel's rows see `seen`, or fewer.
template <int lanes, int vectors>
[[gnu::always_inline]] inline void runBlock(const Call& call, int64_t panel, int64_t block, int64_t packed,
                                            int64_t seen, Columns<lanes, vectors>& columns) {
  using Vector = typename VectorOf<lanes>::Float;
  constexpr int64_t queries = vectors * lanes;
  constexpr int rows = most_rows<lanes>;
  const PanelAttention& a = call.a;
  float* scores = call.parts.scores;
  const Strips of_keys(packed, rows), of_width(a.width, rows);
  for (int64_t strip = 0; strip < of_keys.count && of_keys.first(strip) < seen; ++strip) {
    const int64_t key = of_keys.first(strip);
    multiplyStrip<lanes, vectors, rows>(of_keys.first(strip + 1) - key, call.parts.key + (block + key) * a.depth,
                                        call.parts.query + panel * a.depth * most_columns<lanes>, a.depth,
                                        {scores + key * queries, queries, nullptr, false});
  }
  const int64_t first = call.first + panel * most_columns<lanes> - block;
  Vector factor[vectors];
  if (call.mask.data) {
    const int64_t row = panel * most_columns<lanes>;
    addMask<queries>(scores, call.count - row, seen, call.scale, call.mask, row, block);
  }
  if (call.causal)
    fillUnseen<queries>(scores, first, seen, minus_infinity);
  if (call.mask.data)
    softmaxDown<lanes, vectors, true>(scores, seen, 1, columns, factor);
  else
    softmaxDown<lanes, vectors, false>(scores, seen, call.scale * log2_e, columns, factor);
  if (call.causal)
    fillUnseen<queries>(scores, first, seen, 0.f);

  float* out = call.parts.out + panel * Parts::outOfPanel(a, most_columns<lanes>);
  for (int64_t column = 0; block > 0 && column < a.width; ++column)
    for (int v = 0; v < vectors; ++v)
      *reinterpret_cast<Vector*>(out + column * queries + v * lanes) *= factor[v];
  for (int64_t strip = 0; strip < of_width.count; ++strip) {
    const int64_t column = of_width.first(strip);
    multiplyStrip<lanes, vectors, rows>(of_width.first(strip + 1) - column,
                                        call.parts.value + block * a.width + column * packed, scores, seen,
                                        {out + column * queries, queries, nullptr, block > 0});
  }
}

template <int lanes, int vectors>
[[gnu::always_inline]] inline void finishPanel(const Call& call, int64_t panel,
                                               const Columns<lanes, vectors>& columns) {
  const int64_t first = panel * most_columns<lanes>;
  PanelAttention::Results to = call.to;
  to.out = call.a.narrow ? static_cast<void*>(static_cast<__bf16*>(to.out) + first * to.out_row)
                         : static_cast<float*>(to.out) + first * to.out_row;
  if (to.log_sums)
    to.log_sums += first * to.log_sums_row;
  finish<lanes, vectors>(call.a, call.mask.data,
                         call.parts.out + panel * Parts::outOfPanel(call.a, most_columns<lanes>), call.parts.wide,
                         std::min<int64_t>(call.count - first, vectors * lanes), columns, to);
}

// Whole panels, then one whose rows fill one vector at most. A block of keys and values stays in the second-level cache
// while the panels go by.
template <int lanes> [[gnu::always_inline]] inline void runAll(const Call& call) {
  constexpr int64_t columns = most_columns<lanes>;
  const int64_t panels = (call.count + columns - 1) / columns;
  const bool half = call.count - (panels - 1) * columns <= lanes;
  const int64_t whole = panels - half;
  Columns<lanes, 2> of_whole[most_panels];
  Columns<lanes, 1> of_half;
  auto begin = [&](auto& some) __attribute__((always_inline)) {
    for (auto& maximum : some.maximum)
      maximum = typename VectorOf<lanes>::Float{} + minus_infinity;
    for (auto& sum : some.sum)
      sum = typename VectorOf<lanes>::Float{};
  };
  begin(of_half);
  for (int64_t panel = 0; panel < whole; ++panel) {
    begin(of_whole[panel]);
    packQueries<lanes, 2>(call, panel);
  }
  if (half)
    packQueries<lanes, 1>(call, whole);
  const int64_t keys = keysOfBlock<lanes>(call.a.keys);
  for (int64_t block = 0; block < call.a.keys; block += keys)
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t packed = std::min(call.a.keys - block, keys);
      int64_t seen = packed;
      if (call.causal)
        seen = std::min(seen, call.first + std::min(call.count, (panel + 1) * columns) - block);
      if (seen <= 0)
        continue;
      if (panel < whole)
        runBlock<lanes, 2>(call, panel, block, packed, seen, of_whole[panel]);
      else
        runBlock<lanes, 1>(call, panel, block, packed, seen, of_half);
    }
  for (int64_t panel = 0; panel < whole; ++panel)
    finishPanel<lanes, 2>(call, panel, of_whole[panel]);
  if (half)
    finishPanel<lanes, 1>(call, whole, of_half);
}

template <int lanes>
[[gnu::always_inline]] inline void packAll(const PanelAttention& a, const PanelAttention::Rows& key,
                                           const PanelAttention::Rows& value, void* scratch) {
  const Parts parts(a, most_columns<lanes>, scratch);
  packKeys<lanes>(a, key, parts);
  packValues<lanes>(a, value, parts);
}

using Pack = void(const PanelAttention& a, const PanelAttention::Rows& key, const PanelAttention::Rows& value,
                  void* scratch);
struct Level {
  int64_t columns;
  Pack* pack;
  void (*run)(const Call& call);
};

[[ZEFUSE_AVX512]] void packAvx512(const PanelAttention& a, const PanelAttention::Rows& key,
                                  const PanelAttention::Rows& value, void* scratch) {
  packAll<16>(a, key, value, scratch);
}
[[ZEFUSE_AVX512]] void runAvx512(const Call& call) { runAll<16>(call); }

[[ZEFUSE_AVX2]] void packAvx2(const PanelAttention& a, const PanelAttention::Rows& key,
                              const PanelAttention::Rows& value, void* scratch) {
  packAll<8>(a, key, value, scratch);
}
[[ZEFUSE_AVX2]] void runAvx2(const Call& call) { runAll<8>(call); }

const Level* level() {
  static constexpr Level avx512 = {most_columns<16>, packAvx512, runAvx512};
  static constexpr Level avx2 = {most_columns<8>, packAvx2, runAvx2};
  return hasIsa(dnnl_cpu_isa_avx512_core) ? &avx512 : hasIsa(dnnl_cpu_isa_avx2) ? &avx2 : nullptr;
}

}  // namespace

bool PanelAttention::available() { return level() != nullptr; }

int64_t PanelAttention::mostQueries() { return most_panels * level()->columns; }

int64_t PanelAttention::queriesOfPanel() { return level()->columns; }

size_t PanelAttention::scratchBytes() const { return Parts(*this, level()->columns, nullptr).bytes; }

void PanelAttention::pack(const Rows& key, const Rows& value, void* scratch) const {
  level()->pack(*this, key, value, scratch);
}

void PanelAttention::run(const Rows& query, int64_t first, int64_t count, float scale, bool causal, const Mask& mask,
                         const Results& to, void* scratch) const {
  const Level& with = *level();
  with.run({*this, query, first, count, scale, causal, mask, to, Parts(*this, with.columns, scratch)});
}

}  // namespace zefuse::primitives
