#include "runtime/recurrence/layer_registers.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/steps.h"

namespace zefuse::recurrence {

void runSse2(const Sequence& sequence, const Share& share) {
  if (sequence.projected)
    runProjectedSse2(sequence, share);
  else if (sequence.input.data)
    runLayer<4, 2>(sequence, share);
  else
    runSteps<4, 2>(sequence, share);
}

}  // namespace zefuse::recurrence
