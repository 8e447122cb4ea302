#include "compiler/import/contract.h"

#include "compiler/builder/dtype.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace zefuse {
namespace {

class Contract {
public:
  explicit Contract(func::FuncOp function) : function_(function) {}

  LogicalResult check() {
    auto symbols = function_->getAttrOfType<ArrayAttr>("zefuse.symbols");
    if (!symbols)
      return function_.emitError("stage 1: the function has no zefuse.symbols");
    num_symbols_ = symbols.size();
    for (StringRef name : {"zefuse.symbol_sources", "zefuse.inputs", "zefuse.outputs"})
      if (!function_->getAttrOfType<ArrayAttr>(name))
        return function_.emitError("stage 1: the function has no ") << name;
    for (BlockArgument argument : function_.getArguments())
      if (failed(checkType(argument.getType(), function_)))
        return failure();
    for (Operation& op : function_.getBody().front())
      if (failed(checkTopLevel(op)))
        return failure();
    return success();
  }

private:
  LogicalResult checkType(Type type, Operation* op) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor)
      return isa<TensorType>(type) ? op->emitError("stage 1: unranked tensor ") << type : success();
    Type element = tensor.getElementType();
    if (!element.isIntOrFloat())
      return op->emitError("stage 1: element type of ") << type << " is neither integer nor float";
    auto encoding = dyn_cast_or_null<AffineMapAttr>(tensor.getEncoding());
    if (tensor.hasStaticShape())
      return tensor.getEncoding() ? op->emitError("stage 1: static type with an encoding: ") << type : success();
    if (!encoding)
      return op->emitError("stage 1: dynamic type without a size map: ") << type;
    AffineMap map = encoding.getValue();
    if (map.getNumDims() != 0 || map.getNumSymbols() != num_symbols_ || map.getNumResults() != tensor.getRank())
      return op->emitError("stage 1: the size map of ") << type << " must have 0 dimensions, " << num_symbols_
                                                        << " symbols and " << tensor.getRank() << " results";
    for (int64_t dim = 0; dim < tensor.getRank(); ++dim) {
      auto constant = dyn_cast<AffineConstantExpr>(map.getResult(dim));
      if (constant ? tensor.getDimSize(dim) != constant.getValue() : !tensor.isDynamicDim(dim))
        return op->emitError("stage 1: size map and shape differ in dimension ") << dim << " of " << type;
    }
    return success();
  }

  LogicalResult checkTopLevel(Operation& op) {
    if (auto alternatives = dyn_cast<AlternativesOp>(op)) {
      for (Region& form : alternatives.getForms())
        for (Operation& inner : form.front().without_terminator())
          if (failed(checkTopLevel(inner)))
            return failure();
      return success();
    }
    for (Type type : llvm::concat<const Type>(op.getOperandTypes(), op.getResultTypes()))
      if (failed(checkType(type, &op)))
        return failure();
    if (auto generic = dyn_cast<linalg::GenericOp>(op))
      return checkGeneric(generic);
    if (auto view = dyn_cast<ViewOp>(op))
      return checkSymbols(view.getMap(), op);
    if (auto size = dyn_cast<SizeOp>(op))
      return checkSymbols(size.getMap(), op);
    if (auto fill = dyn_cast<linalg::FillOp>(op))
      return checkFill(fill);
    if (isa<ScatterOp, ScanOp>(op))
      return checkScalars(op);
    if (isa<StepOpInterface>(op) && !isa<KernelOp>(op))  // a call
      return success();
    if (isa<tensor::EmptyOp, tensor::ConcatOp, PadOp, SortOp, arith::ConstantOp, func::ReturnOp>(op))
      return success();
    return op.emitError("stage 1: not allowed outside a linalg.generic");
  }

  LogicalResult checkSymbols(AffineMap map, Operation& op) {
    if (map.getNumSymbols() != num_symbols_)
      return op.emitError("stage 1: map has ") << map.getNumSymbols() << " symbols, the graph " << num_symbols_;
    return success();
  }

  // The body of a scatter or scan: scalars only.
  LogicalResult checkScalars(Operation& op) {
    for (Operation& inner : op.getRegion(0).front())
      if (!isa<arith::ArithDialect, math::MathDialect>(inner.getDialect()) &&
          !isa<YieldOp, UnrealizedConversionCastOp>(inner))
        return inner.emitError("stage 1: not allowed in a ") << op.getName() << " body";
    return success();
  }

  LogicalResult checkFill(linalg::FillOp fill) {
    for (Operation* user : fill->getUsers()) {
      auto generic = dyn_cast<linalg::GenericOp>(user);
      if (!generic || generic.getNumReductionLoops() == 0 || generic.getOutputs()[0] != fill.getResult(0))
        return fill.emitError("stage 1: linalg.fill may only be the init of a reduction");
    }
    return success();
  }

  LogicalResult checkGeneric(linalg::GenericOp generic) {
    if (generic.getNumDpsInits() != 1)
      return generic.emitError("stage 1: one output per linalg.generic");
    SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
    for (AffineMap map : ArrayRef(maps).drop_back())
      if (map.getNumSymbols() != 0 || !map.isProjectedPermutation(/*allowZeroInResults=*/true))
        return generic.emitError("stage 1: input map ") << AffineMapAttr::get(map) << " is not a projected permutation";
    if (generic.getNumReductionLoops() > 0)
      return checkReduction(generic, maps.back());
    if (!maps.back().isIdentity())
      return generic.emitError("stage 1: output map ") << AffineMapAttr::get(maps.back()) << " is not the identity";
    for (Operation& op : generic.getBody()->getOperations())
      if (failed(checkBody(op)))
        return failure();
    return success();
  }

  LogicalResult checkReduction(linalg::GenericOp generic, AffineMap output) {
    SmallVector<utils::IteratorType> iterators = generic.getIteratorTypesArray();
    SmallVector<AffineExpr> kept;
    for (auto [dim, iterator] : llvm::enumerate(iterators))
      if (iterator == utils::IteratorType::parallel)
        kept.push_back(getAffineDimExpr(dim, generic.getContext()));
    if (output.getResults() != ArrayRef(kept))
      return generic.emitError("stage 1: output map ")
             << AffineMapAttr::get(output) << " must drop exactly the reduced dimensions";
    if (!generic.getOutputs()[0].getDefiningOp<linalg::FillOp>())
      return generic.emitError("stage 1: a reduction's init must be a linalg.fill");
    auto operations = generic.getBody()->without_terminator();
    if (std::distance(operations.begin(), operations.end()) != 1 ||
        !isa<arith::AddFOp, arith::AddIOp, arith::MulFOp, arith::MulIOp, arith::MaximumFOp, arith::MinimumFOp,
             arith::MaxSIOp, arith::MinSIOp, arith::AndIOp, arith::OrIOp>(*operations.begin()))
      return generic.emitError("stage 1: a reduction's body is one combiner");
    return success();
  }

  LogicalResult checkBody(Operation& op) {
    if (isa<arith::ArithDialect, math::MathDialect>(op.getDialect()) ||
        isa<linalg::IndexOp, linalg::YieldOp, CheckedIndexOp, Dot4Op, UnrealizedConversionCastOp>(op))
      return success();
    if (auto size = dyn_cast<SizeOp>(op))
      return checkSymbols(size.getMap(), op);
    auto extract = dyn_cast<tensor::ExtractOp>(op);
    if (!extract)
      return op.emitError("stage 1: not allowed in a linalg.generic body");
    for (Value index : extract.getIndices())
      if (!index.getDefiningOp<CheckedIndexOp>() && !index.getDefiningOp<linalg::IndexOp>() &&
          !index.getDefiningOp<arith::ConstantOp>())
        return op.emitError("stage 1: an index must come from zefuse.checked_index, linalg.index or a constant");
    return success();
  }

  func::FuncOp function_;
  unsigned num_symbols_ = 0;
};

}  // namespace

LogicalResult verifyImported(ModuleOp module) {
  auto functions = module.getOps<func::FuncOp>();
  if (std::distance(functions.begin(), functions.end()) != 1)
    return module.emitError("stage 1: a module holds exactly one function");
  return Contract(*functions.begin()).check();
}

}  // namespace zefuse
