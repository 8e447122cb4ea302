// What the kernels of attention's derivatives share: their operands, by what a group owns and what passes by
// (gpu_attention_gradient.cpp), and the rows' sums.
#pragma once

#include "lowering/schedule/products/attention_emitter.h"
#include "lowering/schedule/products/attention_gradient_call.h"
#include "lowering/schedule/products/call_kernel.h"

namespace zefuse {

class AttentionGradientEmitter : protected AttentionEmitter {
protected:
  AttentionGradientEmitter(const AttentionGradientCall& call, CallKernel& kernel, int64_t rows, int64_t lanes,
                           const MatrixOperation* engine);

  // Sets the batch from its number in a row-major space of the first result's batches; of keys that several heads of
  // queries share the first of those. Returns how many share them: they follow one another.
  int64_t bindBatch(mlir::Value batch);
  // The totals after `pass` over each of the `sharers` (bindBatch), whose results it is called with.
  llvm::SmallVector<mlir::Value>
  overSharers(int64_t sharers, llvm::SmallVector<mlir::Value> totals,
              llvm::function_ref<llvm::SmallVector<mlir::Value>(llvm::SmallVector<mlir::Value>)> pass);
  // A tensor's indices in this batch of the queries: heads that several query heads share are fewer.
  llvm::SmallVector<mlir::Value> indices(const StridedTensor& tensor, mlir::Value row, mlir::Value column);

  // A tensor as a product's operand, in this batch.
  ProductSource source(const StridedTensor& tensor);

  // 0: with the head's depth, 1: with the values' columns.
  const StridedTensor& own(int number) const;
  const StridedTensor& passing(int number) const;
  // Whether a result is a product with this passing tensor.
  bool multiplied(int number) const { return number == 0 || call_.of_keys; }
  int64_t headSize(int number) const { return (number == 0 ? call_.q : call_.v).getShape().back(); }
  const StridedTensor& result(int number) const { return k_.tensor(first_result_ + unsigned(number)); }

  // Where the log-sum-exp or the delta of a query lies, or of the last one for those behind it.
  mlir::Value rowSumOffset(const StridedTensor& tensor, mlir::Value query);
  // A query's log-sum-exp, 0 where it is -inf (nothing is seen, and exp(-inf - -inf) would be NaN), and its delta; both
  // 0 where `exists` (null: always) does not hold.
  std::pair<mlir::Value, mlir::Value> rowSums(mlir::Value query, mlir::Value exists);

  CallKernel& k_;
  const size_t rank_;
  llvm::SmallVector<mlir::Value> batch_;  // one index per dimension of the queries; the last two are null
  const AttentionGradientCall& call_;
  const Extent own_, passing_;

private:
  const unsigned first_result_;
};

}  // namespace zefuse
