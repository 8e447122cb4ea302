#include "runtime/recurrence/sequence.h"

#include <algorithm>
#include <cstring>

#include "runtime/primitives/simd/amx_tiles.h"
#include "runtime/primitives/simd/cpu_isa.h"
#include "runtime/recurrence/levels.h"

namespace zefuse::recurrence {

using plan::RecurrentCell;
using primitives::tile_depth, primitives::tile_rows;

namespace {

// The weight as the loops read it: blocks of units, in each all that one element of the left side meets, side by side.
constexpr int64_t vectors_of_units = 4;

struct Packing {
  bool gates_side_by_side;  // a vector per gate of the same units; otherwise a vector per group of units
  int64_t vectors, depth, units;
};

Packing packingOf(RecurrentCell cell, bool gradient, Matrix matrix) {
  if (gradient)
    return {false, vectors_of_units, matrix.rows, matrix.columns};
  const bool plain = cell == RecurrentCell::tanh || cell == RecurrentCell::relu;
  return {!plain, plain ? vectors_of_units : matrix.gates, matrix.columns, matrix.rows / matrix.gates};
}

Packing packingOf(RecurrentCell cell, bool gradient, int64_t gates, int64_t hidden) {
  return packingOf(cell, gradient, {gates, gates * hidden, hidden});
}

bool pairsAvailable() {
  static const bool there = primitives::hasIsa(dnnl_cpu_isa_avx512_core_bf16) && __builtin_cpu_supports("x86-64-v4");
  return there;
}

}  // namespace

void Meeting::wait(int64_t parts, int64_t phase) {
  const int64_t awaited = parts * phase;
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == awaited) {
    arrived_.notify_all();
    return;
  }
  // A step takes microseconds, which is less than waking a thread does.
  for (int spin = 0; spin < 4000; ++spin) {
    if (arrived_.load(std::memory_order_acquire) >= awaited)
      return;
    __builtin_ia32_pause();
  }
  for (int64_t seen; (seen = arrived_.load(std::memory_order_acquire)) < awaited;)
    arrived_.wait(seen, std::memory_order_acquire);
}

Division divide(int64_t threads, int64_t rows, int64_t blocks) {
  auto partsOf = [](int64_t count, int64_t parts) { return (count + parts - 1) / parts; };
  // What the busiest thread multiplies: a row costs as much as another, and loading the weight about as much as one.
  auto cost = [&](Division d) { return double(partsOf(blocks, d.blocks) * (partsOf(rows, d.rows) + 1)); };
  Division best{1, std::clamp<int64_t>(threads, 1, blocks)};
  double least = 0.8 * cost(best);  // parts of rows read the weight once more each
  for (int64_t parts = 2; parts <= std::min({threads, rows, most_row_parts}); ++parts) {
    const Division d{parts, std::min(threads / parts, blocks)};
    if (cost(d) < least) {
      best = d;
      least = cost(d);
    }
  }
  return best;
}

bool sharesOutRows(const Level& level, int64_t threads, int64_t rows, double weights) {
  // A weight that each core's second-level cache holds is quicker read by all than its units are shared out: floats.
  constexpr double cached = 1 << 18;
  // So many rows of a thread multiply with a weight for as long as a far cache takes to bring the next.
  constexpr double many_rows = 48;
  const double bytes = level.bytes() / sizeof(float);  // of a weight, beside f32's
  const bool many = double(rows) >= many_rows * level.speed * bytes * double(threads);
  return rows >= 2 * threads && (weights * bytes <= cached || many);
}

const Level& level(bool narrow) {
  static constexpr Level tiles = {"tiles of bf16", 16, runTiles, true, 8, tile_depth},
                         pairs = {"pairs of bf16", 16, runPairs, true, 2, 2};
  if (narrow && primitives::tilesAvailable())
    return tiles;
  if (narrow && pairsAvailable())
    return pairs;
  static constexpr Level avx512 = {"avx512", 16, runAvx512}, avx2 = {"avx2", 8, runAvx2},
                         baseline = {"sse2", 4, runSse2};
  static const Level& chosen = []() -> const Level& {
    if (primitives::hasIsa(dnnl_cpu_isa_avx512_core) && __builtin_cpu_supports("x86-64-v4"))
      return avx512;
    return primitives::hasIsa(dnnl_cpu_isa_avx2) && __builtin_cpu_supports("x86-64-v3") ? avx2 : baseline;
  }();
  return chosen;
}

const Level& layerLevel(int64_t rows) {
  static constexpr Level splits = {"tiles of three bf16", 16, runSplits, false, 2, 0, true};
  // Fewer leave most of a tile empty, and read half as many bytes of the weight again as in registers.
  constexpr int64_t fewest_rows = 12;
  return primitives::tilesAvailable() && rows >= fewest_rows ? splits : level();
}

int64_t unitsOfBlock(RecurrentCell cell, bool gradient, int64_t lanes) {
  return packingOf(cell, gradient, 1, 1).gates_side_by_side ? lanes : vectors_of_units * lanes;
}

int64_t plainBlocks(int64_t units, int64_t lanes) {
  return (units + vectors_of_units * lanes - 1) / (vectors_of_units * lanes);
}

int64_t packedSize(RecurrentCell cell, bool gradient, Matrix matrix, int64_t lanes) {
  const Packing packing = packingOf(cell, gradient, matrix);
  const int64_t units = unitsOfBlock(cell, gradient, lanes), blocks = (packing.units + units - 1) / units;
  return blocks * packing.depth * packing.vectors * lanes;
}

template <typename Number>
void pack(RecurrentCell cell, bool gradient, Matrix matrix, int64_t lanes, const Number* weight, float* packed) {
  const Packing packing = packingOf(cell, gradient, matrix);
  const int64_t units = unitsOfBlock(cell, gradient, lanes), hidden = packing.units;
  const int64_t blocks = (hidden + units - 1) / units;
  const int64_t width = packing.vectors * lanes;
  for (int64_t block = 0; block < blocks; ++block, packed += packing.depth * width) {
    const int64_t first = block * units;
    if (gradient) {  // the weight's rows are the depth
      const int64_t count = std::min(width, hidden - first);
      for (int64_t k = 0; k < packing.depth; ++k) {
        float* to = std::copy_n(weight + k * hidden + first, count, packed + k * width);
        std::fill_n(to, width - count, 0.f);
      }
      continue;
    }
    // Transposed, by pieces that the nearest cache holds.
    constexpr int64_t piece = 16;
    for (int64_t from = 0; from < packing.depth; from += piece)
      for (int64_t column = 0; column < width; ++column) {
        const int64_t vector = column / lanes, lane = column % lanes;
        const int64_t unit = first + (packing.gates_side_by_side ? lane : column);
        const Number* row = weight + (packing.gates_side_by_side ? vector * hidden + unit : unit) * packing.depth;
        for (int64_t k = from, end = std::min(from + piece, packing.depth); k < end; ++k)
          packed[k * width + column] = unit < hidden ? float(row[k]) : 0.f;
      }
  }
}

template void pack(RecurrentCell, bool, Matrix, int64_t, const float*, float*);
template void pack(RecurrentCell, bool, Matrix, int64_t, const __bf16*, float*);

int64_t tiledDepth(int64_t hidden) { return (hidden + tile_depth - 1) / tile_depth * tile_depth; }

int64_t packedTiles(RecurrentCell cell, bool gradient, Matrix matrix) {
  const Packing packing = packingOf(cell, gradient, matrix);
  const int64_t units = unitsOfBlock(cell, gradient, tile_rows), blocks = (packing.units + units - 1) / units;
  return blocks * tiledDepth(packing.depth) * packing.vectors * tile_rows;
}

namespace {

// Where a tile's numbers are: unit (a lane) and number of the depth.
struct TileSource {
  const uint16_t* first;
  int64_t unit_stride, depth_stride;
  int64_t units, depth;  // that there are; zeros behind them
};

// A tile's pairs of numbers of the depth, for 16 units each; `to(pair)`: where those of a pair are.
template <typename Place> void packTile(const TileSource& source, Place&& to) {
  const bool whole = source.units >= tile_rows && source.depth >= tile_depth;
  if (whole && source.unit_stride == 1) {  // two rows side by side
    for (int64_t pair = 0; pair < tile_depth / 2; ++pair) {
      const uint16_t* row = source.first + 2 * pair * source.depth_stride;
      uint16_t* packed = to(pair);
      for (int64_t lane = 0; lane < tile_rows; ++lane) {
        packed[2 * lane] = row[lane];
        packed[2 * lane + 1] = row[source.depth_stride + lane];
      }
    }
  } else if (whole && source.depth_stride == 1) {
    for (int64_t lane = 0; lane < tile_rows; ++lane) {
      const uint16_t* row = source.first + lane * source.unit_stride;
      for (int64_t pair = 0; pair < tile_depth / 2; ++pair)
        std::memcpy(to(pair) + 2 * lane, row + 2 * pair, 2 * sizeof(uint16_t));
    }
  } else {
    for (int64_t lane = 0; lane < tile_rows; ++lane)
      for (int64_t k = 0; k < tile_depth; ++k)
        to(k / 2)[2 * lane + k % 2] = lane < source.units && k < source.depth
                                          ? source.first[lane * source.unit_stride + k * source.depth_stride]
                                          : uint16_t(0);
  }
}

}  // namespace

void packTiles(RecurrentCell cell, bool gradient, Matrix matrix, int64_t together, const uint16_t* weight,
               uint16_t* packed) {
  const Packing packing = packingOf(cell, gradient, matrix);
  const int64_t units = unitsOfBlock(cell, gradient, tile_rows), hidden = packing.units;
  const int64_t blocks = (hidden + units - 1) / units;
  const int64_t width = packing.vectors * tile_rows;
  // A derivative's weight has its rows along the depth.
  const int64_t unit_stride = gradient ? 1 : packing.depth, depth_stride = gradient ? hidden : 1;
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t first = 0; first < packing.depth; first += tile_depth, packed += tile_depth * width)
      for (int64_t vector = 0; vector < packing.vectors; ++vector) {
        const int64_t unit = block * units + (packing.gates_side_by_side ? 0 : vector * tile_rows);
        const int64_t row = packing.gates_side_by_side ? vector * hidden + unit : unit;
        const TileSource source{weight + row * unit_stride + first * depth_stride, unit_stride, depth_stride,
                                hidden - unit, packing.depth - first};
        uint16_t* tile = packed + vector * together * tile_rows;
        packTile(source, [&](int64_t pair) {
          return tile + 2 * pair / together * together * width + 2 * pair % together * tile_rows;
        });
      }
}

}  // namespace zefuse::recurrence
