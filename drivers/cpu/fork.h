// What the driver does about fork(): worker threads and libgomp's team do not exist in the child.
#pragma once

#include <cstdint>

namespace zefuse::cpu {

void watchForks();          // idempotent; called by zeInit and by every table getter
uint32_t forkGeneration();  // how many forks lie between this process and the one that loaded the driver
inline bool inForkedChild() { return forkGeneration() != 0; }

}  // namespace zefuse::cpu
