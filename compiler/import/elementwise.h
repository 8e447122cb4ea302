// Element-wise operators with torch's rules: type promotion, broadcasting, f32 arithmetic for f16 and bf16.
#pragma once

#include "compiler/import/op.h"

namespace zefuse {

// A Python number as an element of this type.
Scalar loadNumber(Body& body, const fx::Argument& number, mlir::Type type);

// torch.result_type of the operands: tensors with dimensions decide before 0-d tensors, those before Python numbers.
mlir::Type promote(llvm::ArrayRef<TensorOrNumber> operands, mlir::MLIRContext* context);

// f32 for integers and bool, as torch's float functions convert.
mlir::Type floatType(mlir::Type type);

// What becomes of a Python number beside f16 or bf16. Eager multiplies and divides by the number itself, or a 0-d
// tensor's of another type, and makes it one of their type where it comes first, to add it, to compare with it, for a
// remainder or a power: bf16's 0.3 is 0.30078, and `x == 0.3` true of it.
enum class Numbers : uint8_t { as_given, rounded, first_rounded };

// Result 0 of `op`. Operands are converted to `common` as torch does, then body computes in computeType(common); what
// it returns is converted to the result's dtype. Operands broadcast to the result's shape.
mlir::Value elementwise(Op& op, llvm::ArrayRef<TensorOrNumber> operands, mlir::Type common, BodyFunction body,
                        Numbers numbers = Numbers::as_given);

}  // namespace zefuse
