// The zefuse dialect: views, library calls and kernels. Zefuse.td documents each operation, docs/ir.md the stages.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "lowering/dialect/ZefuseDialect.h.inc"

namespace zefuse {

// How an operand of a plan's step has to lie in memory.
enum class OperandRule {
  any,            // any map from indices to elements: kernels
  strided,        // any strides
  matrix,         // oneDNN's of a product: no negative strides, a unit stride in one of the last two dimensions
  rows,           // contiguous rows that do not overlap
  channels_last,  // dense, channels innermost
  fixed           // getFixedOperandStrides
};

// On a zefuse.matmul or zefuse.convolution: who was measured to be quickest, where the cost model said another
// (`zefuse tune`): "kernel", or a way of the CPU's library (plan::LibraryWay).
inline constexpr const char* implementation_attribute = "zefuse.implementation";
bool isMeasuredKernel(mlir::Operation* op);

// The names of post-ops besides add and mul, and of `zefuse.activation`.
bool isActivation(llvm::StringRef name);
// Of a PostOpsOpInterface: the names, and as many operands as they take.
mlir::LogicalResult verifyPostOps(mlir::Operation* op);

}  // namespace zefuse

#include "lowering/dialect/Interfaces.h.inc"

#define GET_OP_CLASSES
#include "lowering/dialect/Zefuse.h.inc"

namespace zefuse {
// Every dialect that zefuse's own IR uses at stages 1 to 3.
void registerDialects(mlir::DialectRegistry& registry);
}  // namespace zefuse
