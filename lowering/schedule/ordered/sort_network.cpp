#include "lowering/schedule/ordered/sort_network.h"

#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

void SortNetwork::exchange(SortKey& low, SortKey& high) {
  if (!keys_.wide()) {
    Value smaller = arith::MinSIOp::create(b_, loc_, low.key, high.key);
    high.key = arith::MaxSIOp::create(b_, loc_, low.key, high.key);
    low.key = smaller;
    return;
  }
  Value swap = keys_.less(high, low);
  auto choose = [&](Value a, Value b) -> Value { return arith::SelectOp::create(b_, loc_, swap, a, b); };
  SortKey smaller{choose(high.key, low.key), choose(high.place, low.place)};
  high = {choose(low.key, high.key), choose(low.place, high.place)};
  low = smaller;
}

SortKey SortNetwork::shuffled(SortKey keys, ArrayRef<int64_t> lanes) {
  auto shuffle = [&](Value value) -> Value {
    return value ? Value(vector::ShuffleOp::create(b_, loc_, value, value, lanes)) : Value();
  };
  return {shuffle(keys.key), shuffle(keys.place)};
}

SortKey SortNetwork::reversed(SortKey keys) {
  SmallVector<int64_t> lanes;
  for (unsigned lane = lanes_; lane-- > 0;)
    lanes.push_back(lane);
  return shuffled(keys, lanes);
}

SortKey SortNetwork::step(SortKey keys, unsigned mask) {
  SmallVector<int64_t> partners, halves;
  for (unsigned lane = 0; lane < lanes_; ++lane) {
    partners.push_back(lane ^ mask);
    halves.push_back(lane < (lane ^ mask) ? lane : lanes_ + lane);
  }
  SortKey low = keys, high = shuffled(keys, partners);
  exchange(low, high);
  auto joined = [&](Value a, Value b) -> Value {
    return a ? Value(vector::ShuffleOp::create(b_, loc_, a, b, halves)) : Value();
  };
  return {joined(low.key, high.key), joined(low.place, high.place)};
}

SortKey SortNetwork::merged(SortKey keys) {
  for (unsigned distance = lanes_ / 2; distance > 0; distance /= 2)
    keys = step(keys, distance);
  return keys;
}

SortKey SortNetwork::sorted(SortKey keys) {
  for (unsigned size = 2; size <= lanes_; size *= 2) {
    keys = step(keys, size - 1);  // sorted halves, the second read backwards, are bitonic
    for (unsigned distance = size / 4; distance > 0; distance /= 2)
      keys = step(keys, distance);
  }
  return keys;
}

}  // namespace zefuse
