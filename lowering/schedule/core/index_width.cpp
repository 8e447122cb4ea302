#include "lowering/schedule/core/index_width.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t most = int64_t(1) << 30;

bool isSmall(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return true;
  if (!tensor.hasStaticShape())
    return false;
  int64_t elements = 1;  // stays below 2^60
  for (int64_t size : tensor.getShape())
    if ((elements *= size) >= most)
      return size == 0;
  return true;
}

struct Range {
  int64_t least, largest;
};

// Of an expression over dims of these sizes; none: it is not bounded, or too large to say.
std::optional<Range> rangeOf(AffineExpr expr, ArrayRef<int64_t> sizes) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return Range{constant.getValue(), constant.getValue()};
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return Range{0, std::max<int64_t>(0, sizes[dim.getPosition()] - 1)};
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  auto lhs = rangeOf(binary.getLHS(), sizes), rhs = rangeOf(binary.getRHS(), sizes);
  if (!lhs || !rhs)
    return std::nullopt;
  auto small = [](Range range) {
    return range.least > -most && range.largest < most ? std::optional(range) : std::nullopt;
  };
  const bool divides = rhs->least == rhs->largest && rhs->least > 0;
  switch (expr.getKind()) {
  case AffineExprKind::Add: return small({lhs->least + rhs->least, lhs->largest + rhs->largest});
  case AffineExprKind::Mul: {
    const int64_t corners[] = {lhs->least * rhs->least, lhs->least * rhs->largest, lhs->largest * rhs->least,
                               lhs->largest * rhs->largest};
    return small({*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)});
  }
  case AffineExprKind::Mod: return divides ? std::optional(Range{0, rhs->least - 1}) : std::nullopt;
  case AffineExprKind::FloorDiv:
  case AffineExprKind::CeilDiv: return divides ? lhs : std::nullopt;  // not exact: nearer to zero
  default: return std::nullopt;
  }
}

// Operations that take an index and make no other one, or none that is not a dim's.
bool keepsIndices(Operation* op) {
  auto hasIndex = [](TypeRange types) {
    return llvm::any_of(types, [](Type type) { return getElementTypeOrSelf(type).isIndex(); });
  };
  return isa<linalg::IndexOp, arith::ConstantOp>(op) ||
         (isa<arith::IndexCastOp, arith::IndexCastUIOp>(op) && !hasIndex(op->getResultTypes())) ||
         (!hasIndex(op->getOperandTypes()) && !hasIndex(op->getResultTypes()));
}

}  // namespace

unsigned indexBits(KernelOp kernel, ArrayRef<AffineMap> layouts) {
  constexpr unsigned narrow = 32, wide = 64;
  Block& body = kernel.getBody().front();
  SmallVector<Type> types(body.getArgumentTypes());
  llvm::append_range(types, body.getTerminator()->getOperandTypes());
  if (types.size() != layouts.size())
    return wide;  // a batch
  for (auto [type, layout] : llvm::zip(types, layouts)) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !isSmall(tensor) || layout.getNumResults() != 1 || layout.getNumDims() != tensor.getRank() ||
        !rangeOf(layout.getResult(0), tensor.getShape()))
      return wide;
  }
  const bool small = !kernel.getBody()
                          .walk([](Operation* op) {
                            const bool data = isa<tensor::ExtractOp, CheckedIndexOp, ScatterOp, SortOp>(op);
                            const bool fits = !data && keepsIndices(op) && llvm::all_of(op->getResultTypes(), isSmall);
                            return fits ? WalkResult::advance() : WalkResult::interrupt();
                          })
                          .wasInterrupted();
  return small ? narrow : wide;
}

}  // namespace zefuse
