#include "lowering/dialect/Zefuse.h"

#include <numeric>

#include "lowering/dialect/shape.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

#include "lowering/dialect/ZefuseDialect.cpp.inc"

/// `custom<WholeMap>`: an affine map that is printed without an alias.
static ParseResult parseWholeMap(OpAsmParser& parser, AffineMapAttr& map) { return parser.parseAttribute(map); }

static void printWholeMap(OpAsmPrinter& printer, Operation*, AffineMapAttr map) {
  printer << "affine_map<" << map.getValue() << ">";
}

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

/// A layout of a result, where there is one: from its indices to one offset.
static LogicalResult verifyLayout(Operation* op, std::optional<AffineMap> layout, Value result) {
  if (layout && (layout->getNumResults() != 1 ||
                 layout->getNumDims() != unsigned(cast<RankedTensorType>(result.getType()).getRank())))
    return op->emitOpError("has a layout that does not map indices of its result to one offset");
  return success();
}

//===-- matmul -------------------------------------------------------------------------------===//

LogicalResult MatmulOp::verify() {
  int64_t rank = getType().getRank();
  if (rank < 2 || getA().getType().getRank() != rank || getB().getType().getRank() != rank)
    return emitOpError("wants a, b and result of one rank, 2 or more");
  return verifyLayout(*this, getResultLayout(), getResult());
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
  return verifyLayout(*this, getResultLayout(), getResult());
}

//===-- grouped_matmul -----------------------------------------------------------------------===//

LogicalResult GroupIndexOp::verify() {
  auto type = cast<RankedTensorType>(getResult().getType());
  if (type.getRank() != 0 || !type.getElementType().isSignlessInteger(64))
    return emitOpError("is an i64 without dimensions");
  return verifyLayout(*this, getResultLayout(), getResult());
}

LogicalResult GroupedMatmulOp::verify() {
  RankedTensorType a = getA().getType(), b = getB().getType(), offsets = getOffsets().getType();
  RankedTensorType result = getResult().getType();
  if (a.getRank() != 2 || b.getRank() != (getIndex() ? 2 : 3) || offsets.getRank() != 1 || result.getRank() != 2)
    return emitOpError("wants a of rank 2, b of rank 3 (2 with an index), offsets of rank 1 and a result of rank 2");
  if (!offsets.getElementType().isSignlessInteger(32))
    return emitOpError("wants offsets of i32");
  if (getIndex() && !getIndex().getDefiningOp<GroupIndexOp>())
    return emitOpError("wants a zefuse.group_index");
  if (b.getElementType() != a.getElementType() || result.getElementType() != a.getElementType())
    return emitOpError("wants operands and a result of one element type");
  return verifyLayout(*this, getResultLayout(), getResult());
}

//===-- attention ----------------------------------------------------------------------------===//

LogicalResult AttentionOp::verify() {
  if (failed(verifyLayout(*this, getResultLayout(), getResult())))
    return failure();
  if (!getResultLayout())
    return success();  // whyNoProductKernel has a kernel's rules; only a call has a layout
  if (getMask()) {
    Type element = getElementTypeOrSelf(getMask());
    if (!getElementTypeOrSelf(getResult()).isF32() || (!element.isF32() && !element.isInteger(1)))
      return emitOpError("has a mask, which the library's call takes of f32 or i1, with tensors of f32");
  }
  if (bool(getLogSums()) != bool(getLogSumsLayout()))
    return emitOpError("wants a layout for each result");
  for (Value tensor : {getQuery(), getKey(), getValue(), getResult()}) {
    auto type = cast<RankedTensorType>(tensor.getType());
    Type element = type.getElementType();
    if (type.getRank() != 4 || element != getElementTypeOrSelf(getResult()) || (!element.isF32() && !element.isBF16()))
      return emitOpError("wants tensors of f32, or of bf16, and rank 4");
  }
  return success();
}

LogicalResult AttentionGradientOp::verify() {
  if (getOfKeys() ? getNumResults() != 2 : getNumResults() != 1 && getNumResults() != 3)
    return emitOpError("wants one result, the queries' gradient, or all three, or with of_keys two");
  if (auto layouts = getResultLayouts()) {
    if (layouts->size() != getNumResults())
      return emitOpError("wants a layout for each result");
    for (auto [layout, result] : llvm::zip(*layouts, getResults())) {
      auto map = dyn_cast<AffineMapAttr>(layout);
      if (!map)
        return emitOpError("wants maps as layouts");
      if (failed(verifyLayout(*this, map.getValue(), result)))
        return failure();
    }
  }
  return success();  // lowerAttentionGradient has the other rules
}

//===-- recurrence ---------------------------------------------------------------------------===//

LogicalResult RecurrenceOp::verify() {
  if (!llvm::is_contained({"lstm", "gru", "tanh", "relu", "lstm_layer"}, getCell()))
    return emitOpError("unknown cell '") << getCell() << "'";
  const bool layer = getCell() == "lstm_layer", lstm = getCell() == "lstm", gru = getCell() == "gru";
  if (layer && (getPacked() || getProjected()))
    return emitOpError("is a layer with its input that is packed or projected");
  unsigned inputs = getGradient() ? (layer ? 7 : lstm ? 6 : gru ? 5 : 3) : (lstm || layer ? 5 : 4);
  unsigned results = getGradient() ? (layer ? 4 : lstm || gru ? 3 : 2) : (layer ? 5 : lstm ? 4 : gru ? 2 : 1);
  if (getProjected()) {
    if (!lstm)
      return emitOpError("has a projection of another cell than an LSTM's");
    inputs += 1;
    results += getGradient() ? 1 : 0;
  }
  if (getPacked()) {
    inputs += getGradient() ? 2 : 1;
    results += getGradient() ? 0 : 2;
  }
  if (getInputs().size() != inputs || getNumResults() != results)
    return emitOpError("wants ") << inputs << " operands and " << results << " results";
  const unsigned weight = getGradient() && (lstm || layer) ? 2 : 1, projection = getGradient() ? 6 : 5;
  auto isTaken = [](Type tensor, bool narrow, bool half = false) {
    Type element = cast<RankedTensorType>(tensor).getElementType();
    return element.isF32() || (narrow && element.isBF16()) || (half && element.isF16());
  };
  for (auto [position, input] : llvm::enumerate(getInputs().drop_back(getPacked() ? 1 : 0)))
    if (!isTaken(input.getType(),
                 position == weight || (layer && position == 0) || (getProjected() && position == projection),
                 /*half=*/layer && getGradient() && position == 5))
      return emitOpError("wants tensors of f32, or a weight of bf16");
  if (getPacked() && !cast<RankedTensorType>(getInputs().back().getType()).getElementType().isInteger(64))
    return emitOpError("wants the steps' numbers of rows of i64");
  for (auto [position, type] : llvm::enumerate(getResultTypes()))
    if (!isTaken(type, layer && position == 0, /*half=*/layer && !getGradient() && position == 2))
      return emitOpError("wants results of f32");
  if (auto layouts = getResultLayouts(); layouts && layouts->size() != results)
    return emitOpError("wants a layout for each result");
  return success();  // sizes: when the step is bound
}

//===-- aten ---------------------------------------------------------------------------------===//

void AtenOp::getEffects(SmallVectorImpl<MemoryEffects::EffectInstance>& effects) {
  if (getOrdered())
    effects.emplace_back(MemoryEffects::Write::get());
}

/// One map of strides for each tensor.
static LogicalResult verifyStrides(Operation* op, StringRef what, ArrayAttr strides, ValueRange tensors) {
  if (strides.size() != tensors.size())
    return op->emitOpError("has strides of ") << strides.size() << " for " << tensors.size() << " " << what;
  for (auto [entry, tensor] : llvm::zip(strides, tensors)) {
    auto map = dyn_cast<AffineMapAttr>(entry);
    if (!map || map.getValue().getNumDims() != 0 ||
        int64_t(map.getValue().getNumResults()) != cast<RankedTensorType>(tensor.getType()).getRank())
      return op->emitOpError("wants strides without dimensions, one for each dimension, instead of ") << entry;
  }
  return success();
}

LogicalResult AtenOp::verify() {
  if (failed(verifyStrides(*this, "operands", getOperandStrides(), getInputs())) ||
      failed(verifyStrides(*this, "results", getResultStrides(), getResults())))
    return failure();
  if (auto positions = getResultPositions())
    if (positions->size() != getNumResults() || (!positions->empty() && positions->front() < 0) ||
        !llvm::is_sorted(*positions, std::less_equal<>()))
      return emitOpError("wants an ascending position for each result");
  return success();
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

/// `parts`, `writes`, `in_place` and `groups`, whose lengths and numbers the schedule and the plan rely on.
static LogicalResult verifyLaunch(KernelOp kernel, Block& body, size_t results) {
  if (auto parts = kernel.getParts()) {
    if (llvm::any_of(*parts, [](int64_t part) { return part < 1; }) ||
        std::accumulate(parts->begin(), parts->end(), int64_t{0}) != int64_t(results))
      return kernel.emitOpError("has parts that are not its ") << results << " results";
    if (kernel.getBatch() != 1)
      return kernel.emitOpError("has parts and a batch");
  }
  if (auto writes = kernel.getWrites()) {
    auto function = kernel->getParentOfType<FunctionOpInterface>();
    const int64_t arguments = function ? function.getNumArguments() : 0;
    if (writes->size() != kernel.getNumResults())
      return kernel.emitOpError("writes ") << writes->size() << " of " << kernel.getNumResults() << " results";
    for (auto [argument, type] : llvm::zip(*writes, kernel.getResultTypes()))
      if (argument < -1 || argument >= arguments || (argument >= 0 && function.getArgumentTypes()[argument] != type))
        return kernel.emitOpError("writes ") << argument << ", which is no argument of a result's type";
  }
  if (auto pairs = kernel.getInPlace()) {
    if (pairs->size() % 2 != 0)
      return kernel.emitOpError("wants pairs of an input and a result in place");
    for (size_t i = 0; i < pairs->size(); i += 2) {
      const int64_t input = (*pairs)[i], result = (*pairs)[i + 1];
      if (input < 0 || input >= body.getNumArguments() || result < 0 || result >= int64_t(results) ||
          body.getArgument(input).getType() != body.getTerminator()->getOperand(result).getType())
        return kernel.emitOpError("has no input ") << input << " and result " << result << " of one type";
    }
    if (!kernel.getWrites())
      return kernel.emitOpError("is in place and writes nothing");
  }
  if (auto groups = kernel.getGroups(); groups && llvm::any_of(*groups, [](int64_t group) { return group < 0; }))
    return kernel.emitOpError("has a negative group");
  return success();
}

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
  return verifyLaunch(*this, block, yield.getValues().size());
}

}  // namespace zefuse
