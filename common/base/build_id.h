// Which build of a library this is: its GNU build id.
#pragma once

#include "common/base/api.h"
#include <string>
#include <string_view>

namespace zefuse {

// The id's bytes (20 for SHA-1) of the loaded object that holds `address`; empty when it was linked without one. Valid
// while the object is loaded. Thread-safe.
ZEFUSE_API std::string_view buildIdOf(const void* address);
// The same of an ELF file that need not be loaded. Empty also when it cannot be read.
std::string buildIdOfFile(const std::string& path);

}  // namespace zefuse
