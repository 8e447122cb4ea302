#include "runtime/recurrence/layer_registers.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/steps.h"

namespace zefuse::recurrence {

[[ZEFUSE_AVX2]] void runAvx2(const Sequence& sequence, const Share& share) {
  if (sequence.projected)
    runProjectedAvx2(sequence, share);
  else if (sequence.input.data)
    runLayer<8, 3>(sequence, share);
  else
    runSteps<8, 3>(sequence, share);
}

}  // namespace zefuse::recurrence
