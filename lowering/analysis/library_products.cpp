#include "lowering/analysis/library_products.h"

#include "lowering/analysis/index_space.h"
#include "lowering/dialect/shape.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace zefuse {

std::optional<LibraryProducts> libraryProductsNamed(StringRef name) {
  return llvm::StringSwitch<std::optional<LibraryProducts>>(name)
      .Case("never", LibraryProducts::never)
      .Case("auto", LibraryProducts::large)
      .Case("always", LibraryProducts::always)
      .Default(std::nullopt);
}

std::optional<int64_t> libraryWork(MatmulOp op, const TargetDescription& target, LibraryProducts which) {
  // On a H100 the smallest products measured, of 16 rows, 768 deep, 768 columns, took half the time there
  // (docs/gpu.md).
  constexpr int64_t from = int64_t(1) << 23;  // multiplications
  constexpr int64_t fewest_rows = 16;
  constexpr int64_t unknown = 256;  // a symbolic size
  if (which == LibraryProducts::never || target.product_library.empty() || !op.getPostOps().empty())
    return std::nullopt;
  const Type type = getElementTypeOrSelf(op.getA());
  if ((!type.isF32() && !type.isBF16() && !type.isF16()) || getElementTypeOrSelf(op.getB()) != type ||
      op.getType().getElementType() != type || (op.getBias() && getElementTypeOrSelf(op.getBias()) != type))
    return std::nullopt;
  if (which == LibraryProducts::always)
    return 0;
  const SmallVector<AffineExpr> result = shapeOf(op.getType());
  auto sizeOf = [&](AffineExpr size) { return double(constantOf(size).value_or(unknown)); };
  double work = sizeOf(shapeOf(cast<RankedTensorType>(op.getA().getType())).back());
  for (AffineExpr size : result)
    work *= sizeOf(size);
  for (AffineExpr side : ArrayRef(result).take_back(2))
    if (constantOf(side) && *constantOf(side) < fewest_rows)
      return std::nullopt;
  return work >= double(from) ? std::optional(from) : std::nullopt;
}

}  // namespace zefuse
