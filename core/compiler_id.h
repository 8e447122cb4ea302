// Which compiler this is, for keys of what it made.
#pragma once

#include <string>

#include "common/base/api.h"

namespace zefuse::core {

// This build of the compiler, its MLIR and LLVM. Thread-safe.
ZEFUSE_API const std::string& compilerId();

}  // namespace zefuse::core
