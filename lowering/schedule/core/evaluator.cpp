#include "lowering/schedule/core/evaluator.h"

#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

Evaluator::Placed Evaluator::fail(Operation* op, const Twine& reason) {
  if (failure_.reason.empty())
    failure_ = {op, reason.str()};
  return {};
}

//===-- scopes ---------------------------------------------------------------------------------===//

void Evaluator::insertAt(unsigned depth) {
  Scope& scope = scopes_[depth];
  if (scope.nested)
    builder_.setInsertionPoint(scope.nested);
  else if (!scope.block->empty() && scope.block->back().hasTrait<OpTrait::IsTerminator>())
    builder_.setInsertionPoint(&scope.block->back());
  else
    builder_.setInsertionPointToEnd(scope.block);
}

unsigned Evaluator::barrier() const {
  for (unsigned depth = scopes_.size(); depth-- > 0;)
    if (scopes_[depth].barrier)
      return depth;
  return 0;
}

void Evaluator::setNested(Operation* nested) {
  const Block* block = scopes_.back().block;
  for (size_t depth = scopes_.size(); depth-- > 0 && scopes_[depth].block == block;)
    scopes_[depth].nested = nested;
}

void Evaluator::enter(Block* block) {
  if (!scopes_.empty() && scopes_.back().block != block)
    setNested(block->getParentOp());
  Scope scope;
  scope.block = block;
  scopes_.push_back(std::move(scope));
  toInnermost();
}

unsigned Evaluator::enterHere() {
  SmallVector<Block*> blocks;
  for (Block* block = builder_.getInsertionBlock(); block != scopes_.back().block;
       block = block->getParentOp()->getBlock())
    blocks.push_back(block);
  if (blocks.empty())
    blocks.push_back(scopes_.back().block);
  for (Block* block : llvm::reverse(blocks))
    enter(block);
  return blocks.size();
}

void Evaluator::leave() {
  for (unsigned dim : scopes_.back().dims)
    dims_.erase(dim);
  if (scopes_.back().laned)
    lanes_ = {};
  scopes_.pop_back();
  if (!scopes_.empty()) {
    setNested(nullptr);
    toInnermost();
  }
}

void Evaluator::bind(unsigned dim, Value index) {
  dims_[dim] = {index, unsigned(scopes_.size() - 1)};
  scopes_.back().dims.push_back(dim);
}

void Evaluator::bindLanes(unsigned dim, Value base, unsigned lanes, bool aligned, Value limit) {
  bind(dim, base);
  if (lanes == 1)
    return;
  lanes_ = {dim, lanes, unsigned(scopes_.size() - 1), aligned, limit};
  scopes_.back().laned = true;
}

void Evaluator::bindValue(Node node, Value value) {
  unsigned depth = scopes_.size() - 1;
  scopes_[depth].values[{node.value, node.at}] = {value, depth};
}

void Evaluator::bindSymbol(unsigned symbol, Value value) { symbols_[symbol] = {value, unsigned(scopes_.size() - 1)}; }

Evaluator::Loop Evaluator::openLoop(Value lower, Value upper, Value step, ValueRange init) {
  toInnermost();
  auto op = scf::ForOp::create(builder_, lower.getLoc(), lower, upper, step, init);
  Block* body = op.getBody();
  if (!body->empty())  // without carried values the builder adds a terminator
    body->clear();
  enter(body);
  return {op};
}

ValueRange Evaluator::closeLoop(Loop loop, ValueRange yields) {
  toInnermost();
  scf::YieldOp::create(builder_, loop.op.getLoc(), yields);
  leave();
  return loop.op.getResults();
}

void Evaluator::openFrame() {
  toInnermost();
  enter(scopes_.back().block);
}

std::unique_ptr<Evaluator::Frame> Evaluator::suspend() {
  auto frame = std::make_unique<Frame>();
  Scope& scope = scopes_.back();
  for (unsigned dim : scope.dims)
    frame->dims.emplace_back(dim, dims_.at(dim));
  if (scope.laned)
    frame->lanes = lanes_;
  frame->depth = scopes_.size() - 1;
  frame->scope = scope;
  leave();
  return frame;
}

void Evaluator::resume(std::unique_ptr<Frame> frame) {
  assert(frame->depth == scopes_.size() && frame->scope.block == scopes_.back().block && "other scopes around it");
  for (const auto& [dim, binding] : frame->dims)
    dims_[dim] = binding;
  if (frame->scope.laned)
    lanes_ = frame->lanes;
  scopes_.push_back(std::move(frame->scope));
  toInnermost();
}

void Evaluator::openIf(Value condition) {
  toInnermost();
  auto op = scf::IfOp::create(builder_, condition.getLoc(), condition, /*withElseRegion=*/false);
  op.thenBlock()->clear();
  enter(op.thenBlock());
  scopes_.back().barrier = true;
}

void Evaluator::closeIf() {
  toInnermost();
  scf::YieldOp::create(builder_, scopes_.back().block->getParentOp()->getLoc());
  leave();
}

//===-- values ---------------------------------------------------------------------------------===//

Value Evaluator::evaluate(Node node) { return failed() ? Value() : emit(node).value; }

Evaluator::Placed Evaluator::remember(Node node, Placed placed) {
  if (placed.value)
    scopes_[placed.depth].values[{node.value, node.at}] = placed;
  return placed;
}

Evaluator::Placed Evaluator::emit(Node node) {
  if (failed())
    return {};
  for (unsigned depth = scopes_.size(); depth-- > 0;)
    if (auto it = scopes_[depth].values.find({node.value, node.at}); it != scopes_[depth].values.end())
      return it->second;
  if (kept_)
    for (Kept& kept : *kept_)
      if (kept.node == node)
        return remember(node, emitKept(kept));
  return remember(node, emitUncached(node));
}

// The value of an element that does not exist.
Evaluator::Placed Evaluator::nothing(Operation* op, Type type) {
  insertAt(0);
  return {constantOfType(builder_, op->getLoc(), builder_.getZeroAttr(type), 1), 0};
}

Evaluator::Placed Evaluator::emitKept(Kept& kept) {
  Location loc = kept.node.value.getLoc();
  if (kept.written)
    return emitLoadAt(loc, kept.buffer, kept.offset, kept.type, true);
  Placed placed = emitUncached(kept.node);
  if (failed())
    return {};
  storeAt(loc, kept.buffer, kept.offset, placed.value, kept.type, true);
  kept.stored = true;
  // A value that loops around this place share (of an expanded tensor) is stored in each of their steps all the same.
  placed.depth = scopes_.size() - 1;
  return placed;
}

Evaluator::Placed Evaluator::emitUncached(Node node) {
  if (graph_.is_input(node.value))
    return emitLoad(node);
  if (auto argument = dyn_cast<BlockArgument>(node.value))
    return emit(bodyArgument(space_, argument, node.at));
  Operation* op = node.value.getDefiningOp();
  if (isReduction(op))
    return fail(op, "a reduction's result is read before its stage");
  if (isa<tensor::EmptyOp>(op))
    return fail(op, "reads a tensor that nothing wrote");
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return emitLaneIndex(node.at.getResult(index.getDim()));
  if (auto size = dyn_cast<SizeOp>(op))
    return emitIndex(size.getMap().getResult(0));
  if (isa<ScanOp>(op))
    return fail(op, "a scan's result is read outside of its loop");
  if (auto concat = dyn_cast<tensor::ConcatOp>(op))
    return emitConcat(concat, node.at);
  if (auto pad = dyn_cast<PadOp>(op))
    return emitPad(pad, node.at);
  if (isa<CheckedIndexOp>(op))
    return emitCheckedIndex(op, node.at);
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    auto table = cast<RankedTensorType>(extract.getTensor().getType());
    if (llvm::is_contained(table.getShape(), 0)) {  // not even index 0 is safe: only the check may speak
      for (AffineExpr expr : extractIndices(space_, extract, node.at).getResults())
        emitLaneIndex(expr);
      return failed() ? Placed() : nothing(op, registerType(table.getElementType()));
    }
    return emitExtract(extract, node.at);
  }
  if (op->hasTrait<OpTrait::ConstantLike>()) {
    insertAt(0);
    return {emitScalarOp(builder_, op, {}, 1), 0};
  }
  SmallVector<Placed> operands;
  bool fine = forEachOperand(space_, node, [&](Node operand) {
    if (!failed())
      operands.push_back(emit(operand));
  });
  if (failed())
    return {};
  if (!fine || (operands.empty() && isa<RankedTensorType>(node.value.getType())))
    return fail(op, op->getName().getStringRef() + " has no place in a kernel");
  if (isa<RankedTensorType>(node.value.getType()))
    return operands[0];  // generic, fill, view: the value of what it passes on
  unsigned lanes = 1, depth = barrier();
  for (Placed& operand : operands) {
    lanes = std::max(lanes, lanesOf(operand.value));
    depth = std::max(depth, operand.depth);
  }
  SmallVector<Value> values;
  for (Placed& operand : operands)
    values.push_back(splatAt(operand, lanes));
  insertAt(depth);
  return {emitScalarOp(builder_, op, values, lanes), depth};
}

Value Evaluator::emitBody(Block& body, ValueRange arguments) {
  unsigned lanes = lanesOf(arguments[0]);
  llvm::DenseMap<Value, Value> values;
  for (auto [argument, value] : llvm::zip(body.getArguments(), arguments))
    values[argument] = value;
  // Folding moves constants out of bodies.
  auto constant = [&](Operation* op) {
    if (!op || !op->hasTrait<OpTrait::ConstantLike>())
      return false;
    values[op->getResult(0)] = splat(builder_, emitScalarOp(builder_, op, {}, 1), lanes);
    return true;
  };
  for (Operation& op : body.without_terminator()) {
    SmallVector<Value> operands;
    for (Value operand : op.getOperands()) {
      if (!values.contains(operand) && !constant(operand.getDefiningOp()))
        return fail(&op, "a body reads what it does not define"), Value();
      operands.push_back(values.lookup(operand));
    }
    if (!constant(&op))
      values[op.getResult(0)] = emitScalarOp(builder_, &op, operands, lanes);
  }
  Value yielded = body.getTerminator()->getOperand(0);
  if (!values.contains(yielded) && !constant(yielded.getDefiningOp()))
    return fail(body.getTerminator(), "a body yields what it does not define"), Value();
  return values.lookup(yielded);
}

Value Evaluator::anyLane(Location loc, Value condition) {
  unsigned lanes = lanesOf(condition);
  if (lanes == 1)
    return condition;
  // OpAny has no LLVM form that the back end keeps. Of few lanes, as a GPU's vectors have, one after the other: Intel's
  // compiler of 2022 crashes on a bitcast of two bytes. Of more, one integer out of eight of them at a time.
  constexpr unsigned few = 8;
  Type word = lanes <= few ? builder_.getI32Type() : builder_.getI64Type();
  Value packed =
      arith::ExtUIOp::create(builder_, loc, withLanes(lanes <= few ? word : builder_.getI8Type(), lanes), condition);
  unsigned words = lanes;
  if (lanes > few) {
    words = lanes / 8;
    packed = LLVM::BitcastOp::create(builder_, loc, VectorType::get({int64_t(words)}, word), packed);
  }
  Value any = vector::ExtractOp::create(builder_, loc, packed, int64_t(0));
  for (unsigned i = 1; i < words; ++i)
    any = arith::OrIOp::create(builder_, loc, any, vector::ExtractOp::create(builder_, loc, packed, int64_t(i)));
  Value zero = arith::ConstantOp::create(builder_, loc, builder_.getIntegerAttr(word, 0));
  return arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::ne, any, zero);
}

Value Evaluator::branch(Location loc, Value condition, Type type, llvm::function_ref<Value()> then,
                        llvm::function_ref<Value()> otherwise) {
  toInnermost();
  auto op = scf::IfOp::create(builder_, loc, TypeRange{type}, condition, /*withElseRegion=*/true);
  for (bool taken : {true, false}) {
    Block* block = taken ? op.thenBlock() : op.elseBlock();
    block->clear();
    enter(block);
    scopes_.back().barrier = true;
    if (Value value = taken ? then() : otherwise()) {
      toInnermost();
      scf::YieldOp::create(builder_, loc, splat(builder_, value, lanesOf(op.getResult(0))));
    }
    leave();
  }
  return op.getResult(0);
}

Value Evaluator::allPositive(Location loc, ArrayRef<AffineExpr> sizes) {
  Value all;
  for (AffineExpr expr : sizes) {
    Value size = index(expr);
    if (failed())
      return {};
    toInnermost();
    Value positive =
        arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::sgt, size, constantIndex(builder_, loc, 0));
    all = all ? arith::AndIOp::create(builder_, loc, all, positive).getResult() : positive;
  }
  return all;
}

// A check that fails is an error, so it moves out of no loop that may have no steps.
unsigned Evaluator::checkedFrom(unsigned depth) const {
  for (unsigned scope = depth + 1; scope < scopes_.size(); ++scope)
    for (unsigned dim : scopes_[scope].dims)
      if (constantOf(space_.size(dim)).value_or(0) == 0)
        depth = scope;
  return depth;
}

Evaluator::Placed Evaluator::emitCheckedIndex(Operation* op, AffineMap at) {
  auto check = cast<CheckedIndexOp>(op);
  Location loc = op->getLoc();
  SmallVector<Placed> operands;
  forEachOperand(space_, {op->getResult(0), at}, [&](Node operand) {
    if (!failed())
      operands.push_back(emit(operand));
  });
  if (failed())
    return {};
  unsigned lanes = std::max(lanesOf(operands[0].value), lanesOf(operands[1].value));
  const unsigned depth = checkedFrom(std::max({operands[0].depth, operands[1].depth, barrier()}));
  Value value = splatAt(operands[0], lanes), bound = splatAt(operands[1], lanes);
  insertAt(depth);
  value = arith::IndexCastOp::create(builder_, loc, withLanes(builder_.getIndexType(), lanes), value);
  Value zero = constantIndex(builder_, loc, 0, lanes);
  if (check.getWrapNegative()) {
    Value negative = arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::slt, value, zero);
    Value wrapped = arith::AddIOp::create(builder_, loc, value, bound);
    value = arith::SelectOp::create(builder_, loc, negative, wrapped, value);
  }
  Value bad = arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::uge, value, bound);
  Value safe = arith::SelectOp::create(builder_, loc, bad, zero, value);
  Value any = anyLane(loc, bad);
  auto violated = scf::IfOp::create(builder_, loc, any, /*withElseRegion=*/false);
  {
    OpBuilder::InsertionGuard guard(builder_);
    builder_.setInsertionPointToStart(violated.thenBlock());
    Value code = arith::ConstantOp::create(builder_, loc, builder_.getI32IntegerAttr(arguments_.checks.lookup(op) + 1));
    LLVM::StoreOp::create(builder_, loc, code, arguments_.status, 4);
  }
  return {safe, depth};
}

// A table of symbolic size may have no elements either, and then index 0 is no safe place.
Evaluator::Placed Evaluator::emitExtract(tensor::ExtractOp op, AffineMap node_at) {
  Location loc = op.getLoc();
  auto table = cast<RankedTensorType>(op.getTensor().getType());
  AffineMap at = extractIndices(space_, op, node_at);
  SmallVector<AffineExpr> unsure;
  for (auto [index, size] : llvm::zip(op.getIndices(), shapeOf(table)))
    if (!constantOf(size) && !index.getDefiningOp<linalg::IndexOp>())
      unsure.push_back(size);
  auto read = [&] { return emit({op.getTensor(), at}); };
  if (unsure.empty())
    return read();
  for (AffineExpr expr : at.getResults())  // before the branch: what it needs again is computed where it always was
    emitLaneIndex(expr);
  Value some = allPositive(loc, unsure);
  if (!some)
    return {};
  Type element = registerType(table.getElementType());
  unsigned lanes =
      llvm::any_of(at.getResults(), [&](AffineExpr expr) { return dependsOnLanes(expr); }) ? lanes_.count : 1;
  auto readLanes = [&] {
    Value value = read().value;
    if (!value || lanes > 1 || lanesOf(value) == 1)
      return value;
    toInnermost();
    return vector::ExtractOp::create(builder_, loc, value, int64_t(0)).getResult();
  };
  auto none = [&] { return constantOfType(builder_, loc, builder_.getZeroAttr(element), lanes); };
  Value value = branch(loc, some, withLanes(element, lanes), readLanes, none);
  return failed() ? Placed() : Placed{value, unsigned(scopes_.size() - 1)};
}

}  // namespace zefuse
