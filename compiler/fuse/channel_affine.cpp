#include "compiler/fuse/channel_affine.h"

#include "compiler/fuse/graph.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace zefuse {

static bool isPerChannel(AffineMap map) {
  return llvm::all_of(map.getResults(), [](AffineExpr expr) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    return isa<AffineConstantExpr>(expr) || (dim && dim.getPosition() == 1);
  });
}

ChannelAffine::ChannelAffine(Value x, linalg::GenericOp op) : of_(x), op_(op), builder_(op.getContext()) {
  found_ = read();
}

// What was made in the body is read by nobody there.
ChannelAffine::~ChannelAffine() {
  for (Operation* op : llvm::reverse(added_))
    op->erase();
}

bool ChannelAffine::read() {
  if (op_.getNumReductionLoops() != 0 || op_.getNumResults() != 1 || op_.getResult(0).getType() != of_.getType())
    return false;
  for (OpOperand* input : op_.getDpsInputOperands()) {
    AffineMap map = op_.getMatchingIndexingMap(input);
    BlockArgument element = op_.getMatchingBlockArgument(input);
    if (input->get() == of_) {
      if (x_ || !map.isIdentity())
        return false;
      x_ = element;
    } else if (!isPerChannel(map)) {
      if (!map.isIdentity() || input->get().getType() != of_.getType())
        return false;
      full_.insert(element);
    } else if (!isa<FloatType>(getElementTypeOrSelf(input->get()))) {
      return false;
    }
  }
  // New operations of the body stand before its end; they go with it, or are erased again.
  builder_.setInsertionPoint(op_.getBody()->getTerminator());
  auto form = affine(op_.getBody()->getTerminator()->getOperand(0));
  if (!form || (!form->scale && !form->shift && !form->residual) || full_.size() != (form->residual ? 1 : 0))
    return false;
  scale_ = form->scale;
  shift_ = form->shift;
  residual_ = form->residual;
  return true;
}

Value ChannelAffine::residual() const {
  return residual_ ? linalg::GenericOp(op_).getMatchingOpOperand(residual_)->get() : Value();
}

SmallVector<Value> ChannelAffine::channelInputs() {
  SmallVector<Value> inputs;
  for (OpOperand* input : op_.getDpsInputOperands())
    if (BlockArgument element = op_.getMatchingBlockArgument(input); element != x_ && !full_.contains(element))
      inputs.push_back(input->get());
  return inputs;
}

/// Whether a scalar of the body depends on x or a residual.
bool ChannelAffine::varies(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argument == x_ || full_.contains(argument);
  Operation* op = value.getDefiningOp();
  return isa<linalg::IndexOp, tensor::ExtractOp>(op) ||
         llvm::any_of(op->getOperands(), [&](Value operand) { return varies(operand); });
}

template <typename Op> Value ChannelAffine::make(Value a, Value b) {
  Value made = Op::create(builder_, op_.getLoc(), a, b);
  added_.push_back(made.getDefiningOp());
  return made;
}

Value ChannelAffine::widened(Value value, Type type) {
  if (!value || value.getType() == type || value.getType().getIntOrFloatBitWidth() >= 32)
    return value;
  Value made = arith::ExtFOp::create(builder_, op_.getLoc(), type, value);
  added_.push_back(made.getDefiningOp());
  return made;
}

std::optional<ChannelAffine::Form> ChannelAffine::affine(Value value) {
  if (value == x_)
    return Form{};
  if (isa<BlockArgument>(value))
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

bool ChannelAffine::dependsOnX(Value value) {
  if (value == x_)
    return true;
  Operation* op = value.getDefiningOp();
  return op && llvm::any_of(op->getOperands(), [&](Value operand) { return dependsOnX(operand); });
}

BlockArgument ChannelAffine::residualOf(Value value) {
  while (auto extend = value.getDefiningOp<arith::ExtFOp>())
    value = extend.getIn();
  auto argument = dyn_cast<BlockArgument>(value);
  return argument && full_.contains(argument) ? argument : BlockArgument();
}

Value ChannelAffine::vector(Value scalar) {
  OpBuilder builder(op_);
  MLIRContext* context = builder.getContext();
  auto type = cast<RankedTensorType>(of_.getType());
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
  RankedTensorType made = shapedTensor({channels}, scalar.getType(), symbols);
  SmallVector<Value> sizes;
  if (!isa<AffineConstantExpr>(channels))
    sizes.push_back(
        SizeOp::create(builder, op_.getLoc(), builder.getIndexType(), AffineMap::get(0, symbols, channels)));
  Value empty = tensor::EmptyOp::create(builder, op_.getLoc(), made, sizes);
  auto loop = linalg::GenericOp::create(
      builder, op_.getLoc(), TypeRange{made}, inputs, ValueRange{empty}, maps,
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
  return loop.getResult(0);
}

Value ChannelAffine::perChannel(Value scalar) {
  if (!scalar)
    return {};
  const Value made = vector(scalar);
  OpBuilder builder(op_);
  MLIRContext* context = builder.getContext();
  auto type = cast<RankedTensorType>(of_.getType());
  unsigned symbols = graphSymbolsOf(op_->getParentOfType<func::FuncOp>());
  SmallVector<AffineExpr> shape(type.getRank(), getAffineConstantExpr(1, context));
  shape[1] = shapeOf(type)[1];
  return ViewOp::create(builder, op_.getLoc(), shapedTensor(shape, scalar.getType(), symbols), made,
                        AffineMap::get(type.getRank(), symbols, getAffineDimExpr(1, context)));
}

}  // namespace zefuse
