// Attention of f32, or of bf16 that is widened, by panels of queries, multiplied in registers by loops of our own: keys
// and values are laid out for that once a head, and the scores of a panel and a block of keys, [keys, queries], are the
// right side of the second product as they lie, with a softmax down their columns that has no remainder. They stay in
// the first-level cache: the softmax goes on from block to block (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace zefuse::primitives {

struct PanelAttention {
  int64_t keys, depth, width;  // of a head
  bool narrow;                 // bf16

  // Rows of a head, [count, depth] or [count, width], `row` elements apart.
  struct Rows {
    const void* data;
    int64_t row;
  };
  // What is added to the scaled scores, [count, keys], so many elements apart: f32, or, `boolean`, a byte each,
  // -infinity where it is 0. Null: nothing.
  struct Mask {
    const void* data = nullptr;
    int64_t row = 0, key = 0;
    bool boolean = false;

    float at(int64_t row_number, int64_t key_number) const {
      const int64_t place = row_number * row + key_number * key;
      if (!boolean)
        return static_cast<const float*>(data)[place];
      return static_cast<const uint8_t*>(data)[place] ? 0 : -std::numeric_limits<float>::infinity();
    }
  };
  // Where results go: rows as above, and for each row the logarithm of the sum of its exponentials, or null.
  struct Results {
    void* out;
    int64_t out_row;
    float* log_sums;
    int64_t log_sums_row;
  };

  // Whether this processor has the vectors, and ONEDNN_MAX_CPU_ISA allows them.
  static bool available();
  // Rows of a call at most: 4 panels of 32 with AVX-512, of 16 with AVX2. What is computed for a row depends on its
  // panel alone.
  static int64_t mostQueries();
  static int64_t queriesOfPanel();

  // Of a thread; a multiple of 64.
  size_t scratchBytes() const;

  // Lays out the keys and values of a head.
  void pack(const Rows& key, const Rows& value, void* scratch) const;

  // out [count, width] = softmax(scale * query [count, depth] @ key^T + mask) @ value, with what pack() left in
  // `scratch`. `first`: the queries' place among the rows; with `causal` row s sees keys 0 to s. NaN anywhere in a
  // row's scores makes its results NaN; where all are -infinity they are zeros.
  void run(const Rows& query, int64_t first, int64_t count, float scale, bool causal, const Mask& mask,
           const Results& to, void* scratch) const;
};

}  // namespace zefuse::primitives
