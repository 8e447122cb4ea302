// Scalar operations of linalg bodies in the types that kernels compute with, on scalars or vectors.
//
//   type       in memory   in registers
//   bf16, f16  i16         i16; extf and truncf are integer operations (round to nearest even). OpTypeFloat 16 would
//   need
//                          a capability that the OpenCL profile does not have, bfloat an extension.
//   i1         i8          i1
//   ui8        i8          i8: bodies convert by builtin.unrealized_conversion_cast
//   others     as they are
#pragma once

#include "mlir/IR/Builders.h"

namespace zefuse {

mlir::Type memoryType(mlir::Type type);
mlir::Type registerType(mlir::Type type);
int64_t bytesInMemory(mlir::Type type);

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

// The neutral element of a combiner (arith.addf, ...), in the register type.
mlir::TypedAttr neutralElement(mlir::Operation* combiner);

}  // namespace zefuse
