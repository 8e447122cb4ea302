// Scalar operations of linalg bodies in the types that kernels compute with (analysis/element_types.h), on scalars or
// vectors.
#pragma once

#include "lowering/analysis/element_types.h"
#include "mlir/IR/Builders.h"

namespace zefuse {

// The same type with this many lanes; a scalar for one lane.
mlir::Type withLanes(mlir::Type scalar, unsigned lanes);
unsigned lanesOf(mlir::Value value);

mlir::Value toRegister(mlir::OpBuilder& builder, mlir::Location loc, mlir::Value loaded, mlir::Type type);
mlir::Value toMemory(mlir::OpBuilder& builder, mlir::Location loc, mlir::Value value, mlir::Type type);

// Low-precision floats (16 bits in registers) to and from f32, rounding to nearest even.
mlir::Value widenToF32(mlir::OpBuilder& builder, mlir::Location loc, mlir::Value bits, mlir::Type type);
mlir::Value narrowFromF32(mlir::OpBuilder& builder, mlir::Location loc, mlir::Value value, mlir::Type type);

mlir::Value constantOfType(mlir::OpBuilder& builder, mlir::Location loc, mlir::TypedAttr value, unsigned lanes);
mlir::Value constantIndex(mlir::OpBuilder& builder, mlir::Location loc, int64_t value, unsigned lanes = 1);

// A scalar repeated in each lane; constants become vector constants.
mlir::Value splat(mlir::OpBuilder& builder, mlir::Value scalar, unsigned lanes);

// op applied to operands that all have `lanes` lanes and register types. The op must be legal (spirv/legality.h).
mlir::Value emitScalarOp(mlir::OpBuilder& builder, mlir::Operation* op, mlir::ValueRange operands, unsigned lanes);

}  // namespace zefuse
