#include "lowering/schedule/products/fragment_side.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

void FragmentSide::copy(OpBuilder& b, WorkGroup& group, Value array, const Extent& all_across, Value first_across,
                        const Extent& all_k, Value first_k) const {
  const TileSide along{all_across, first_across, across, kInner() ? line() : 1};
  const TileSide summed{all_k, first_k, depth, kInner() ? 1 : line()};
  stageTile(b, group, source, b.getI16Type(), across_is_rows ? along : summed, across_is_rows ? summed : along, array,
            std::nullopt, /*asynchronous=*/true);
}

Value FragmentSide::lanesPlace(OpBuilder& b, WorkGroup& group, Value first) const {
  IndexMath i{b, b.getUnknownLoc()};
  Value number = i.modulo(group.lane(), 8), block = i.divide(group.lane(), 8);
  Value fast = i.multiply(i.modulo(block, 2), 8), slow = i.multiply(i.divide(block, 2), 8);
  Value k = of_a ? slow : fast, at = i.add(first, of_a ? fast : slow);
  return kInner() ? i.add(i.multiply(i.add(at, number), line()), k) : i.add(i.multiply(i.add(k, number), line()), at);
}

Value FragmentSide::load(OpBuilder& b, WorkGroup& group, Value array, Value place, int64_t across_on,
                         int64_t k_on) const {
  IndexMath i{b, b.getUnknownLoc()};
  const int64_t offset = kInner() ? across_on * line() + k_on : k_on * line() + across_on;
  return group.loadFragments(group.at(array, b.getI16Type(), i.add(place, offset)), !kInner());
}

Value pairOf(OpBuilder& b, Value vector, int64_t first) {
  return vector::ShuffleOp::create(b, b.getUnknownLoc(), vector, vector, ArrayRef<int64_t>{first, first + 1});
}

}  // namespace zefuse
