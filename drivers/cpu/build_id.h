#pragma once

#include <cstdint>

namespace zefuse::cpu {

// A number that differs between builds of this driver and of the LLVM it compiles with, and is the same wherever one
// build runs: made of the GNU build ids of the driver and of
// its compiler, which holds the id of the LLVM that it was built with. Thread-safe.
uint32_t buildVersion();

}  // namespace zefuse::cpu
