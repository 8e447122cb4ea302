// Attention of bf16 by blocks of rows, multiplied in AMX's tiles by loops of our own: keys and values are laid out for
// that once a head, scores stay in the cache as f32, and softmax writes its weights as bf16 over them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zefuse::primitives {

struct TiledAttention {
  int64_t rows;                // of a block at most
  int64_t keys, depth, width;  // of a head

  // Whether this processor has the tiles, and ONEDNN_MAX_CPU_ISA allows them.
  static bool available();

  // Of a thread; a multiple of 64.
  size_t scratchBytes() const;

  // Lays out keys [keys, depth] and values [keys, width] of a head, whose rows are so many elements apart.
  void pack(const __bf16* key, int64_t key_row, const __bf16* value, int64_t value_row, void* scratch) const;

  // out [count, width] = softmax(scale * query [count, depth] @ key^T) @ value, with what pack() left in `scratch`.
  // `first`: the block's place among the rows; with `causal` row s sees keys 0 to s. `log_sums`, not null: of each row
  // the logarithm of the sum of its exponentials, so many elements apart.
  void run(const __bf16* query, int64_t query_row, int64_t first, int64_t count, float scale, bool causal, __bf16* out,
           int64_t out_row, float* log_sums, int64_t log_sums_row, void* scratch) const;
};

}  // namespace zefuse::primitives
