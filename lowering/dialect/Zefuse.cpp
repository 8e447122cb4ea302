#include "lowering/dialect/Zefuse.h"

#include "lowering/dialect/shape.h"

using namespace mlir;

#include "lowering/dialect/ZefuseDialect.cpp.inc"

#define GET_OP_CLASSES
#include "lowering/dialect/Zefuse.cpp.inc"

namespace zefuse {

void ZefuseDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "lowering/dialect/Zefuse.cpp.inc"
      >();
}

void registerDialects(DialectRegistry& registry) {
  registry
      .insert<ZefuseDialect, affine::AffineDialect, arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect,
              LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect, tensor::TensorDialect, vector::VectorDialect>();
}

//===-- size ---------------------------------------------------------------------------------===//

LogicalResult SizeOp::verify() {
  if (getMap().getNumDims() != 0 || getMap().getNumResults() != 1)
    return emitOpError("wants a map without dimensions and with one result");
  return success();
}

//===-- view ---------------------------------------------------------------------------------===//

LogicalResult ViewOp::verify() {
  AffineMap map = getMap();
  if (map.getNumDims() != static_cast<unsigned>(getType().getRank()))
    return emitOpError("map has ") << map.getNumDims() << " dimensions, the result has rank " << getType().getRank();
  if (map.getNumResults() != static_cast<unsigned>(getSource().getType().getRank()))
    return emitOpError("map has ") << map.getNumResults() << " results, the source has rank "
                                   << getSource().getType().getRank();
  if (getType().getElementType() != getSource().getType().getElementType())
    return emitOpError("changes the element type");
  return success();
}

OpFoldResult ViewOp::fold(FoldAdaptor) {
  if (getType() == getSource().getType() && getMap().isIdentity())
    return getSource();
  return {};
}

namespace {

/// view(view(x)) is one view: the maps compose, and what only their composition shows to be trivial goes away.
struct ComposeViews : OpRewritePattern<ViewOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ViewOp op, PatternRewriter& rewriter) const override {
    auto inner = op.getSource().getDefiningOp<ViewOp>();
    if (!inner)
      return failure();
    // Both maps count the graph's symbols; compose() would append the second list instead of sharing it.
    AffineMap outer_map = op.getMap(), inner_map = inner.getMap();
    unsigned symbols = std::max(outer_map.getNumSymbols(), inner_map.getNumSymbols());
    SmallVector<AffineExpr> results;
    for (AffineExpr expr : inner_map.getResults())
      results.push_back(expr.replaceDims(outer_map.getResults()));
    AffineMap map = AffineMap::get(outer_map.getNumDims(), symbols, results, op.getContext());
    map = simplifyInBounds(map, shapeOf(op.getType()));
    rewriter.replaceOpWithNewOp<ViewOp>(op, op.getType(), inner.getSource(), map);
    return success();
  }
};

struct SimplifyViewMap : OpRewritePattern<ViewOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ViewOp op, PatternRewriter& rewriter) const override {
    AffineMap map = simplifyInBounds(op.getMap(), shapeOf(op.getType()));
    if (map == op.getMap())
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op.setMapAttr(AffineMapAttr::get(map)); });
    return success();
  }
};

}  // namespace

void ViewOp::getCanonicalizationPatterns(RewritePatternSet& patterns, MLIRContext* context) {
  patterns.add<ComposeViews, SimplifyViewMap>(context);
}

//===-- library calls ------------------------------------------------------------------------===//

namespace {

template <typename Call> LogicalResult verifyPostOps(Call call) {
  size_t taken = 0;
  for (StringRef post_op : call.getPostOps().template getAsValueRange<StringAttr>()) {
    if (post_op == "add" || post_op == "mul")
      ++taken;
    else if (!llvm::is_contained({"relu", "relu6", "gelu_erf", "gelu_tanh", "silu", "hardswish", "tanh", "sigmoid"},
                                 post_op))
      return call.emitOpError("unknown post-op '") << post_op << "'";
  }
  if (taken != call.getOperands_().size())
    return call.emitOpError("has ") << call.getOperands_().size() << " operands for " << taken
                                    << " add and mul post-ops";
  return success();
}

}  // namespace

//===-- matmul -------------------------------------------------------------------------------===//

LogicalResult MatmulOp::verify() {
  int64_t rank = getType().getRank();
  if (rank < 2 || getA().getType().getRank() != rank || getB().getType().getRank() != rank)
    return emitOpError("wants a, b and result of one rank, 2 or more");
  return verifyPostOps(*this);
}

//===-- convolution --------------------------------------------------------------------------===//

LogicalResult ConvolutionOp::verify() {
  const bool sliced = getSlices() != 1;
  int64_t rank = getType().getRank() - (sliced ? 1 : 0), spatial = rank - 2;
  if (sliced && (getType().getShape()[0] != static_cast<int64_t>(getSlices()) || !getType().getElementType().isF32() ||
                 getBias() || !getPostOps().empty()))
    return emitOpError("wants one f32 result for each slice, neither bias nor post-ops");
  if (spatial < 1 || spatial > 3 || getInput().getType().getRank() != rank || getWeight().getType().getRank() != rank)
    return emitOpError("wants input, weight and result of one rank, 3 to 5");
  for (ArrayRef<int64_t> list : {getStride(), getPadding(), getDilation()})
    if (static_cast<int64_t>(list.size()) != spatial)
      return emitOpError("wants stride, padding and dilation of ") << spatial << " numbers each";
  if (!llvm::is_contained({"forward", "transposed", "weights"}, getKind()))
    return emitOpError("unknown kind '") << getKind() << "'";
  if (getKind() == "weights" && (getBias() || !getPostOps().empty()))
    return emitOpError("of weights has neither bias nor post-ops");
  for (Value operand : getOperands_())
    if (cast<RankedTensorType>(operand.getType()).getRank() != rank)
      return emitOpError("wants post-op operands of the result's rank");
  return verifyPostOps(*this);
}

//===-- attention ----------------------------------------------------------------------------===//

LogicalResult AttentionOp::verify() {
  if (getKernel() || !getResultLayout())
    return success();  // lowerAttention has the rules; before layouts are assigned the target may not be chosen
  if (getMask() || getLogSums())
    return emitOpError("has a mask or sums of rows, which the library's call does not");
  for (Value tensor : {getQuery(), getKey(), getValue(), getResult()}) {
    auto type = cast<RankedTensorType>(tensor.getType());
    if (type.getRank() != 4 || !type.getElementType().isF32())
      return emitOpError("wants tensors of f32 and rank 4");
  }
  return success();
}

LogicalResult AttentionGradientOp::verify() {
  if (getNumResults() != (getOfKeys() ? 2u : 1u))
    return emitOpError("wants one result, the queries' gradient, or with of_keys two");
  return success();  // lowerAttentionGradient has the other rules
}

//===-- aten ---------------------------------------------------------------------------------===//

void AtenOp::getEffects(SmallVectorImpl<MemoryEffects::EffectInstance>& effects) {
  if (getOrdered())
    effects.emplace_back(MemoryEffects::Write::get());
}

//===-- pad ----------------------------------------------------------------------------------===//

LogicalResult PadOp::verify() {
  RankedTensorType source = getSource().getType();
  if (source.getRank() != getType().getRank() || source.getElementType() != getType().getElementType() ||
      static_cast<int64_t>(getLow().size()) != source.getRank())
    return emitOpError("wants source, result and low of one rank and one element type");
  if (llvm::any_of(getLow(), [](int64_t low) { return low < 0; }))
    return emitOpError("wants no negative padding");
  return success();
}

/// A body from two elements to one: of zefuse.scatter and zefuse.scan.
static LogicalResult verifyElementBody(Operation* op, Block& block, Type element) {
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (block.getNumArguments() != 2 || block.getArgument(0).getType() != element ||
      block.getArgument(1).getType() != element || !yield || yield.getNumOperands() != 1 ||
      yield.getOperand(0).getType() != element)
    return op->emitOpError("wants a body from two elements to one");
  return success();
}

//===-- scatter ------------------------------------------------------------------------------===//

LogicalResult ScatterOp::verify() {
  RankedTensorType updates = getUpdates().getType();
  if (getInit().getType() != getType() || updates.getElementType() != getType().getElementType())
    return emitOpError("wants an init of the result's type and updates of its element type");
  for (Value index : getIndices())
    if (cast<RankedTensorType>(index.getType()).getShape() != updates.getShape() ||
        !cast<RankedTensorType>(index.getType()).getElementType().isSignlessInteger(64))
      return emitOpError("wants indices of i64 in the updates' shape");
  AffineMap map = getCoordinates();
  if (map.getNumDims() != updates.getRank() + getIndices().size() ||
      map.getNumResults() != static_cast<unsigned>(getType().getRank()))
    return emitOpError("wants coordinates from the updates' dimensions and the indices to the result's dimensions");
  return verifyElementBody(*this, getBody().front(), getType().getElementType());
}

//===-- scan ---------------------------------------------------------------------------------===//

LogicalResult ScanOp::verify() {
  RankedTensorType type = cast<RankedTensorType>(getResult().getType());
  if (getInput().getType() != type)
    return emitOpError("wants a result of the input's type");
  if (static_cast<int64_t>(getDim()) < 0 || static_cast<int64_t>(getDim()) >= type.getRank())
    return emitOpError("has no dimension ") << getDim();
  if (cast<TypedAttr>(getInitial()).getType() != type.getElementType())
    return emitOpError("wants an initial value of the element type");
  return verifyElementBody(*this, getBody().front(), type.getElementType());
}

//===-- sort ---------------------------------------------------------------------------------===//

LogicalResult SortOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType()), values = cast<RankedTensorType>(getValues().getType()),
       positions = cast<RankedTensorType>(getPositions().getType());
  int64_t dim = getDim();
  if (dim < 0 || dim >= input.getRank())
    return emitOpError("has no dimension ") << dim;
  if (values.getElementType() != input.getElementType() || !positions.getElementType().isSignlessInteger(64) ||
      shapeOf(values) != shapeOf(positions) || values.getRank() != input.getRank())
    return emitOpError("wants values of the input's element type and i64 positions, of one shape and the input's rank");
  for (auto [position, sizes] : llvm::enumerate(llvm::zip(shapeOf(input), shapeOf(values))))
    if (static_cast<int64_t>(position) != dim && std::get<0>(sizes) != std::get<1>(sizes))
      return emitOpError("wants results of the input's sizes but along dimension ") << dim;
  return success();
}

//===-- alternatives -------------------------------------------------------------------------===//

LogicalResult AlternativesOp::verify() {
  if (getForms().empty())
    return emitOpError("wants a form");
  for (auto [number, form] : llvm::enumerate(getForms())) {
    auto yield = dyn_cast<YieldOp>(form.front().getTerminator());
    if (!yield || yield.getValues().getTypes() != getResultTypes())
      return emitOpError("form ") << number << " does not end with a zefuse.yield of the results";
  }
  return success();
}

//===-- kernel -------------------------------------------------------------------------------===//

LogicalResult KernelOp::verify() {
  if (getLayouts().size() != getInputs().size() + getResults().size())
    return emitOpError("wants a layout for each input and each output");
  Block& block = getBody().front();
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield)
    return emitOpError("ends without zefuse.yield");
  size_t sets = getBatch();
  if (sets < 1 || getInputs().size() != block.getNumArguments() * sets ||
      getResults().size() != yield.getValues().size() * sets)
    return emitOpError("inputs and results are not ") << sets << " times the body's";
  if (getBatchSizes() && getBatchSizes()->size() != sets)
    return emitOpError("has ") << getBatchSizes()->size() << " sizes for " << sets << " sets";
  auto mismatch = [&](TypeRange outside, TypeRange inside, size_t layouts) {
    for (auto [i, type] : llvm::enumerate(outside)) {
      size_t set = i / inside.size();
      auto mine = cast<RankedTensorType>(inside[i % inside.size()]);
      if (!getBatchSizes()) {
        if (type != mine || getLayouts()[layouts + i] != getLayouts()[layouts + i % inside.size()])
          return true;
        continue;
      }
      auto tensor = cast<RankedTensorType>(type);
      if (tensor.getElementType() != mine.getElementType() || !tensor.hasStaticShape() ||
          (tensor.getNumElements() != (*getBatchSizes())[set] && tensor.getNumElements() != 1))
        return true;
    }
    return false;
  };
  if (mismatch(getInputs().getTypes(), block.getArgumentTypes(), 0))
    return emitOpError("block arguments do not match the inputs");
  if (mismatch(getResultTypes(), yield.getValues().getTypes(), getInputs().size()))
    return emitOpError("zefuse.yield does not match the results");
  for (auto [i, type] : llvm::enumerate(
           llvm::concat<const Type>(llvm::to_vector(getInputs().getTypes()), llvm::to_vector(getResultTypes())))) {
    AffineMap layout = cast<AffineMapAttr>(getLayouts()[i]).getValue();
    if (layout.getNumResults() != 1 ||
        layout.getNumDims() != static_cast<unsigned>(cast<RankedTensorType>(type).getRank()))
      return emitOpError("layout ") << i << " does not map indices of its tensor to one offset";
  }
  return success();
}

}  // namespace zefuse
