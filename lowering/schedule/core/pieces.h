// Pointwise kernels on the CPU over short pieces of places (the channels of a group, of an image with channels
// innermost), whose neighbours lie beside them: walked piece after piece through all places, memory would be read and
// written a few elements of each cache line at a time. They become one dim, so that lanes are many and a place is
// walked as it lies. What a piece has one of, lanes would then load one by one: it is loaded once for all places.
#pragma once

#include "common/toolchain/target_description.h"
#include "lowering/analysis/domain.h"
#include "lowering/schedule/core/decisions.h"

namespace zefuse {

struct JoinedPieces {
  unsigned dim;              // all pieces of a place
  unsigned outer;            // the values differ in so many of the outermost row dims, and in no other but `dim`
  std::vector<Node> values;  // what a piece has one of
};

// `lanes` is the dim with lanes, the one along a piece. Nothing: the domain is as it was.
std::optional<JoinedPieces> joinPieces(Domain& domain, unsigned lanes, const KernelGraph& graph,
                                       const TargetDescription& target, Decisions& decisions);

}  // namespace zefuse
