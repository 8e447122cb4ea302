// Concatenations along memory of pieces shorter than a vector (sines and cosines of three coordinates at ten
// frequencies): lanes along memory are of several pieces, and each vector computes all of them for every lane. Lanes
// across another dim are of one piece at a time.
#pragma once

#include "common/toolchain/target_description.h"
#include "lowering/analysis/dataflow.h"
#include "lowering/analysis/domain.h"

namespace zefuse {

// Pieces of so many vectors and more: few vectors lie across the border of two.
constexpr unsigned whole_piece = 2;

// Along which of the row `dims` the CPU's lanes take least work: `lanes`, unless concatenations make it more along
// that.
unsigned lanesOfOnePiece(Domain& domain, llvm::ArrayRef<unsigned> dims, unsigned lanes, const KernelGraph& graph,
                         const TargetDescription& target);

// Whether vectors of so many `lanes` along dim `lanes_dim`, each at a multiple of them, are of one of the `pieces` each
// that lie one behind the other along `along`.
bool vectorsAreOfOnePiece(IndexSpace& space, mlir::AffineExpr along, llvm::ArrayRef<Piece> pieces, unsigned lanes_dim,
                          unsigned lanes);
// Whether that holds of a concatenation in the kernel: its vectors should all lie at multiples then.
bool hasVectorsOfOnePiece(Domain& domain, const KernelGraph& graph, unsigned lanes_dim, unsigned lanes);

}  // namespace zefuse
