#include "lowering/schedule/products/staged_product.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace zefuse {

SmallVector<Value> emitStagedProduct(OpBuilder& b, WorkGroup& group, const Extent& k, const StagedProduct& product,
                                     SmallVector<Value> totals) {
  Location loc = b.getUnknownLoc();
  IndexMath i{b, loc};
  const int64_t ahead = product.stages - 1;
  // What begins at `first`, if there is any. `known`: first, where it is.
  auto copy = [&](Value stage, Value first, std::optional<int64_t> known) {
    {
      OpBuilder::InsertionGuard guard(b);
      if (!known || !k.constant || *known >= *k.constant) {
        auto branch = scf::IfOp::create(b, loc, i.less(first, k.value), /*withElseRegion=*/false);
        b.setInsertionPointToStart(branch.thenBlock());
      }
      product.copy(i.multiply(stage, product.elements), first);
    }
    if (product.asynchronous)
      group.commitCopies();  // an empty batch too: they are counted
  };
  auto arrived = [&] {
    if (product.asynchronous)
      group.waitForCopies(ahead - 1);
    group.barrier();  // the stage is there for all, and nobody reads the one before it any more
  };

  for (int64_t stage = 0; stage < ahead; ++stage)
    copy(i.number(stage), i.number(stage * product.depth), stage * product.depth);
  arrived();
  const size_t sums = totals.size();
  SmallVector<Value> carried = std::move(totals), first = product.load(i.number(0), 0);
  carried.append(first);
  carried.push_back(i.number(0));  // the stage that is multiplied
  auto loop = scf::ForOp::create(b, loc, i.number(0), k.value, i.number(product.depth), carried);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> now(loop.getRegionIterArgs());
    Value stage = now.pop_back_val();
    SmallVector<Value> operands(ArrayRef(now).drop_front(sums));
    now.truncate(sums);
    Value before =
        arith::SelectOp::create(b, loc, i.equal(stage, i.number(0)), i.number(ahead), i.subtract(stage, i.number(1)));
    copy(before, i.add(loop.getInductionVar(), ahead * product.depth), std::nullopt);
    Value after = i.add(stage, 1), start = i.multiply(stage, product.elements);
    after = arith::SelectOp::create(b, loc, i.equal(after, i.number(product.stages)), i.number(0), after);
    SmallVector<Value> sums_of_stage = now;
    if (product.apart)
      for (Value& sum : sums_of_stage)
        sum = arith::ConstantOp::create(b, loc, sum.getType(), cast<TypedAttr>(b.getZeroAttr(sum.getType())));
    for (int64_t at = 0; at < product.depth; at += product.step) {
      SmallVector<Value> next;
      if (at + product.step < product.depth) {
        next = product.load(start, at + product.step);
      } else {
        arrived();
        next = product.load(i.multiply(after, product.elements), 0);
      }
      product.multiply(operands, sums_of_stage);
      operands = std::move(next);
    }
    for (auto [total, sum] : llvm::zip_equal(now, sums_of_stage))
      total = product.apart ? arith::AddFOp::create(b, loc, total, sum).getResult() : sum;
    now.append(operands);
    now.push_back(after);
    scf::YieldOp::create(b, loc, now);
  }
  return SmallVector<Value>(loop.getResults().take_front(sums));
}

}  // namespace zefuse
