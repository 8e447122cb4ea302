#include "common/toolchain/targets.h"
#include "drivers/cpu/codegen/codegen.h"

namespace zefuse::cpu {

IsaLevel hostIsaLevel() { return static_cast<IsaLevel>(hostCpuLevel() + 1); }

const char* isaLevelName(IsaLevel level) {
  const size_t index = static_cast<size_t>(level) - 1;
  return index < cpuTargets().size() ? cpuTargets()[index].name.data() : "unknown";
}

}  // namespace zefuse::cpu
