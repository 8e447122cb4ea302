#include "lowering/schedule/products/fragment_side.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

void FragmentSide::copy(OpBuilder& b, WorkGroup& group, Value array, const Extent& all_across, Value first_across,
                        const Extent& all_k, Value first_k) const {
  const TileSide along{all_across, first_across, across, kInner() ? line() : 1};
  const TileSide summed{all_k, first_k, depth, kInner() ? 1 : line()};
  stageTile(b, group, source, type(b), across_is_rows ? along : summed, across_is_rows ? summed : along, array,
            std::nullopt, /*asynchronous=*/true);
}

Value FragmentSide::lanesPlace(OpBuilder& b, WorkGroup& group, Value first) const {
  IndexMath i{b, b.getUnknownLoc()};
  if (direct()) {
    Value at = i.add(first, i.divide(group.lane(), 4)), k = i.multiply(i.modulo(group.lane(), 4), neighbours ? 2 : 1);
    return kInner() ? i.add(i.multiply(at, line()), k) : i.add(i.multiply(k, line()), at);
  }
  Value number = i.modulo(group.lane(), 8), block = i.divide(group.lane(), 8);
  Value fast = i.modulo(block, 2), slow = i.divide(block, 2);
  Value k = i.multiply(of_a ? slow : fast, wide ? 4 : 8), at = i.add(first, i.multiply(of_a ? fast : slow, 8));
  return kInner() ? i.add(i.multiply(i.add(at, number), line()), k) : i.add(i.multiply(i.add(k, number), line()), at);
}

Value FragmentSide::load(OpBuilder& b, WorkGroup& group, Value array, Value place, int64_t across_on,
                         int64_t k_on) const {
  IndexMath i{b, b.getUnknownLoc()};
  auto at = [&](int64_t across, int64_t k) {
    const int64_t offset = kInner() ? across * line() + k : k * line() + across;
    return group.at(array, type(b), i.add(place, offset));
  };
  if (!direct())
    return group.loadFragments(at(across_on, k_on), !kInner());
  SmallVector<Value> loaded;
  for (int64_t reg = 0; reg < 4; ++reg) {
    const int64_t second = of_a ? reg % 2 : reg / 2, next = of_a ? reg / 2 : reg % 2;
    loaded.push_back(LLVM::LoadOp::create(b, b.getUnknownLoc(), b.getI32Type(),
                                          at(across_on + second * 8, k_on + next * (neighbours ? 1 : 4)), 4));
  }
  return vector::FromElementsOp::create(b, b.getUnknownLoc(), VectorType::get({4}, b.getI32Type()), loaded);
}

Value pairOf(OpBuilder& b, Value vector, int64_t first) {
  return vector::ShuffleOp::create(b, b.getUnknownLoc(), vector, vector, ArrayRef<int64_t>{first, first + 1});
}

}  // namespace zefuse
