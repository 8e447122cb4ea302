#include "runtime/recurrence/levels.h"
#include "runtime/recurrence/projected.h"

namespace zefuse::recurrence {

[[ZEFUSE_AVX512]] void runProjectedAvx512(const Sequence& sequence, const Share& share) {
  runProjected<16, 6>(sequence, share);
}

[[ZEFUSE_AVX2]] void runProjectedAvx2(const Sequence& sequence, const Share& share) {
  runProjected<8, 3>(sequence, share);
}

void runProjectedSse2(const Sequence& sequence, const Share& share) { runProjected<4, 2>(sequence, share); }

}  // namespace zefuse::recurrence
