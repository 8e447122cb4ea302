// The derivatives of attention of bf16, block by block of keys and rows, multiplied in AMX's tiles by loops of our own.
// Scores and their gradient are made 32 x 32 at a time and leave the nearest cache as bf16.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zefuse::primitives {

struct TiledAttentionGradient {
  int64_t rows, keys;    // of a block at most
  int64_t depth, width;  // of a query and a key; of a value and an output

  // A block's rows; each tensor's rows are so many elements apart.
  struct Rows {
    int64_t count;
    int64_t first;  // of them among all, less that of the keys: with `causal` row s sees keys 0 to first + s
    const __bf16 *query, *gradient;
    int64_t query_row, gradient_row;
    const float *log_sums, *row_sums;
    int64_t log_sums_row, row_sums_row;
    float* of_query;  // [count, depth]; null: nobody asks for it
    bool adds;        // to what is in `of_query`
  };

  // Of a thread; a multiple of 64.
  size_t scratchBytes() const;

  // Lays out keys [count, depth] and values [count, width]; their gradients are zeros then.
  void begin(const __bf16* key, int64_t key_row, const __bf16* value, int64_t value_row, int64_t count,
             void* scratch) const;

  // Adds what these rows give, between begin() and end(). `with_key`, `with_value`: whether anybody asks for those.
  void add(const Rows& rows, int64_t count_of_keys, float scale, bool causal, bool with_key, bool with_value,
           void* scratch) const;

  // The gradients of the keys and of the values; null: nobody asks for it.
  void end(__bf16* of_key, int64_t key_row, __bf16* of_value, int64_t value_row, int64_t count, void* scratch) const;
};

}  // namespace zefuse::primitives
