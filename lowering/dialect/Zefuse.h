// The zefuse dialect: views, library calls and kernels. Zefuse.td documents each operation, docs/ir.md the stages.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "lowering/dialect/ZefuseDialect.h.inc"

#define GET_OP_CLASSES
#include "lowering/dialect/Zefuse.h.inc"

namespace zefuse {
// Every dialect that zefuse's own IR uses at stages 1 to 3.
void registerDialects(mlir::DialectRegistry& registry);
}  // namespace zefuse
