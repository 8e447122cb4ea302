// Stage 2 to stage 4 as passes: Passes.td says what each wants and leaves. For zefuse-opt; lower.h is the compiler's
// door.
#pragma once

#include <memory>
#include <string>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace zefuse {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "lowering/Passes.h.inc"

}  // namespace zefuse
