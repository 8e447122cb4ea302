// Compare and exchange on vectors of keys. A vector's lanes are neighbours in the order.
#pragma once

#include "lowering/schedule/ordered/sort_keys.h"

namespace zefuse {

class SortNetwork {
public:
  SortNetwork(mlir::OpBuilder& builder, mlir::Location loc, SortKeys& keys, unsigned lanes)
      : b_(builder), loc_(loc), keys_(keys), lanes_(lanes) {}

  // Lane by lane, the smaller to `low`.
  void exchange(SortKey& low, SortKey& high);
  SortKey sorted(SortKey keys);  // of any keys
  SortKey merged(SortKey keys);  // of a bitonic sequence: one that rises, then falls
  SortKey reversed(SortKey keys);

private:
  SortKey shuffled(SortKey keys, llvm::ArrayRef<int64_t> lanes);
  // Each lane with the one whose number differs in the bits of `mask`.
  SortKey step(SortKey keys, unsigned mask);

  mlir::OpBuilder& b_;
  mlir::Location loc_;
  SortKeys& keys_;
  unsigned lanes_;
};

}  // namespace zefuse
