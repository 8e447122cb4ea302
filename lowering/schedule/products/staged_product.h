// The loop of a product along k whose operands pass through several stages of local memory: while one is multiplied,
// the copies of the next ones are under way, and one barrier a stage keeps them apart. Operands are in registers one
// step before they are multiplied, across the barrier too.
#pragma once

#include "lowering/schedule/products/gpu_product.h"

namespace zefuse {

struct StagedProduct {
  int64_t stages, depth, step;  // of a stage along k, and of what is multiplied at a time
  int64_t elements;             // of a stage
  bool asynchronous;
  bool apart = false;  // a stage's sums begin at zero, and are added to the totals at its end
  // Both operands from k on, inside, to the stage that begins at this element.
  std::function<void(mlir::Value start, mlir::Value k)> copy;
  // A step's operands in registers, k from the start of the stage.
  std::function<llvm::SmallVector<mlir::Value>(mlir::Value start, int64_t k)> load;
  std::function<void(llvm::ArrayRef<mlir::Value> operands, llvm::SmallVector<mlir::Value>& totals)> multiply;
};

// All work-items of the group. Returns the sums, which begin as `totals`.
llvm::SmallVector<mlir::Value> emitStagedProduct(mlir::OpBuilder& builder, WorkGroup& group, const Extent& k,
                                                 const StagedProduct& product, llvm::SmallVector<mlir::Value> totals);

}  // namespace zefuse
