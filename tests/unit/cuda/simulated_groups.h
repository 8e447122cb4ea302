// A work-group of an NVIDIA GPU on the host, for simulated_harness.cpp: items are fibers that take turns; special
// registers, barriers, votes, shuffles, the matrix instructions (those of warpgroups: simulated_warpgroups.cpp) and
// asynchronous copies are functions named sim_*, which the kernels call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace zefuse::cuda::testing {

constexpr size_t local_bytes = 256 << 10;

using Place = std::array<uint32_t, 3>;
// Group `id` of `count`, of `size` items: each calls `entry(arguments)`. Returns what went wrong; empty: nothing.
std::string runGroup(const Place& id, const Place& count, const Place& size, void (*entry)(void**), void** arguments);

// Of the group that runs.
uint32_t currentItem();
std::byte* localMemory();  // at a multiple of `local_bytes`: an address's low bits are the offset
void meetWarpgroup();      // returns when all 128 items of the current one's warpgroup have come
void meetAtBarrier(uint32_t number, uint32_t items, bool wait);  // bar.sync, or bar.arrive
void failGroup(const std::string& why);

}  // namespace zefuse::cuda::testing
