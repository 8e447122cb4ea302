#include "runtime/recurrence/gradient_tiles.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/tiles.h"

namespace zefuse::recurrence {

[[ZEFUSE_PAIRS]] void runPairs(const Sequence& sequence, const Share& share) {
  if (sequence.gradient)
    runGradientInTiles<false>(sequence, share);
  else
    runStepsInTiles<false>(sequence, share);
}

}  // namespace zefuse::recurrence
