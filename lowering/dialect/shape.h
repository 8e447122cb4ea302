// Symbolic shapes: a dynamic tensor type carries its sizes as an affine map encoding (docs/ir.md, "Types, sizes,
// symbols").
#pragma once

#include <optional>

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"

namespace zefuse {

// The tensor type with these sizes: constants become static dimensions, anything else '?' plus the encoding.
// `sizes` use symbols only, numbered as in the graph; `num_symbols` is the graph's count.
mlir::RankedTensorType shapedTensor(llvm::ArrayRef<mlir::AffineExpr> sizes, mlir::Type element, unsigned num_symbols);

// One expression per dimension: constants for a static type, the encoding's results otherwise.
llvm::SmallVector<mlir::AffineExpr> shapeOf(mlir::RankedTensorType type);

// The graph's symbol count as the type knows it (0 for a static type).
unsigned numSymbols(mlir::RankedTensorType type);

// Same sizes (symbolically) and possibly another element type.
bool sameShape(mlir::RankedTensorType a, mlir::RankedTensorType b);
mlir::RankedTensorType withElement(mlir::RankedTensorType type, mlir::Type element);

mlir::AffineExpr numElements(mlir::RankedTensorType type);
mlir::AffineExpr numElements(llvm::ArrayRef<mlir::AffineExpr> sizes, mlir::MLIRContext* context);

// Equal as polynomials, of which AffineExprs have no one form (lowering/dialect/polynomial.h).
bool sameValue(mlir::AffineExpr a, mlir::AffineExpr b);

// Whether a >= b for all sizes, which are never negative, as far as the polynomials tell.
bool isAtLeast(mlir::AffineExpr a, mlir::AffineExpr b);

// Row-major strides of a shape, in elements.
llvm::SmallVector<mlir::AffineExpr> contiguousStrides(llvm::ArrayRef<mlir::AffineExpr> sizes,
                                                      mlir::MLIRContext* context);

// The layout map of a strided buffer: (d0, ...)[symbols] -> (offset + sum d_i * stride_i).
mlir::AffineMap stridedLayout(llvm::ArrayRef<mlir::AffineExpr> strides, mlir::AffineExpr offset, unsigned num_symbols,
                              mlir::MLIRContext* context);
mlir::AffineMap contiguousLayout(mlir::RankedTensorType type, unsigned num_symbols);

// The strides of a layout map if it is strided (each dimension's coefficient free of dimensions), and its offset.
struct Strided {
  llvm::SmallVector<mlir::AffineExpr> strides;
  mlir::AffineExpr offset;
};
std::optional<Strided> asStrided(mlir::AffineMap layout, llvm::ArrayRef<mlir::AffineExpr> sizes);

// Simplifies with the knowledge that 0 <= d_i < sizes[i] where the size is a constant, and that all symbols are >= 0:
// removes floordiv and mod that cannot matter. What simplifyAffine does not see.
mlir::AffineExpr simplifyInBounds(mlir::AffineExpr expr, llvm::ArrayRef<mlir::AffineExpr> sizes, unsigned num_symbols);
mlir::AffineMap simplifyInBounds(mlir::AffineMap map, llvm::ArrayRef<mlir::AffineExpr> sizes);

}  // namespace zefuse
