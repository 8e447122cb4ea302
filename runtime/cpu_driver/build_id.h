#pragma once

#include <cstdint>

namespace zefuse::cpu {

// A number that differs between builds of this driver and of the LLVM it compiles with, and is the same wherever one
// build runs: made of the GNU build ids of both libraries. Thread-safe.
uint32_t buildVersion();

}  // namespace zefuse::cpu
