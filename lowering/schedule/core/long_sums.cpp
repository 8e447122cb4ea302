#include "lowering/schedule/core/long_sums.h"

#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {

bool sumsFloats(const Instance& instance) { return isa<arith::AddFOp>(combinerOf(instance.op).op); }

std::optional<SumBlocks> sumBlocks(ArrayRef<std::optional<int64_t>> rounds, ArrayRef<const Instance*> instances) {
  if (llvm::none_of(instances, [](const Instance* instance) { return sumsFloats(*instance); }))
    return std::nullopt;
  int64_t inside = 1;  // elements of one round of the loop
  for (unsigned loop = rounds.size(); loop-- > 0;) {
    if (rounds[loop] && inside * *rounds[loop] <= longest_plain_sum) {
      inside *= *rounds[loop];
      continue;
    }
    if (inside * 2 > sum_block)
      return SumBlocks{loop + 1, std::nullopt};
    return SumBlocks{loop, sum_block / inside};
  }
  return std::nullopt;
}

void LongTotal::add(OpBuilder& b, Value sum) {
  Location loc = sum.getLoc();
  auto minus = [&](Value x, Value y) -> Value { return arith::SubFOp::create(b, loc, x, y); };
  auto plus = [&](Value x, Value y) -> Value { return arith::AddFOp::create(b, loc, x, y); };
  Value next = plus(high, sum), of_sum = minus(next, high);
  low = plus(low, plus(minus(high, minus(next, of_sum)), minus(sum, of_sum)));
  high = next;
}

Value LongTotal::value(OpBuilder& b) const {
  Location loc = high.getLoc();
  // An infinite total has the difference of infinities as its rest.
  Value no_rest = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, low, low);
  return arith::SelectOp::create(b, loc, no_rest, high, arith::AddFOp::create(b, loc, high, low));
}

SmallVector<Value> LongTotals::block(unsigned lanes, unsigned copies) const {
  OpBuilder& b = c_.builder();
  SmallVector<Value> values;
  for (unsigned copy = 0; copy < copies; ++copy)
    for (const Instance* instance : instances_)
      values.push_back(constantOfType(b, b.getUnknownLoc(), neutralElement(combinerOf(instance->op).op), lanes));
  return values;
}

SmallVector<Value> LongTotals::start(unsigned lanes) const {
  SmallVector<Value> carried;
  for (auto [instance, neutral] : llvm::zip_equal(instances_, block(lanes)))
    carried.append(sumsFloats(*instance) ? 2 : 1, neutral);
  return carried;
}

SmallVector<Value> LongTotals::joined(ValueRange block) const {
  SmallVector<Value> values(block.take_front(instances_.size()));
  for (size_t next = instances_.size(); next < block.size(); ++next) {
    size_t number = next % instances_.size();
    values[number] = c_.combine(*instances_[number], values[number], block[next]);
  }
  return values;
}

SmallVector<Value> LongTotals::add(ValueRange carried, ValueRange block) const {
  SmallVector<Value> next;
  for (auto [instance, value] : llvm::zip_equal(instances_, joined(block))) {
    if (!sumsFloats(*instance)) {
      next.push_back(c_.combine(*instance, carried[next.size()], value));
      continue;
    }
    LongTotal total{carried[next.size()], carried[next.size() + 1]};
    total.add(c_.builder(), value);
    next.append({total.high, total.low});
  }
  return next;
}

SmallVector<Value> LongTotals::values(ValueRange carried) const {
  SmallVector<Value> values;
  size_t next = 0;
  for (const Instance* instance : instances_) {
    bool pair = sumsFloats(*instance);
    values.push_back(pair ? LongTotal{carried[next], carried[next + 1]}.value(c_.builder()) : carried[next]);
    next += pair ? 2 : 1;
  }
  return values;
}

}  // namespace zefuse
