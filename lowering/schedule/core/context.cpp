#include "lowering/schedule/core/context.h"

#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/builtin_call.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr double min_group_cost = 200 << 10;  // less work than this is not worth another thread's wake-up

}  // namespace

Value ScheduleContext::workItem(StringRef name, unsigned dimension) const {
  OpBuilder& b = builder();
  Location loc = b.getUnknownLoc();
  Value which = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(dimension));
  Value id = callBuiltin(b, module, name, b.getI64Type(), which);
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), id);
}

void ScheduleContext::storeOutput(const DomainOutput& output) const {
  // Nothing to store; and its layout, with strides of 0, would not tell its elements apart.
  auto type = cast<RankedTensorType>(output.node.value.getType());
  if (llvm::is_contained(type.getShape(), 0))
    return;
  Value value = evaluator.evaluate(output.node);
  if (value)
    evaluator.store(outputs[output.number], graph.output_offset(domain.space, output), value,
                    cast<RankedTensorType>(output.node.value.getType()).getElementType());
}

void ScheduleContext::storeOutputs(ArrayRef<const DomainOutput*> outputs) const {
  for (const DomainOutput* output : outputs)
    if (in_place)
      evaluator.evaluate(output->node);
  for (const DomainOutput* output : outputs)
    storeOutput(*output);
}

void ScheduleContext::storeAllOutputs() const {
  storeOutputs(llvm::to_vector(llvm::map_range(domain.outputs, [](const DomainOutput& output) { return &output; })));
}

SmallVector<const DomainOutput*> ScheduleContext::columnOutputs(unsigned level) const {
  SmallVector<const DomainOutput*> found;
  for (auto [number, output] : llvm::enumerate(domain.outputs))
    if (!output.per_row && strategy.output_levels[number] == level)
      found.push_back(&output);
  return found;
}

void ScheduleContext::bindPosition(ArrayRef<unsigned> dims, Value position) const {
  OpBuilder& b = builder();
  Location loc = b.getUnknownLoc();
  Value rest = position;
  for (unsigned i = dims.size(); i-- > 0;) {
    if (i == 0) {
      evaluator.bind(dims[0], rest);
      return;
    }
    Value size = evaluator.index(domain.space.size(dims[i]));
    evaluator.toInnermost();
    Value coordinate = arith::RemUIOp::create(b, loc, rest, size);
    rest = arith::DivUIOp::create(b, loc, rest, size);
    evaluator.bind(dims[i], coordinate);
  }
}

std::pair<Value, Value> shareOfGroup(const ScheduleContext& context, Value group, AffineExpr units, double unit_cost) {
  OpBuilder& b = context.builder();
  Location loc = b.getUnknownLoc();
  context.launch.extent = units;
  context.launch.grain =
      std::max<int64_t>(1, int64_t(min_group_cost / std::max(unit_cost, 1e-3)));  // 0: rows of nothing
  Value groups = context.workItem("_Z14get_num_groupsj"), extent = context.evaluator.index(units);
  context.evaluator.toInnermost();
  Value up = arith::AddIOp::create(b, loc, extent, arith::SubIOp::create(b, loc, groups, constantIndex(b, loc, 1)));
  Value chunk = arith::DivUIOp::create(b, loc, up, groups);
  auto limited = [&](Value value) -> Value { return arith::MinSIOp::create(b, loc, value, extent); };
  Value begin = limited(arith::MulIOp::create(b, loc, group, chunk));
  return {begin, limited(arith::AddIOp::create(b, loc, begin, chunk))};
}

Value atLeastOne(const ScheduleContext& context, AffineExpr count) {
  AffineExpr simple = context.domain.space.simplify(count);
  Value value = context.evaluator.index(simple);
  context.evaluator.toInnermost();
  if (auto constant = dyn_cast<AffineConstantExpr>(simple); constant && constant.getValue() > 0)
    return value;
  OpBuilder& b = context.builder();
  return arith::MaxSIOp::create(b, b.getUnknownLoc(), value, constantIndex(b, b.getUnknownLoc(), 1));
}

Value ScheduleContext::combine(const Instance& instance, Value lhs, Value rhs) const {
  return emitScalarOp(builder(), combinerOf(instance.op).op, {lhs, rhs}, lanesOf(lhs));
}

Value ScheduleContext::combineLanes(const Instance& instance, Value vector) const {
  OpBuilder& b = builder();
  for (int64_t lanes = lanesOf(vector); lanes > 1; lanes /= 2) {
    Location at = vector.getLoc();
    if (lanes == 2) {
      Value low = vector::ExtractOp::create(b, at, vector, int64_t(0));
      return combine(instance, low, vector::ExtractOp::create(b, at, vector, int64_t(1)));
    }
    SmallVector<int64_t> low = llvm::to_vector(llvm::seq<int64_t>(0, lanes / 2));
    SmallVector<int64_t> high = llvm::to_vector(llvm::seq<int64_t>(lanes / 2, lanes));
    Value first = vector::ShuffleOp::create(b, at, vector, vector, low);
    Value second = vector::ShuffleOp::create(b, at, vector, vector, high);
    vector = combine(instance, first, second);
  }
  return vector;
}

Value ScheduleContext::finish(const Instance& instance, Value reduced) const {
  Value init = initOf(instance.op);
  TypedAttr constant;
  if (matchPattern(init, m_Constant(&constant)) && constant == neutralElement(combinerOf(instance.op).op))
    return reduced;
  Value start = evaluator.evaluate({init, domain.space.indices({})});
  if (!start)
    return reduced;
  evaluator.toInnermost();
  return combine(instance, splat(builder(), start, lanesOf(reduced)), reduced);
}

}  // namespace zefuse
