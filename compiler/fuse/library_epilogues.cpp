// What stands around a library call and can be done on its way in or out: zero padding, activations, and for
// convolutions whatever is x * scale + shift + residual with a scale and a shift per channel (bias, batch norm in
// inference, layer scale, skip connections).
//
// A batch norm becomes a scale and a shift, not another weight: a folded weight would have to be made anew whenever one
// of five parameters may have changed, and the two post-ops cost little beside the convolution (docs/onednn.md). The
// two vectors are computed by a kernel at each call, so they are never stale.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_FUSELIBRARYEPILOGUES
#include "compiler/fuse/Passes.h.inc"

namespace {

/// The importer marks a pointwise operation that is one of oneDNN's activations (docs/ir.md).
std::optional<StringRef> activationOf(linalg::GenericOp op) {
  auto name = op->getAttrOfType<StringAttr>("zefuse.activation");
  if (!name || op.getNumDpsInputs() != 1 || op.getNumReductionLoops() != 0)
    return std::nullopt;
  for (AffineMap map : op.getIndexingMapsArray())
    if (!map.isIdentity())
      return std::nullopt;
  return name.getValue();
}

Type elementOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

void appendPostOp(PostOpsOpInterface call, StringRef name, Value operand = {}) { call.appendPostOp(name, operand); }

/// The call takes over what `op` computes: `op` goes, its readers read `result`.
void absorb(Operation* call, linalg::GenericOp op, Value result) {
  call->setLoc(FusedLoc::get(call->getContext(), {call->getLoc(), op.getLoc()}));
  op.getResult(0).replaceAllUsesWith(result);
  op.erase();
}

/// matmul -> view that only regroups dimensions -> activation: the activation can move before the view.
void fuseActivation(linalg::GenericOp activation, StringRef name) {
  Value source = activation.getDpsInputOperand(0)->get();
  auto view = source.getDefiningOp<ViewOp>();
  auto matmul = (view ? view.getSource() : source).getDefiningOp<MatmulOp>();
  if (!matmul || matmul->hasAttr(in_kernel) || !matmul->hasOneUse() || (view && !view->hasOneUse()) ||
      elementOf(activation.getResult(0)) != matmul.getType().getElementType())
    return;
  appendPostOp(matmul, name);
  absorb(matmul, activation, source);
}

/// A pointwise operation as x * scale + shift + residual, where x is one of its inputs. Scale and shift are scalars of
/// the body; null: 1 and 0.
struct Affine {
  Value scale, shift;
  BlockArgument residual;  // an input with as many elements as x; null: none
};

class EpilogueOf {
public:
  EpilogueOf(ConvolutionOp call, linalg::GenericOp op) : call_(call), op_(op) {}

  bool fuse() {
    if (op_.getNumReductionLoops() != 0 || op_.getResult(0).getType() != call_.getType())
      return false;
    for (OpOperand* input : op_.getDpsInputOperands()) {
      AffineMap map = op_.getMatchingIndexingMap(input);
      BlockArgument element = op_.getMatchingBlockArgument(input);
      if (input->get() == call_.getResult()) {
        if (x_ || !map.isIdentity())
          return false;
        x_ = element;
      } else if (!isPerChannel(map)) {
        if (!map.isIdentity() || input->get().getType() != call_.getType())
          return false;
        full_.insert(element);
      } else if (!isa<FloatType>(elementOf(input->get()))) {
        return false;
      }
    }
    // New operations of the body stand before its end; they go with it, or are erased again.
    builder_.setInsertionPoint(op_.getBody()->getTerminator());
    auto form = affine(op_.getBody()->getTerminator()->getOperand(0));
    if (!form || (!form->scale && !form->shift && !form->residual) || (full_.size() != (form->residual ? 1 : 0))) {
      dropAdded();
      return false;
    }
    Value scale = form->scale ? perChannel(form->scale) : Value();
    Value shift = form->shift ? perChannel(form->shift) : Value();
    Value residual = form->residual ? op_.getMatchingOpOperand(form->residual)->get() : Value();
    // What it reads now may stand after the call; nobody else reads the call's result.
    call_->moveBefore(op_);
    if (scale)
      appendPostOp(call_, "mul", scale);
    if (shift)
      appendPostOp(call_, "add", shift);
    if (residual)
      appendPostOp(call_, "add", residual);
    absorb(call_, op_, call_.getResult());
    return true;
  }

private:
  static bool isPerChannel(AffineMap map) {
    return llvm::all_of(map.getResults(), [](AffineExpr expr) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      return isa<AffineConstantExpr>(expr) || (dim && dim.getPosition() == 1);
    });
  }

  /// Whether a scalar of the body depends on x or a residual.
  bool varies(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return argument == x_ || full_.contains(argument);
    Operation* op = value.getDefiningOp();
    return isa<linalg::IndexOp, tensor::ExtractOp>(op) ||
           llvm::any_of(op->getOperands(), [&](Value operand) { return varies(operand); });
  }

  template <typename Op> Value make(Value a, Value b) {
    Value made = Op::create(builder_, op_.getLoc(), a, b);
    added_.push_back(made.getDefiningOp());
    return made;
  }

  Value widened(Value value, Type type) {
    if (!value || value.getType() == type || value.getType().getIntOrFloatBitWidth() >= 32)
      return value;
    Value made = arith::ExtFOp::create(builder_, op_.getLoc(), type, value);
    added_.push_back(made.getDefiningOp());
    return made;
  }

  std::optional<Affine> affine(Value value) {
    if (value == x_)
      return Affine{};
    if (auto argument = dyn_cast<BlockArgument>(value))
      return std::nullopt;  // alone it is no form of x
    Operation* op = value.getDefiningOp();
    if (isa<arith::ExtFOp, arith::TruncFOp>(op))
      return affine(op->getOperand(0));
    if (op->getNumOperands() != 2 || !isa<FloatType>(value.getType()))
      return std::nullopt;
    Value a = op->getOperand(0), b = op->getOperand(1);
    bool swapped = !dependsOnX(a);
    if (swapped)
      std::swap(a, b);
    auto form = dependsOnX(a) && !dependsOnX(b) ? affine(a) : std::nullopt;
    if (!form)
      return std::nullopt;
    if (BlockArgument residual = residualOf(b)) {
      if (!isa<arith::AddFOp>(op) || form->residual)
        return std::nullopt;
      form->residual = residual;
      return form;
    }
    if (varies(b))
      return std::nullopt;
    Type wide = Float32Type::get(value.getContext());
    b = widened(b, wide);
    if (b.getType() != wide)
      return std::nullopt;
    if (isa<arith::AddFOp>(op)) {
      form->shift = form->shift ? make<arith::AddFOp>(form->shift, b) : b;
    } else if (isa<arith::SubFOp>(op) && !swapped) {
      Value zero = arith::ConstantOp::create(builder_, op_.getLoc(), FloatAttr::get(wide, 0));
      added_.push_back(zero.getDefiningOp());
      form->shift = make<arith::SubFOp>(form->shift ? form->shift : zero, b);
    } else if (isa<arith::MulFOp>(op) && !form->residual) {
      form->scale = form->scale ? make<arith::MulFOp>(form->scale, b) : b;
      if (form->shift)
        form->shift = make<arith::MulFOp>(form->shift, b);
    } else {
      return std::nullopt;
    }
    return form;
  }

  bool dependsOnX(Value value) {
    if (value == x_)
      return true;
    Operation* op = value.getDefiningOp();
    return op && llvm::any_of(op->getOperands(), [&](Value operand) { return dependsOnX(operand); });
  }

  BlockArgument residualOf(Value value) {
    while (auto extend = value.getDefiningOp<arith::ExtFOp>())
      value = extend.getIn();
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && full_.contains(argument) ? argument : BlockArgument();
  }

  /// A tensor [1, channels, 1...] of a scalar of the body that depends on the channel only.
  Value perChannel(Value scalar) {
    OpBuilder builder(op_);
    MLIRContext* context = builder.getContext();
    RankedTensorType type = call_.getType();
    unsigned symbols = graphSymbolsOf(op_->getParentOfType<func::FuncOp>());
    AffineExpr channel = getAffineDimExpr(0, context);
    SmallVector<Value> inputs;
    SmallVector<AffineMap> maps;
    IRMapping mapping;
    SmallVector<BlockArgument> elements;
    for (OpOperand* input : op_.getDpsInputOperands()) {
      BlockArgument element = op_.getMatchingBlockArgument(input);
      if (element == x_ || full_.contains(element))
        continue;
      inputs.push_back(input->get());
      elements.push_back(element);
      SmallVector<AffineExpr> results;
      for (AffineExpr expr : op_.getMatchingIndexingMap(input).getResults())
        results.push_back(isa<AffineConstantExpr>(expr) ? expr : channel);
      maps.push_back(AffineMap::get(1, 0, results, context));
    }
    maps.push_back(AffineMap::getMultiDimIdentityMap(1, context));
    AffineExpr channels = shapeOf(type)[1];
    RankedTensorType vector = shapedTensor({channels}, scalar.getType(), symbols);
    SmallVector<Value> sizes;
    if (!isa<AffineConstantExpr>(channels))
      sizes.push_back(
          SizeOp::create(builder, op_.getLoc(), builder.getIndexType(), AffineMap::get(0, symbols, channels)));
    Value empty = tensor::EmptyOp::create(builder, op_.getLoc(), vector, sizes);
    auto loop = linalg::GenericOp::create(
        builder, op_.getLoc(), TypeRange{vector}, inputs, ValueRange{empty}, maps,
        ArrayRef<utils::IteratorType>{utils::IteratorType::parallel},
        [&](OpBuilder& body, Location loc, ValueRange args) {
          for (auto [element, arg] : llvm::zip(elements, args))
            mapping.map(element, arg);
          for (Operation& inner : op_.getBody()->without_terminator())
            if (llvm::all_of(inner.getResults(), [&](Value result) { return !varies(result); }))
              body.clone(inner, mapping);
          Operation* constant = scalar.getDefiningOp();  // folding moves constants out of bodies
          if (!mapping.contains(scalar) && constant && constant->hasTrait<OpTrait::ConstantLike>())
            mapping.map(scalar, body.clone(*constant)->getResult(0));
          linalg::YieldOp::create(body, loc, mapping.lookup(scalar));
        });
    SmallVector<AffineExpr> shape(type.getRank(), getAffineConstantExpr(1, context));
    shape[1] = channels;
    return ViewOp::create(builder, op_.getLoc(), shapedTensor(shape, scalar.getType(), symbols), loop.getResult(0),
                          AffineMap::get(type.getRank(), symbols, getAffineDimExpr(1, context)));
  }

  void dropAdded() {
    for (Operation* op : llvm::reverse(added_))
      op->erase();
  }

  ConvolutionOp call_;
  linalg::GenericOp op_;
  OpBuilder builder_{op_.getContext()};
  Value x_;
  llvm::SmallDenseSet<Value> full_;
  SmallVector<Operation*> added_;
};

/// Zeros around an image before the convolution are padding of the convolution, as long as no window lies in the
/// padding alone (oneDNN's quick implementations want that).
void takePadding(ConvolutionOp call) {
  auto pad = call.getInput().getDefiningOp<PadOp>();
  auto number = pad ? dyn_cast<FloatAttr>(pad.getValue()) : nullptr;
  if (!number || !number.getValue().isPosZero())
    return;
  ArrayRef<int64_t> low = pad.getLow();
  SmallVector<AffineExpr> inner = shapeOf(cast<RankedTensorType>(pad.getSource().getType())),
                          outer = shapeOf(cast<RankedTensorType>(pad.getType())),
                          kernel = shapeOf(call.getWeight().getType());
  SmallVector<int64_t> padding(call.getPadding());
  for (size_t dim = 0; dim < inner.size(); ++dim) {
    auto after = dyn_cast<AffineConstantExpr>(
        simplifyAffine(outer[dim] - inner[dim] - low[dim], 0, numSymbols(cast<RankedTensorType>(pad.getType()))));
    if (!after)
      return;
    if (after.getValue() < 0)  // cut off, and not to be seen by the convolution
      return;
    if (low[dim] == 0 && after.getValue() == 0)
      continue;
    auto size = dim < 2 ? nullptr : dyn_cast<AffineConstantExpr>(kernel[dim]);
    if (!size)
      return;
    int64_t& begin = padding[dim - 2];
    if (begin + std::max(low[dim], after.getValue()) > (size.getValue() - 1) * call.getDilation()[dim - 2])
      return;
    begin += low[dim];
  }
  call.setPadding(padding);
  call.getInputMutable().set(pad.getSource());
  call->setLoc(FusedLoc::get(call->getContext(), {pad.getLoc(), call.getLoc()}));
}

/// The elementwise operations that read the call's result, behind views, and how many operations read it at all.
size_t readersOf(Value result, SmallVectorImpl<linalg::GenericOp>& elementwise) {
  size_t count = 0;
  for (Operation* user : result.getUsers()) {
    if (auto view = dyn_cast<ViewOp>(user)) {
      count += readersOf(view.getResult(), elementwise);
      continue;
    }
    ++count;
    if (auto generic = dyn_cast<linalg::GenericOp>(user); generic && generic.getNumReductionLoops() == 0)
      elementwise.push_back(generic);
  }
  return count;
}

/// Says at the call why an elementwise operation that reads its result is not its epilogue.
void explainWhatIsLeft(PostOpsOpInterface call) {
  SmallVector<linalg::GenericOp> elementwise;
  size_t readers = readersOf(call->getResult(0), elementwise);
  if (elementwise.empty())
    return;
  std::string name = "an elementwise operation";
  if (auto origins = originsOf(elementwise.front().getLoc()); !origins.empty())
    name = origins.front().op;
  std::string reason;
  if (readers > 1)
    reason = "its result has " + std::to_string(readers) + " readers, which all need it as it is";
  else if (isa<MatmulOp>(call.getOperation()))
    reason = activationOf(elementwise.front())
                 ? "another type, or a view of part of the result, stands between"
                 : "the library's epilogue of a product is an activation; a kernel does the rest";
  else
    reason = "it is no activation, and not x * scale + shift + residual with a scale and a shift per channel";
  call->setAttr("zefuse.left_out", StringAttr::get(call->getContext(), name + " is not its epilogue: " + reason));
}

void fuseConvolution(ConvolutionOp call) {
  while (call->hasOneUse()) {
    auto next = dyn_cast<linalg::GenericOp>(*call->user_begin());
    if (!next || next.getResult(0).getType() != call.getType())
      return;
    if (auto name = activationOf(next)) {
      appendPostOp(call, *name);
      absorb(call, next, call.getResult());
    } else if (!EpilogueOf(call, next).fuse()) {
      return;
    }
  }
}

void fuseLibraryEpilogues(func::FuncOp graph) {
  SmallVector<linalg::GenericOp> activations;
  graph.walk([&](linalg::GenericOp op) {
    if (activationOf(op))
      activations.push_back(op);
  });
  for (linalg::GenericOp op : activations)
    fuseActivation(op, *activationOf(op));
  SmallVector<ConvolutionOp> convolutions;
  graph.walk([&](ConvolutionOp op) {
    if (op.getKind() != "weights")
      convolutions.push_back(op);
  });
  for (ConvolutionOp op : convolutions) {
    if (op.getKind() == "forward")
      takePadding(op);
    if (op->hasAttr(in_kernel))
      continue;
    fuseConvolution(op);
    explainWhatIsLeft(op);
  }
  graph.walk([](MatmulOp op) {
    if (!op->hasAttr(in_kernel))
      explainWhatIsLeft(op);
  });
}

class FuseLibraryEpilogues : public impl::FuseLibraryEpiloguesBase<FuseLibraryEpilogues> {
  void runOnOperation() override { fuseLibraryEpilogues(getOperation()); }
};

}  // namespace
}  // namespace zefuse
