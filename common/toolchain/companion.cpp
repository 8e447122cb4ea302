#include "common/toolchain/companion.h"

#include <dlfcn.h>
#include <unistd.h>

namespace zefuse {

std::string companionProgram(const char* name) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&companionProgram), &info) && info.dli_fname) {
    std::string path = info.dli_fname;
    path = path.substr(0, path.rfind('/') + 1) + name;
    if (access(path.c_str(), X_OK) == 0)
      return path;
  }
  return std::string(ZEFUSE_BUILD_LIBRARIES) + name;
}

}  // namespace zefuse
