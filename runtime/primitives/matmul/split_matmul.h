// A matmul of f32 in AMX's tiles of bf16, by the parts of its numbers (splits.h): nearer to double precision than sums
// in registers, and up to twice as fast on a core that has nothing else to do. Where its other hardware thread is busy
// it may be slower, so it is taken where a measurement chose it.
#pragma once

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

// Built by build(); then immutable. The sums of an element have one order, whatever the number of threads.
class SplitMatmul final : public Prepared<Matmul> {
public:
  // nullptr unless the descriptor asks for this way, where this processor has no tiles, or does not take the product
  // (other element types, scaled ones, rows of the result that are not contiguous). `desc` is canonical.
  static Result<std::shared_ptr<const Matmul>> build(const MatmulDesc& desc);

  size_t packedBytes() const override;
  Status packB(const void* b, void* packed) const override;
  bool packsLike(const Primitive& other) const override;
  Status run(const Primitive::Arguments& arguments) const override;

private:
  struct Run;
  struct Block;
  struct EdgeBlock;
  explicit SplitMatmul(const MatmulDesc& desc);
  size_t panelBytes() const;
  const uint16_t* leftOf(const Run& run, int64_t batch) const;
  void splitLeftSide(const Run& run) const;
  void multiplyBlock(const Run& run, const Block& block, int64_t step, int64_t steps, EdgeBlock& edge) const;
  void multiplyPacked(const Run& run) const;
  void multiplyGiven(const Run& run) const;
  void multiplyPlainRows(const Run& run) const;

  MatmulDesc desc_;
  bool native_bias_ = false;  // one number for each column
  int64_t batch_ = 1, left_batch_ = 1;
  int64_t rows_, columns_, depth_;
  int64_t steps_, row_blocks_, column_blocks_;  // in whole blocks
  int64_t panel_;                               // blocks of columns that a thread takes apart at once
  int threads_;
  size_t left_at_ = 0, right_at_ = 0, plain_at_ = 0;  // in scratch
};

}  // namespace zefuse::primitives
