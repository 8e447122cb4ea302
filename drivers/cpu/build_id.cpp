#include "drivers/cpu/build_id.h"

#include "common/base/build_id.h"
#include "drivers/cpu/compiler_library.h"
#include "drivers/level_zero/build_version.h"

namespace zefuse::cpu {

std::string compilerPath() {
  return level_zero::pathBeside(reinterpret_cast<const void*>(&compilerPath), ZEFUSE_CPU_COMPILER_LIBRARY);
}

// The compiler's id is read from its file: to load it, with LLVM, is what a process without SPIR-V is spared.
uint32_t buildVersion() {
  static const uint32_t version = level_zero::foldBuildIds(
      {buildIdOf(reinterpret_cast<const void*>(&buildVersion)), buildIdOfFile(compilerPath())});
  return version;
}

}  // namespace zefuse::cpu
