// Stage 1 to stage 2: the steps of fusion, in the order the pipeline runs them. Each takes the function @graph and
// fails with a diagnostic at the offending op. docs/ir.md says what holds after the last.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Support/LLVM.h"

namespace zefuse {

// Composes views, turns copies into views where nobody can tell, removes what is dead or repeated.
mlir::LogicalResult prepare(mlir::func::FuncOp graph);

// A matmul takes the activation that follows it, where its result is used by nothing else.
mlir::LogicalResult fuseLibraryEpilogues(mlir::func::FuncOp graph);

// A reduction with too few results for several threads becomes partial results over a fixed number of slices, and their
// combination. Static sizes.
mlir::LogicalResult splitReductions(mlir::func::FuncOp graph);

// Groups compute operations into zefuse.kernel operations. Layouts are still contiguous.
// `merge` false: one kernel per compute operation. What could not be joined and why stays on the function as
// `zefuse.not_joined = [{first, second, reason}]`; the numbers are those in the kernels' `zefuse.groups`.
mlir::LogicalResult fuseKernels(mlir::func::FuncOp graph, bool merge = true);

// Chooses the layout of every value in memory: what eager's output strides, ATen and oneDNN ask for, as few copies as
// possible. Inserts the copies that remain, as kernels.
mlir::LogicalResult assignLayouts(mlir::func::FuncOp graph);

// A kernel that its schedule refuses, now that layouts are known, becomes a kernel per operation; the reason goes to
// `zefuse.not_joined`. What fuseKernels asks of the schedule leaves nothing here: this keeps a disagreement of the two
// from costing the graph.
mlir::LogicalResult divideRefusedKernels(mlir::func::FuncOp graph);

// Kernels that compute the same of different tensors and may run at one point become one launch (`batch` of
// zefuse.kernel). After layouts are assigned; for targets whose schedule runs batches.
mlir::LogicalResult batchKernels(mlir::func::FuncOp graph);

// Says which results of kernels go straight into the memory of an argument that the graph overwrites (docs/ir.md).
// For the CPU, whose kernels can.
mlir::LogicalResult writeInPlace(mlir::func::FuncOp graph);

// Kernels that read the same data, in different iteration spaces, and need nothing of each other become one launch of
// several parts (`zefuse.parts`). Last, for the CPU: what writes in place stays alone.
// `why_none`, where not empty: none do, and this is said of each pair that reads the same data.
mlir::LogicalResult joinSideBySide(mlir::func::FuncOp graph, llvm::StringRef why_none = {});

}  // namespace zefuse
