// libgomp's entry points, declared here because clang's -fopenmp would emit calls to libomp: torch, oneDNN and this
// driver must share one pool, and torch ships libgomp.so.1.
#pragma once

#include <cstdint>

namespace zefuse::cpu {

// How many threads a region opened by the calling thread would have: its omp_get_max_threads, at most
// ZEFUSE_CPU_DRIVER_THREADS. 1 inside a region.
uint32_t teamSize();

// Runs body(data, thread, threads) on the calling thread's OpenMP team and returns when all have ended. `threads`
// should be teamSize(): libgomp ends threads that a smaller team does not use and starts them again for the next.
void runTeam(uint32_t threads, void (*body)(void* data, uint32_t thread, uint32_t threads), void* data);

}  // namespace zefuse::cpu
