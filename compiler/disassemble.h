// Native code as assembly text, for dumps.
#pragma once

#include "common/base/api.h"
#include <cstddef>
#include <span>
#include <string>

namespace zefuse {

// Disassembles the functions of the first x86-64 ELF image inside `native` (a native binary of the CPU driver carries
// one). Any bytes are safe to pass; what cannot be read becomes a one-line comment that says why. Thread-safe.
ZEFUSE_API std::string disassemble(std::span<const std::byte> native);

}  // namespace zefuse
