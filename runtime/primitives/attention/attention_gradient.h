// The derivatives of attention (attention.h) block by block: the scores of a block, recomputed from the rows' sums, and
// their gradient stay in the cache. See plan.fbs, table AttentionGradient, for its meaning.
#pragma once

#include <memory>
#include <optional>

#include "runtime/primitives/attention/tiled_attention_gradient.h"
#include "runtime/primitives/core/primitive.h"
#include "runtime/primitives/simd/panel_block.h"

namespace zefuse::primitives {

struct AttentionGradientDesc {
  // All f32 or all bf16: [B, H, S, D], [B, G, T, D], [B, G, T, E], [B, H, S, E]; H a multiple of G.
  TensorDesc query, key, value, gradient;
  TensorDesc log_sums, row_sums;  // f32 [B, H, S], any strides
  // As query, key and value; no sizes: nobody asks for it.
  TensorDesc query_gradient, key_gradient, value_gradient;
  float scale = 1;
  bool causal = false;
  bool operator==(const AttentionGradientDesc&) const = default;
};

// Rows of all but the sums are contiguous and lie at least their length apart; other strides are free. Immutable and
// thread-safe. run(): `operands` and `results` in the order of the descriptor.
//
// A unit of work is a run of blocks of keys of one head, or of the heads that share them: it has the gradients of its
// keys and values to itself, and adds to gradients of the queries, of which each run has its own, summed at the end in
// the order of the runs. Blocks and runs depend on sizes alone, so the bits do not depend on the number of threads.
// Five products a block (Dao et al., FlashAttention, 2022, appendix B), of one thread each, in panels (panel_block.h),
// without AVX2 by oneDNN's sgemm; of bf16 in tiles, and where the processor has none its operands are widened.
class AttentionGradient : public Primitive {
public:
  // invalid_argument when shapes do not fit together or strides are not as above; unsupported for other dtypes.
  static Result<std::shared_ptr<const AttentionGradient>> get(const AttentionGradientDesc& desc);

  explicit AttentionGradient(const AttentionGradientDesc& desc);

  size_t scratchBytes() const override;
  Status run(const Arguments& arguments) const override;
  const std::string& implementation() const override { return implementation_; }

private:
  struct Call;   // one run's arguments
  struct Parts;  // of a thread's scratch memory
  struct Keys;   // a block
  struct Rows {  // of f32, so many elements apart
    float* data;
    int64_t row;
  };

  bool isNarrow() const;
  // Whether the queries' gradients lie in scratch memory before they are written.
  bool gathers() const;
  float* gathered(const Call& call, int64_t run, int64_t batch, int64_t head, int64_t row) const;
  size_t scratchOfThread() const;
  size_t scratchOfQueries() const;

  // A tensor's rows as f32: where they lie, or in `copy`, which read() fills and write() empties.
  Rows rowsOf(const void* data, const TensorDesc& tensor, int64_t batch, int64_t head, int64_t first,
              float* copy) const;
  Rows read(const void* data, const TensorDesc& tensor, int64_t batch, int64_t head, int64_t first, int64_t count,
            float* copy) const;
  void write(Rows from, int64_t count, void* data, const TensorDesc& tensor, int64_t batch, int64_t head,
             int64_t first) const;
  static bool product(char left_form, char right_form, int64_t m, int64_t n, int64_t k, float factor, Rows left,
                      Rows right, float kept, Rows to);

  Status runUnit(const Call& call, int64_t unit, const Parts& parts) const;
  Status runBlock(const Call& call, const Keys& keys, const Parts& parts, int64_t run, int64_t head,
                  int64_t first) const;
  void runTiledUnit(const Call& call, int64_t unit, void* scratch) const;
  void sumRuns(const Call& call, int64_t batch, int64_t head, int64_t first) const;

  AttentionGradientDesc desc_;
  int64_t rows_, keys_;   // of a block
  int64_t key_blocks_;    // of one head
  int64_t blocks_a_run_;  // consecutive ones
  int64_t runs_;          // of one head
  int threads_;           // that scratch has room for
  std::optional<TiledAttentionGradient> tiled_;
  const PanelBlockLevel* panels_ = nullptr;  // products in panels; without: by sgemm
  std::string implementation_;
};

std::string toString(const AttentionGradientDesc& desc);

}  // namespace zefuse::primitives
