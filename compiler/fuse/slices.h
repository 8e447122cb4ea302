// Reductions over slices: split_reductions.cpp says which slices, here they are made.
#pragma once

#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace zefuse {

// Which slices a reduction has.
struct Split {
  llvm::SmallVector<unsigned> whole;  // reduction loops each round of which is a slice
  std::optional<unsigned> loop;       // and one that is cut into so many,
  int64_t slices = 1;                 // each this long,
  mlir::AffineExpr length, rest;      // which leaves this many over
  bool partials_innermost = false;

  bool isSlice(unsigned number) const { return loop == number || llvm::is_contained(whole, number); }
};

// The sizes of a reduction's loops; none: it can have no partial results.
std::optional<llvm::SmallVector<mlir::AffineExpr>> loopSizes(mlir::linalg::GenericOp op);

// The reduction becomes partial results over slices, and their combination. `for_groups`: of a GPU.
void splitReduction(mlir::linalg::GenericOp op, const Split& plan, unsigned num_symbols, bool for_groups);

// sum((x - mean)^2), where mean is sum(x) / n: what a variance is made of.
struct Deviations {
  mlir::Value mean;
  mlir::linalg::GenericOp sum;
};
std::optional<Deviations> deviationsFromMeanOf(mlir::linalg::GenericOp sum);

// Both sums for a GPU, with slices that no rest follows. Slices give their sum and what deviates from their own mean,
// in one walk of memory; what slices' means deviate from that of all is added where they are combined (Chan, Golub,
// LeVeque, Updating formulae, 1979). One after the other the two would be four launches.
void splitDeviations(mlir::linalg::GenericOp sum, Deviations deviations, const Split& plan, unsigned num_symbols);

}  // namespace zefuse
