// Sums of many floats. Adding one element after the other loses what a large total has no bits for: the error grows
// with the number of elements. So a long reduction sums blocks of a few, and adds the blocks' sums with compensation:
// a total of two numbers, the second of which holds what rounding took from the first (Knuth's TwoSum; The Art of
// Computer Programming 2, 4.2.2; Kahan-Babuska-Neumaier summation). Both in the elements' type: no f64, which takes
// twice the registers and which many GPUs lack. The order, and so every bit, is fixed.
#pragma once

#include <optional>

#include "lowering/schedule/core/context.h"

namespace zefuse {

constexpr int64_t sum_block = 32;          // elements of a block, about
constexpr int64_t longest_plain_sum = 64;  // additions that need no blocks

// Where a nest of loops over reduced dims ends a block.
struct SumBlocks {
  unsigned loop;                  // all rounds of this loop, with those inside it, make a block; or
  std::optional<int64_t> rounds;  // so many of its rounds
};
// `rounds`: of each loop, outermost first; none: symbolic. No value: the reduction is short, or sums no floats.
std::optional<SumBlocks> sumBlocks(llvm::ArrayRef<std::optional<int64_t>> rounds,
                                   llvm::ArrayRef<const Instance*> instances);
bool sumsFloats(const Instance& instance);

// A total in two parts, of equal scalar or vector type.
struct LongTotal {
  mlir::Value high, low;
  void add(mlir::OpBuilder& builder, mlir::Value sum);
  mlir::Value value(mlir::OpBuilder& builder) const;
};

// The state that a loop over blocks carries, for several reductions at once: sums of floats take two values, other
// reductions one.
class LongTotals {
public:
  LongTotals(const ScheduleContext& context, llvm::ArrayRef<const Instance*> instances)
      : c_(context), instances_(instances) {}

  llvm::ArrayRef<const Instance*> reductions() const { return instances_; }
  // What a block starts with: `copies` accumulators per reduction, as add takes them.
  llvm::SmallVector<mlir::Value> block(unsigned lanes, unsigned copies = 1) const;
  llvm::SmallVector<mlir::Value> start(unsigned lanes) const;
  llvm::SmallVector<mlir::Value> add(mlir::ValueRange carried, mlir::ValueRange block) const;
  // One value per reduction.
  llvm::SmallVector<mlir::Value> values(mlir::ValueRange carried) const;
  // Accumulators to one value per reduction.
  llvm::SmallVector<mlir::Value> joined(mlir::ValueRange block) const;

private:
  const ScheduleContext& c_;
  llvm::ArrayRef<const Instance*> instances_;
};

}  // namespace zefuse
