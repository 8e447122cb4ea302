#include "lowering/schedule/core/sort_plan.h"

#include "lowering/schedule/core/strategy.h"

#include <algorithm>
#include <cmath>

#include "llvm/ADT/bit.h"

using namespace mlir;

namespace zefuse {

bool hasWideKeys(Type element) { return element.getIntOrFloatBitWidth() == 64; }

namespace {

constexpr unsigned widest = 16;  // lanes of a vector of keys

}  // namespace

SortPlan planSort(const SortForm& form, const IndexSpace& space) {
  SortPlan plan;
  plan.lanes = widest;
  auto size = constantOf(space.size(form.from)), count = constantOf(space.size(form.to));
  if (size && *size < widest)
    plan.lanes = std::max<uint64_t>(2, llvm::bit_ceil(uint64_t(*size)));
  double lanes = plan.lanes, length = size ? double(*size) : assumed_symbol;
  double vectors = std::max(1.0, length / lanes), levels = std::max(0.0, std::ceil(std::log2(vectors)));
  double all = vectors * (30 + levels * (20 + levels * 2));
  plan.cost = all * lanes;
  plan.capacity = space.simplify(space.size(form.from).ceilDiv(plan.lanes) * plan.lanes);
  plan.choice = {.length = size, .wanted = count};
  if (count && *count > 0) {
    double blocks = std::ceil(double(*count) / lanes), kept = blocks * lanes;
    // Of a random row: a better one is met with probability kept / position.
    double better = std::min(vectors, kept * (1 + std::max(0.0, std::log(length / kept))));
    double some = vectors * 8 + better * (30 + blocks * 30);
    if (size ? some < all : blocks <= 16) {
      plan.select = true;
      plan.cost = some * lanes;
      plan.capacity = space.constant(int64_t(kept));
      plan.choice.best_of_row = true;
    }
  }
  bool wide = hasWideKeys(cast<RankedTensorType>(SortOp(form.op).getInput().getType()).getElementType());
  plan.bytes = space.simplify((plan.capacity * (wide ? 16 : 8) + 63).floorDiv(64) * 64);
  return plan;
}

SortPlan planGroupSort(const SortForm& form, const IndexSpace& space) {
  SortPlan plan = planSort(form, space);
  plan.select = false;
  plan.lanes = 1;
  plan.capacity = space.size(form.from);
  bool wide = hasWideKeys(cast<RankedTensorType>(SortOp(form.op).getInput().getType()).getElementType());
  plan.bytes = space.simplify((plan.capacity * (wide ? 16 : 8) + 63).floorDiv(64) * 64);
  plan.choice.best_of_row = false;
  return plan;
}

}  // namespace zefuse
