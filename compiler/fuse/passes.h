// Stage 1 to stage 2 as passes: Passes.td says what each wants and leaves. They emit diagnostics at the offending op. A
// pass is one file, named after what it does.
#pragma once

#include <memory>
#include <string>

#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"

namespace zefuse {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/fuse/Passes.h.inc"

}  // namespace zefuse
