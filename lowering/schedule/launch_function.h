// The function that a launch calls: its parameters, and what of the kernel each of them is.
#pragma once

#include "lowering/dialect/Zefuse.h"
#include "lowering/schedule/core/batch.h"
#include "lowering/schedule/core/lowered_kernel.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zefuse {

struct LaunchFunction {
  mlir::func::FuncOp op;
  Evaluator::Arguments arguments;  // the first set's inputs
  mlir::Value scratch;             // pointer, null without
  bool in_place = false;           // some outputs lie where inputs do
};

// Creates the function with an empty body, into which the builder then points, and fills in its pointers in `batch` and
// its name, symbols and checks in `launch`. `launch.scratch_bytes`, null for none, decides whether it takes scratch.
LaunchFunction beginFunction(mlir::OpBuilder& builder, KernelOp kernel, int64_t alignment, unsigned graph_symbols,
                             Batch& batch, LoweredKernel& launch);

}  // namespace zefuse
