// Whether the users of libzefuse_core.so.1 were compiled for this one.
#pragma once

#include <string>

#include "common/base/api.h"

namespace zefuse::core {

// The hash of the headers that this library was compiled with, of those that its users see (cmake/HashInterface.cmake).
// A user that was compiled with others (ZEFUSE_CORE_INTERFACE in core_interface_generated.h) must call nothing else
// here. Valid for ever.
ZEFUSE_API const char* interfaceHash();

// The file that this library was loaded from; empty where that cannot be told.
ZEFUSE_API std::string libraryFile();

}  // namespace zefuse::core
