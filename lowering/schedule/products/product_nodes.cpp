#include "lowering/schedule/products/product_nodes.h"

#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/index_math.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

ProductNodes::ProductNodes(const ScheduleContext& context)
    : c_(context), form_(*context.domain.product), b_(context.builder()) {
  // The analysis has asked the same of the same expressions (whyNotBound).
  const IndexSpace& space = c_.domain.space;
  auto sizes = shapeOf(cast<RankedTensorType>(form_.op->getResult(0).getType()));
  const AffineMap at = form_.at[0] ? form_.at[0] : form_.at[1];
  for (auto [index, size] : llvm::zip(at.getResults(), sizes))
    result_dims_.push_back(*rowMajorDims(space, index, size));
  result_dims_.resize(sizes.size());  // of the second result alone: nothing is bound by the last index
  for (const ProductOperand& operand : form_.operands) {
    const AxisSet& set = c_.domain.axis_sets[operand.axes];
    auto& dims = operand_dims_.emplace_back();
    for (auto [index, size] : llvm::zip_equal(set.indices, set.sizes))
      dims.push_back(*rowMajorDims(space, index, size));
  }
}

void ProductNodes::bindResult(unsigned dimension, Value index, int64_t lanes, bool aligned) {
  bind(result_dims_[dimension], index, lanes, aligned);
}

int64_t ProductNodes::lanesOf(ArrayRef<unsigned> dims, int64_t most) const {
  int64_t lanes = most;
  if (dims.size() > 1) {
    auto size = constantOf(c_.domain.space.size(dims.back()));
    while (lanes > 1 && (!size || *size % lanes != 0))
      lanes /= 2;
  }
  return dims.empty() ? 1 : lanes;
}

int64_t ProductNodes::lanesOfResult(unsigned dimension, int64_t most) const {
  return lanesOf(result_dims_[dimension], most);
}

int64_t ProductNodes::lanesOfOperand(unsigned operand, unsigned dimension, int64_t most) const {
  return lanesOf(operand_dims_[operand][dimension], most);
}

void ProductNodes::bindOperand(unsigned operand, unsigned dimension, Value index) {
  bind(operand_dims_[operand][dimension], index, 1);
}

Value ProductNodes::expression(AffineExpr expr) const {
  Value value = c_.evaluator.index(expr);
  c_.evaluator.toInnermost();
  return value;
}

void ProductNodes::bindBatch(Value batch) {
  IndexMath i{b_, b_.getUnknownLoc()};
  auto sizes = shapeOf(cast<RankedTensorType>(form_.op->getResult(0).getType()));
  for (size_t dim = sizes.size() - 2; dim-- > 0;) {
    Value index = batch;
    if (dim > 0) {
      Value size = expression(sizes[dim]);
      index = i.modulo(batch, size);
      batch = i.divide(batch, size);
    }
    bindResult(unsigned(dim), index);
    for (auto [number, operand] : llvm::enumerate(form_.operands)) {
      auto mine = shapeOf(cast<RankedTensorType>(operand.value.getType()));
      const size_t dropped = sizes.size() - mine.size();
      if (dim < dropped)
        continue;
      auto fewer = constantOf(mine[dim - dropped]), all = constantOf(sizes[dim]);
      const int64_t sharers = fewer && all && *fewer > 1 ? *all / *fewer : 1;
      bindOperand(unsigned(number), unsigned(dim - dropped), i.divide(index, sharers));
    }
  }
}

void ProductNodes::bind(ArrayRef<unsigned> dims, Value index, int64_t lanes, bool aligned) const {
  Evaluator& e = c_.evaluator;
  IndexMath i{b_, b_.getUnknownLoc()};
  for (size_t left = dims.size(); left-- > 0;) {
    Value coordinate = index;
    if (left > 0) {
      Value size = e.index(c_.domain.space.size(dims[left]));
      e.toInnermost();
      coordinate = i.modulo(index, size);
      index = i.divide(index, size);
    }
    if (left + 1 == dims.size() && lanes > 1)
      e.bindLanes(dims[left], coordinate, unsigned(lanes), aligned);
    else
      e.bind(dims[left], coordinate);
  }
}

ProductNodes::Neighbours ProductNodes::neighboursAlong(unsigned operand, unsigned dimension) const {
  IndexSpace& space = c_.domain.space;
  ArrayRef<unsigned> dims = operand_dims_[operand][dimension];
  Neighbours found{0, 8};
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  walkNodes(space, form_.operand(c_.domain, operand), seen, c_.graph, [&](Node node) {
    if (!c_.graph.is_input(node.value))
      return true;
    Type element = cast<RankedTensorType>(node.value.getType()).getElementType();
    AffineExpr offset = c_.graph.offset(space, node);
    if (dims.empty() || !space.dimsOf(offset).test(dims.back()))
      return false;
    AffineExpr stride = space.strideAlong(offset, dims.back());
    if (stride && constantOf(stride) == 1) {
      found.bytes += bytesInMemory(element);
      found.run = std::min(found.run, accessRun(stride, space.size(dims.back()), element));
    }
    return false;
  });
  if (found.bytes == 0)
    found.run = 1;
  return found;
}

ProductNodes::Access ProductNodes::accessOf(unsigned operand, unsigned first, unsigned second) const {
  const Neighbours one = neighboursAlong(operand, first), other = neighboursAlong(operand, second);
  return other.bytes >= one.bytes ? Access{second, other.run} : Access{first, one.run};
}

bool ProductNodes::storesAlong(unsigned dimension) const {
  IndexSpace& space = c_.domain.space;
  ArrayRef<unsigned> dims = result_dims_[dimension];
  return !dims.empty() && llvm::any_of(c_.domain.outputs, [&](const DomainOutput& output) {
    AffineExpr stride = space.strideAlong(c_.graph.output_offset(space, output), dims.back());
    return stride && constantOf(stride) == 1;
  });
}

Value ProductNodes::load(unsigned operand, ArrayRef<std::pair<unsigned, Value>> indices, Access access) const {
  OpBuilder::InsertionGuard guard(b_);
  Evaluator& e = c_.evaluator;
  unsigned scopes = e.enterHere();
  for (auto [dimension, index] : indices)
    bind(operand_dims_[operand][dimension], index, dimension == access.dimension ? access.run : 1, access.aligned);
  Node node = form_.operand(c_.domain, operand);
  Value value = e.evaluate(node);
  e.toInnermost();
  if (!value) {  // a failure, which the evaluator keeps
    Type element = registerType(cast<RankedTensorType>(node.value.getType()).getElementType());
    value = constantOfType(b_, b_.getUnknownLoc(), b_.getZeroAttr(element), 1);
  }
  value = splat(b_, value, unsigned(access.run));
  while (scopes-- > 0)
    e.leave();
  return value;
}

Value ProductNodes::address(unsigned operand, ArrayRef<std::pair<unsigned, Value>> indices, Access access) const {
  Node node = form_.operand(c_.domain, operand);
  if (!c_.graph.is_input(node.value))
    return {};
  OpBuilder::InsertionGuard guard(b_);
  Evaluator& e = c_.evaluator;
  unsigned scopes = e.enterHere();
  for (auto [dimension, index] : indices)
    bind(operand_dims_[operand][dimension], index, dimension == access.dimension ? access.run : 1, access.aligned);
  Value found = e.addressOf(node);
  while (scopes-- > 0)
    e.leave();
  return found;
}

ProductSource ProductNodes::matrixSource(unsigned operand, bool runs_of_rows, std::function<Value(Value)> taken) const {
  const unsigned columns = unsigned(operand_dims_[operand].size()) - 1, rows = columns - 1;
  Access access = accessOf(operand, rows, columns);
  if (access.dimension == rows && !runs_of_rows)
    access.run = 1;
  ProductSource source;
  source.columns_contiguous = access.dimension == columns;
  source.run = access.run;
  source.load = [=, this](Value row, Value column, int64_t) {
    return taken(load(operand, {{rows, row}, {columns, column}}, access));
  };
  source.address = [=, this](Value row, Value column, int64_t run) {
    Access some = access;
    some.run = run;
    return address(operand, {{rows, row}, {columns, column}}, some);
  };
  return source;
}

void ProductNodes::open(Value condition) {
  Evaluator& e = c_.evaluator;
  opened_.push_back(b_.saveInsertionPoint());
  if (condition) {
    auto branch = scf::IfOp::create(b_, b_.getUnknownLoc(), condition, /*withElseRegion=*/false);
    e.enter(branch.thenBlock());
  } else {
    e.enter(b_.getInsertionBlock());
  }
}

void ProductNodes::close() {
  c_.evaluator.leave();
  b_.restoreInsertionPoint(opened_.pop_back_val());
}

Value ProductNodes::bias() const {
  Value value = form_.bias ? c_.evaluator.evaluate(*form_.bias) : Value();
  c_.evaluator.toInnermost();
  return value;
}

void ProductNodes::store(Value element, Value of_row) const {
  c_.evaluator.bindValue(form_.result(), element);
  if (of_row)
    c_.evaluator.bindValue(form_.result(1), of_row);
  storeOutputs(/*of_rows=*/false);
}

void ProductNodes::storeRow(Value of_row) const {
  c_.evaluator.bindValue(form_.result(1), of_row);
  storeOutputs(/*of_rows=*/true);
}

void ProductNodes::storeOutputs(bool of_rows) const {
  SmallVector<const DomainOutput*> outputs;
  for (const DomainOutput& output : c_.domain.outputs)
    if (output.per_row == of_rows)
      outputs.push_back(&output);
  c_.storeOutputs(outputs);
  c_.evaluator.toInnermost();
}

}  // namespace zefuse
