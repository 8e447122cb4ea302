// Batches: one launch that runs a kernel's body over several independent sets of tensors (zefuse.kernel, `batch`). The
// units of all sets, one set after the other, are what the groups share.
#pragma once

#include "lowering/schedule/core/evaluator.h"

namespace zefuse {

struct Batch {
  int64_t sets = 1;
  llvm::ArrayRef<int64_t> sizes;  // elements of each set when these differ: then `size` is the symbol that stands for
  mlir::AffineExpr size;          // them in the domain
  llvm::SmallVector<mlir::Value> inputs, outputs;  // pointers, the first set's first
  llvm::SmallVector<mlir::Value> inputs_of_body;   // the tensors that one set's inputs stand for

  mlir::AffineExpr unitsOfAll(const IndexSpace& space, mlir::AffineExpr units) const;
};

// Calls `body` with the part of begin..end that lies in a set, for each set (in a loop when there are several), with
// the set's tensors bound: inputs in the evaluator, outputs in `outputs`. `units`: of one set.
void overSets(const Batch& batch, Evaluator& evaluator, mlir::AffineExpr units, mlir::Value begin, mlir::Value end,
              llvm::MutableArrayRef<mlir::Value> outputs, llvm::function_ref<void(mlir::Value, mlir::Value)> body);

}  // namespace zefuse
