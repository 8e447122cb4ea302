// Concatenations along memory of pieces shorter than a vector (sines and cosines of three coordinates at ten
// frequencies): lanes along memory are of several pieces, and each vector computes all of them for every lane. Lanes
// across another dim are of one piece at a time.
#pragma once

#include "common/toolchain/target_description.h"
#include "lowering/analysis/domain.h"

namespace zefuse {

// Along which of the row `dims` the CPU's lanes take least work: `lanes`, unless concatenations make it more along
// that.
unsigned lanesOfOnePiece(Domain& domain, llvm::ArrayRef<unsigned> dims, unsigned lanes, const KernelGraph& graph,
                         const TargetDescription& target);

}  // namespace zefuse
