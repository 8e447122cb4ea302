// A product of f32 by loops of our own (panel_product.h): strips of rows times panels of 16 columns. Bias and post-ops
// follow while results are in the nearest cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/primitives/core/sequence.h"
#include "runtime/primitives/simd/row_post_ops.h"

namespace zefuse::primitives {

// Strides in elements.
struct PanelMatrix {
  int64_t batch, row, column;
};

struct PanelShape {
  int64_t batch, rows, columns, depth;
  PanelMatrix left, right, out;  // the result's columns are contiguous
  bool has_bias = false;         // slotBias is one f32 for each column
  std::vector<RowPostOp> post_ops = {};
  int left_slot = slotA, right_slot = slotB;
};

bool panelsAvailable();  // whether this processor has AVX2
// Whether it has, but not AVX-512, columns nearly fill their panels, and a call is worth its preparations.
bool panelsPay(const PanelShape& shape);
double panelNanoseconds(const PanelShape& shape);  // how long one thread takes, roughly

// The sums of an element have one order, whatever the number of threads. Packed, the right side has its own size, in
// whole panels, and one packed copy serves any number of rows.
class PanelStep final : public OwnStep {
public:
  // `packed`: slotWeights holds what pack() made, or nullptr, and then the right side is taken as it lies, with the
  // same bits. Reserves the sequence's scratch.
  PanelStep(Sequence& sequence, PanelShape shape, bool packed);

  size_t packedBytes() const;
  // With the calling thread's team. Thread-safe, as is run().
  void pack(const void* right, void* packed) const override;
  void run(std::span<void* const> addresses, std::byte* scratch) const override;

private:
  struct Run;
  struct Part;
  void share(int threads);
  int64_t depthOf(int64_t block) const;
  int64_t firstRow(int64_t strip) const;
  const float* stripOf(const Run& run, int64_t strip, int64_t k) const;
  int64_t rowsOf(int64_t strip) const;
  int64_t widthOf(int64_t panel) const;
  void packPanel(const float* right, int64_t panel, int64_t k, int64_t depth, float* to) const;
  void packStrips(const Run& run, const Part& part, int64_t k, int64_t depth, float* to) const;
  void multiplyBlock(const Run& run, const Part& part, int64_t k, int64_t depth, float* scratch) const;
  void multiplyPart(const Run& run, const Part& part, float* scratch) const;

  PanelShape shape_;
  bool packed_;
  bool in_place_;            // strips are read where they lie
  int64_t products_;         // each with a right side of its own
  int64_t strips_, panels_;  // strips: of one matrix
  int64_t columns_;          // of all panels
  int64_t depth_blocks_;
  bool short_post_ops_;  // within the products' code
  int64_t row_parts_ = 1, column_parts_ = 1;
  int threads_;
  size_t scratch_at_, scratch_bytes_;  // of a thread: a group of panels, then strips
};

}  // namespace zefuse::primitives
