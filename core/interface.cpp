#include "core/interface.h"

#include <dlfcn.h>

#include "core/core_interface_generated.h"

namespace zefuse::core {

const char* interfaceHash() { return ZEFUSE_CORE_INTERFACE; }

std::string libraryFile() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&interfaceHash), &info) && info.dli_fname ? info.dli_fname : "";
}

}  // namespace zefuse::core
