// A matmul of f32 whose right side is packed once, in panels of 16 columns, by loops of our own: on processors with
// AVX2 and without AVX-512, where MKL's sgemm packs a weight anew in each call and oneDNN's products take longer still.
#pragma once

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

// Built by build(); then immutable. The sums of an element have one order, whatever the number of threads. Packed, the
// right side has its own size, in whole panels, and one packed copy serves any number of rows.
class PanelMatmul final : public Prepared<Matmul> {
public:
  // nullptr where it does not take the product (other element types, scaled ones, a right side that is not packed or
  // has batches, rows of the result that are not contiguous) or, unless the descriptor asks for this way, others are
  // expected to be as quick. `desc` is canonical.
  static Result<std::shared_ptr<const Matmul>> build(const MatmulDesc& desc);

  size_t packedBytes() const override;
  Status packB(const void* b, void* packed) const override;
  bool packsLike(const Primitive& other) const override;
  bool takesGivenB() const override { return true; }
  Status run(const Primitive::Arguments& arguments) const override;

private:
  struct Run;
  // What a thread multiplies: strips and panels, from the first to before the last.
  struct Part {
    int64_t first_strip, last_strip, first_panel, last_panel;
  };
  explicit PanelMatmul(const MatmulDesc& desc);
  void share(int threads);
  int64_t depthOf(int64_t block) const;
  int64_t firstRow(int64_t strip) const;
  void packPanel(const float* b, int64_t panel, int64_t k, int64_t depth, float* to) const;
  void packStrips(const Run& run, int64_t first, int64_t last, int64_t k, int64_t depth, float* to) const;
  void multiplyBlock(const Run& run, const Part& part, int64_t k, int64_t depth, float* scratch) const;
  void multiplyPart(const Run& run, const Part& part, float* scratch) const;

  MatmulDesc desc_;
  bool native_bias_;  // one number for each column
  int64_t batch_ = 1, rows_, columns_, depth_;
  int64_t strips_, panels_, depth_blocks_;  // strips: of one matrix
  int64_t row_parts_ = 1, column_parts_ = 1;
  int threads_;
  size_t scratch_at_ = 0, scratch_bytes_ = 0;  // of a thread: a group of panels, then strips
};

}  // namespace zefuse::primitives
