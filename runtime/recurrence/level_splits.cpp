#include "runtime/recurrence/layer_splits.h"
#include "runtime/recurrence/levels.h"

namespace zefuse::recurrence {

namespace {

// Rounded by the bits: the processor's conversion takes subnormal numbers for zero, and here the parts must add up to
// the number. Of one that would round to infinity the high part is cut off for that.
[[ZEFUSE_TILES, gnu::always_inline]] inline void storeSplitExactly(uint16_t* to, Vector<16> x) {
  typedef uint32_t Bits __attribute__((vector_size(64)));
  typedef uint16_t Narrow __attribute__((vector_size(32), aligned(2)));
  const auto finite = x - x == 0.f, number = x == x;
  const Bits quiet = Bits{} + 0x7fc00000u;
  const auto rounds = (x < 0x1p127f) & (x > -0x1p127f);
#pragma clang loop unroll(full)
  for (int part = 0; part < split_parts; ++part) {
    const Bits bits = (Bits)x, rounded = bits + 0x7fffu + (bits >> 16 & 1);
    const Bits high = (part > 0 ? rounded : (Bits)(rounds ? rounded : number ? bits : quiet)) & 0xffff0000u;
    *reinterpret_cast<Narrow*>(to + part * tile_depth) = __builtin_convertvector(high >> 16, Narrow);
    const Vector<16> rest = x - (Vector<16>)high;
    x = finite ? rest : Vector<16>{};
  }
}

}  // namespace

[[ZEFUSE_TILES]] void runSplits(const Sequence& sequence, const Share& share) { runLayerInSplits(sequence, share); }

// Rows of 32 numbers of the depth at a time, of 16 units; the parts of each pair then go where a tile has it.
[[ZEFUSE_TILES]] void packSplits(const float* weight, int64_t units, int64_t depth, uint16_t* packed) {
  const int64_t tiles = (depth + tile_depth - 1) / tile_depth, blocks = (units + tile_rows - 1) / tile_rows;
  auto beyond = Vector<16>{} > most_split;
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t tile = 0; tile < tiles; ++tile)
      for (int64_t gate = 0; gate < 4; ++gate, packed += split_parts * tile_factors) {
        const int64_t numbers = std::min(tile_depth, depth - tile * tile_depth);
        for (int64_t lane = 0; lane < tile_rows; ++lane) {
          alignas(64) uint16_t parts[split_parts * tile_depth] = {};
          const int64_t unit = block * tile_rows + lane;
          const float* row = weight + (gate * units + unit) * depth + tile * tile_depth;
          for (int64_t k = 0; k < numbers && unit < units; k += tile_rows) {
            Vector<16> x;
            load<16>(x, row + k, numbers - k);
            beyond |= ~(x <= most_split) | ~(x >= -most_split);
            storeSplitExactly(parts + k, x);
          }
          for (int64_t part = 0; part < split_parts; ++part)
            for (int64_t pair = 0; pair < tile_rows; ++pair)
              std::memcpy(packed + part * tile_factors + (pair * tile_rows + lane) * 2,
                          parts + part * tile_depth + 2 * pair, 2 * sizeof(uint16_t));
        }
      }
  std::fill_n(packed, tile_depth, uint16_t(0));
  for (int lane = 0; lane < 16; ++lane)
    packed[0] |= uint16_t(beyond[lane] != 0);
}

}  // namespace zefuse::recurrence
