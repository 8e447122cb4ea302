// Scaled dot product attention without a mask, row block by row block: the scores of a block stay in the cache.
// See plan.fbs, table Attention, for its meaning.
#pragma once

#include <memory>
#include <optional>

#include "runtime/primitives/attention/panel_attention.h"
#include "runtime/primitives/attention/tiled_attention.h"
#include "runtime/primitives/core/primitive.h"

namespace zefuse::primitives {

struct AttentionDesc {
  // All f32 or all bf16: [B, H, S, D], [B, G, T, D], [B, G, T, E], [B, H, S, E]; H a multiple of G.
  TensorDesc query, key, value, out;
  float scale = 1;      // of the scores
  bool causal = false;  // query s sees keys 0..s
  // f32 [B, H, S], any strides: of each row the logarithm of the sum of its exponentials. No sizes: nobody asks for it.
  TensorDesc log_sums{};
  // With f32 alone: of [B, H, S, T], or some of its last dimensions, sizes of 1 broadcast; any strides, none of them
  // negative. f32 is added to the scaled scores, b8 keeps where true. No sizes: there is none.
  TensorDesc mask{};
  bool operator==(const AttentionDesc&) const = default;
};

// Rows of all four are contiguous and lie at least their length apart; other strides are free. Immutable and
// thread-safe. run(): a is the query, b the key, post_op_operands[0] the value, [1] the mask, and results[0] the rows'
// sums. Each block of rows is two products around a softmax, on one thread: of bf16 in tiles, and where the processor
// has none in vectors, widened; of f32 in vectors; where rows are few, or the processor has no AVX2, two calls of
// oneDNN's sgemm. Blocks depend on sizes and processor alone, so the bits do not depend on the number of threads.
class Attention : public Primitive {
public:
  // invalid_argument when shapes do not fit together or strides are not as above; unsupported for other dtypes.
  static Result<std::shared_ptr<const Attention>> get(const AttentionDesc& desc);

  explicit Attention(const AttentionDesc& desc);

  size_t scratchBytes() const override;
  Status run(const Arguments& arguments) const override;
  const std::string& implementation() const override { return implementation_; }

private:
  // Where the operands of a block of rows lie, and how many elements apart their rows.
  struct Place {
    int64_t key_head;  // among all batches'
    int64_t first, rows;
    const void *query, *key, *value;
    void* out;
    float* log_sums;  // or null
    PanelAttention::Mask mask;
    int64_t query_row, key_row, value_row, out_row;
  };
  PanelAttention::Mask maskOf(const Arguments& arguments, int64_t batch, int64_t head, int64_t first) const;
  Place placeOf(const Arguments& arguments, int64_t block) const;
  void pack(const Place& place, void* scratch) const;
  Status runPlace(const Place& place, void* scratch) const;
  Status runBlock(const Place& place, float* scores) const;
  Status runWidened(const Place& place, float* scratch) const;
  void shareInPanels();
  size_t scratchOfThread() const;

  AttentionDesc desc_;
  int64_t rows_;    // of a block
  int64_t blocks_;  // of one head
  int threads_;     // that scratch has room for
  std::optional<TiledAttention> tiled_;
  std::optional<PanelAttention> panels_;
  std::string implementation_;
};

// "attention f32[1,6,1500,64] ... -> ..."
std::string toString(const AttentionDesc& desc);

}  // namespace zefuse::primitives
