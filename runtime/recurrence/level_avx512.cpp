#include "runtime/recurrence/layer_registers.h"
#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/steps.h"

namespace zefuse::recurrence {

[[ZEFUSE_AVX512]] void runAvx512(const Sequence& sequence, const Share& share) {
  if (sequence.projected)
    runProjectedAvx512(sequence, share);
  else if (sequence.input.data)
    runLayer<16, 6>(sequence, share);
  else
    runSteps<16, 6>(sequence, share);
}

}  // namespace zefuse::recurrence
