#include "runtime/cpu_driver/build_id.h"

#include <string_view>

#include "runtime/build_id.h"
// llvm-c/Core.h; this folder is built without LLVM's headers (codegen/ alone has them).
extern "C" void LLVMGetVersion(unsigned* major, unsigned* minor, unsigned* patch);

namespace zefuse::cpu {
namespace {

// FNV-1a: the ids are hashes already, this only folds them.
uint32_t fold(uint32_t state, std::string_view bytes) {
  for (unsigned char byte : bytes)
    state = (state ^ byte) * 16777619u;
  return state;
}

}  // namespace

uint32_t buildVersion() {
  static const uint32_t version = fold(fold(2166136261u, buildIdOf(reinterpret_cast<const void*>(&buildVersion))),
                                       buildIdOf(reinterpret_cast<const void*>(&LLVMGetVersion)));
  return version;
}

}  // namespace zefuse::cpu
