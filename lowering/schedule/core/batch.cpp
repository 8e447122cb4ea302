#include "lowering/schedule/core/batch.h"

#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

AffineExpr Batch::unitsOfAll(const IndexSpace& space, AffineExpr units) const {
  if (sizes.empty())
    return space.simplify(units * sets);
  AffineExpr sum = space.constant(0);
  for (int64_t elements : sizes)
    sum = sum + space.simplify(units.replace(size, space.constant(elements)));
  return space.simplify(sum);
}

/// Numbers that differ per set, in private memory: the address of number `which` of a set.
namespace {
class Table {
public:
  Table(OpBuilder& b, ArrayRef<Value> numbers) : b_(b), loc_(b.getUnknownLoc()) {
    Value one = arith::ConstantOp::create(b, loc_, b.getI32IntegerAttr(1));
    memory_ = LLVM::AllocaOp::create(b, loc_, LLVM::LLVMPointerType::get(b.getContext()),
                                     LLVM::LLVMArrayType::get(b.getI64Type(), numbers.size()), one, /*alignment=*/8);
    for (auto [at, number] : llvm::enumerate(numbers))
      LLVM::StoreOp::create(b, loc_, number, address(constantIndex(b, loc_, int64_t(at))), 8);
  }
  Value load(Value at) { return LLVM::LoadOp::create(b_, loc_, b_.getI64Type(), address(at), 8); }

private:
  Value address(Value at) {
    Value index = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), at);
    return LLVM::GEPOp::create(b_, loc_, memory_.getType(), b_.getI64Type(), memory_, ArrayRef<LLVM::GEPArg>{index},
                               LLVM::GEPNoWrapFlags::inbounds);
  }
  OpBuilder& b_;
  Location loc_;
  Value memory_;
};
}  // namespace

void overSets(const Batch& batch, Evaluator& evaluator, AffineExpr units, Value begin, Value end,
              MutableArrayRef<Value> outputs, llvm::function_ref<void(Value, Value)> body) {
  if (batch.sets == 1)
    return body(begin, end);
  OpBuilder& b = evaluator.builder();
  Location loc = b.getUnknownLoc();
  evaluator.toInnermost();
  // Pointers travel as integers: an array of pointers would need types that the back end cannot deduce.
  SmallVector<Value> numbers;
  unsigned ins = batch.inputs_of_body.size(), outs = outputs.size();
  for (int64_t set = 0; set < batch.sets; ++set) {
    for (Value pointer : ArrayRef(batch.inputs).slice(set * ins, ins))
      numbers.push_back(LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), pointer));
    for (Value pointer : ArrayRef(batch.outputs).slice(set * outs, outs))
      numbers.push_back(LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), pointer));
    if (!batch.sizes.empty())
      numbers.push_back(arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(batch.sizes[set])));
  }
  unsigned per_set = numbers.size() / batch.sets;
  Table table(b, numbers);
  Value zero = constantIndex(b, loc, 0), one = constantIndex(b, loc, 1);
  auto loop = evaluator.openLoop(zero, constantIndex(b, loc, batch.sets), one, zero);
  evaluator.pin();
  Value first = arith::MulIOp::create(b, loc, loop.index(), constantIndex(b, loc, per_set));
  unsigned next = 0;
  auto number = [&] { return table.load(arith::AddIOp::create(b, loc, first, constantIndex(b, loc, next++))); };
  Type pointer = LLVM::LLVMPointerType::get(b.getContext(), 1);
  for (Value tensor : batch.inputs_of_body)
    evaluator.bindInput(tensor, LLVM::IntToPtrOp::create(b, loc, pointer, number()));
  for (Value& output : outputs)
    output = LLVM::IntToPtrOp::create(b, loc, pointer, number());
  if (!batch.sizes.empty())
    evaluator.bindSymbol(cast<AffineSymbolExpr>(batch.size).getPosition(),
                         arith::IndexCastOp::create(b, loc, b.getIndexType(), number()));
  Value before = loop.carried()[0], count = evaluator.index(units);
  evaluator.toInnermost();
  auto within = [&](Value at) {
    Value low = arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, at, before), zero);
    return arith::MinSIOp::create(b, loc, low, count);
  };
  Value low = within(begin), high = within(end);
  body(low, high);
  evaluator.toInnermost();
  Value after = arith::AddIOp::create(b, loc, before, count);
  evaluator.closeLoop(loop, after);
}

}  // namespace zefuse
