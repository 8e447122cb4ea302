#include "runtime/recurrence/gradient_tiles.h"
#include "runtime/recurrence/layer_tiles.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/tiles.h"

namespace zefuse::recurrence {

[[ZEFUSE_TILE_LEVEL]] void runTiles(const Sequence& sequence, const Share& share) {
  if (sequence.gradient)
    runGradientInTiles<true>(sequence, share);
  else if (sequence.tiles.input)
    runLayerInTiles(sequence, share);
  else
    runStepsInTiles<true>(sequence, share);
}

}  // namespace zefuse::recurrence
