// torch's dtypes as MLIR element types, and torch's type promotion on them.
#pragma once

#include <string>

#include "mlir/IR/BuiltinTypes.h"

namespace zefuse::fx {

// torch's ScalarType numbers (c10/core/ScalarType.h): part of torch's serialized formats, so they are stable.
enum ScalarType : int {
  kU8 = 0,
  kI8 = 1,
  kI16 = 2,
  kI32 = 3,
  kI64 = 4,
  kF16 = 5,
  kF32 = 6,
  kF64 = 7,
  kBool = 11,
  kBF16 = 15
};

// The element type, or null for a dtype that zefuse cannot hold. u8 becomes ui8, which arith has no operations for:
// Scalar (scalar.h) widens it.
mlir::Type elementType(int dtype, mlir::MLIRContext* context);
std::string dtypeName(int dtype);
std::string dtypeName(mlir::Type element);

// torch.promote_types.
mlir::Type promoteTypes(mlir::Type a, mlir::Type b);

// The type to compute in: f32 for f16 and bf16 (eager rounds once per operator), i16 for u8 (it holds all of u8's
// values, and what wraps there wraps alike when cut to 8 bits), otherwise the type itself.
mlir::Type computeType(mlir::Type element);

}  // namespace zefuse::fx
