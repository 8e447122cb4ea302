#include "drivers/cpu/build_id.h"

#include <dlfcn.h>

#include <string_view>

#include "common/base/build_id.h"
#include "drivers/cpu/compiler_library.h"

namespace zefuse::cpu {
namespace {

// FNV-1a: the ids are hashes already, this only folds them.
uint32_t fold(uint32_t state, std::string_view bytes) {
  for (unsigned char byte : bytes)
    state = (state ^ byte) * 16777619u;
  return state;
}

}  // namespace

std::string compilerPath() {
  Dl_info info{};
  std::string path;
  if (dladdr(reinterpret_cast<const void*>(&compilerPath), &info) && info.dli_fname)
    path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return path.substr(0, slash == std::string::npos ? 0 : slash + 1) + ZEFUSE_CPU_COMPILER_LIBRARY;
}

// The compiler's id is read from its file: to load it, with LLVM, is what a process without SPIR-V is spared.
uint32_t buildVersion() {
  static const uint32_t version =
      fold(fold(2166136261u, buildIdOf(reinterpret_cast<const void*>(&buildVersion))), buildIdOfFile(compilerPath()));
  return version;
}

}  // namespace zefuse::cpu
