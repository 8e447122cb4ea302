// Products of two matrices of bf16 of which the left side is transposed, as every weight's gradient is (x^T dy), in
// AMX's tiles by loops of our own. oneDNN 3.2 takes up to twice as long, and many times as long where x has few rows
// and it does without tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives {

// Immutable. Both sides are laid out in tiles by the thread that multiplies them, a panel of bounded size after the
// other, and sums are f32. A sum's order is fixed by the shapes, so its bits are the same with any number of threads.
class TiledMatmul final : public Matmul {
public:
  // nullptr where it does not apply, or oneDNN is expected to be as quick. `desc` is canonical.
  static Result<std::shared_ptr<const Matmul>> build(const MatmulDesc& desc);

  size_t scratchBytes() const override;
  Status run(const Primitive::Arguments& arguments) const override;
  const std::string& implementation() const override { return implementation_; }

private:
  // A matrix of each batch: rows x columns of the product, or K of them.
  struct View {
    bool along;      // K is contiguous
    int64_t stride;  // of the other dimension
    std::vector<int64_t> batch;
  };
  // What one thread does at a time.
  struct Task {
    int64_t batch, slice, row, column;
  };
  TiledMatmul(const MatmulDesc& desc, int threads);
  void split(int threads);
  double nanoseconds(int64_t rows, int64_t columns, int64_t deep, int threads) const;
  bool keepsSums() const { return slices_ == 1 && depth_ > panel_depth_; }
  int64_t tasks() const { return batches_ * slices_ * row_parts_ * column_parts_; }
  Task task(int64_t index) const;
  int64_t offset(const std::vector<int64_t>& strides, int64_t batch) const;
  size_t threadBytes() const;
  float* partials(void* scratch) const;
  int64_t partialNumbers() const;  // of a slice and batch
  template <typename From, typename To> void runAs(const Primitive::Arguments& arguments) const;
  template <typename From, typename To>
  void runTasks(const Primitive::Arguments& arguments, int64_t begin, int64_t end, std::byte* scratch) const;
  template <typename To> void addSlices(const Primitive::Arguments& arguments) const;

  std::string text_, implementation_;
  bool wide_, wide_out_;  // operands and out of f32
  std::vector<int64_t> batch_sizes_;
  int64_t batches_, rows_, columns_, depth_;
  View a_, b_;
  int64_t out_row_;
  std::vector<int64_t> out_batch_;
  float alpha_;
  bool wide_bias_;  // of f32
  int64_t slices_ = 1, slice_depth_;
  int64_t task_rows_ = 0, task_columns_ = 0, panel_depth_ = 0, row_parts_ = 1, column_parts_ = 1;
  double nanoseconds_ = 0;
  int threads_;
};

}  // namespace zefuse::primitives
