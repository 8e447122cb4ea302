// How elements lie in memory and what kernels compute with.
//
// clang-format off
//   type       in memory   in registers
//   bf16, f16  i16         i16; extf and truncf are integer operations (round to nearest even). OpTypeFloat 16 would
//                          need a capability that the OpenCL profile does not have, bfloat an extension.
//   i1         i8          i1
//   ui8        i8          i8: bodies convert by builtin.unrealized_conversion_cast
//   others     as they are
// clang-format on
#pragma once

#include "mlir/IR/BuiltinAttributeInterfaces.h"
#include "mlir/IR/Operation.h"

namespace zefuse {

mlir::Type memoryType(mlir::Type type);
mlir::Type registerType(mlir::Type type);
int64_t bytesInMemory(mlir::Type type);

// The neutral element of a combiner (arith.addf, ...), in the register type.
mlir::TypedAttr neutralElement(mlir::Operation* combiner);

}  // namespace zefuse
