#include "drivers/cpu/launch.h"

#include <algorithm>
#include <cstring>

#include "drivers/cpu/gomp.h"

namespace zefuse::cpu {
namespace {

// Below this many work-items a launch whose groups have several items runs without a parallel region: waking a team
// costs microseconds. A group of one item is a tile with a loop inside (how our own schedules use the grid), so it does
// not count.
constexpr uint64_t kTinyLaunchItems = 256;

// One running group per thread. Thread-local storage rather than a heap buffer: no allocation on the launch path and
// nothing to free when a thread ends.
alignas(kLocalAlignment) thread_local std::byte local_memory[kMaxLocalBytes];

uint64_t groupCount(const LaunchContext& launch) {
  return launch.group_count[0] * launch.group_count[1] * launch.group_count[2];
}

// Groups [begin, end) in row-major order, x fastest.
void runRange(const KernelCall& call, uint64_t begin, uint64_t end) {
  const void* const* arguments = call.arguments;
  const void* patched[kMaxArguments];
  void* addresses[kMaxArguments];
  std::byte* memory = nullptr;
  if (call.static_local_bytes != 0 || call.local_argument_count != 0) {
    memory = local_memory;
    uint32_t offset = alignLocal(call.static_local_bytes);
    if (call.local_argument_count != 0) {
      std::memcpy(patched, call.arguments, call.argument_count * sizeof patched[0]);
      for (uint32_t i = 0; i < call.local_argument_count; ++i) {
        const LocalArgument& local = call.local_arguments[i];
        addresses[i] = memory + offset;
        patched[local.index] = &addresses[i];
        offset += alignLocal(local.bytes);
      }
      arguments = patched;
    }
  }

  const uint64_t width = call.launch.group_count[0], height = call.launch.group_count[1];
  uint64_t group[3] = {begin % width, begin / width % height, begin / width / height};
  for (uint64_t i = begin; i < end; ++i) {
    call.entry(arguments, &call.launch, group, memory);
    if (++group[0] == width) {
      group[0] = 0;
      if (++group[1] == height) {
        group[1] = 0;
        ++group[2];
      }
    }
  }
}

// Static chunks: the same thread gets the same groups in every launch of one shape, so data stays in its cache.
void runShare(void* data, uint32_t thread, uint32_t threads) {
  const auto& call = *static_cast<const KernelCall*>(data);
  uint64_t total = groupCount(call.launch);
  uint64_t share = total / threads, rest = total % threads;
  uint64_t begin = share * thread + std::min<uint64_t>(thread, rest);
  uint64_t end = begin + share + (thread < rest ? 1 : 0);
  if (begin < end)
    runRange(call, begin, end);
}

}  // namespace

void runGroups(const KernelCall& call, Team team) {
  uint64_t groups = groupCount(call.launch);
  if (groups == 0)
    return;
  uint64_t items = call.launch.local_size[0] * call.launch.local_size[1] * call.launch.local_size[2];
  bool tiny = groups == 1 || (items > 1 && items <= kTinyLaunchItems / groups);
  uint32_t threads = team == Team::none || tiny ? 1 : teamSize();
  if (threads == 1)
    return runRange(call, 0, groups);
  // The whole team even for fewer groups: see runTeam.
  runTeam(threads, runShare, const_cast<KernelCall*>(&call));
}

uint32_t workDimension(const uint64_t group_count[3], const uint64_t local_size[3]) {
  if (group_count[2] > 1 || local_size[2] > 1)
    return 3;
  return group_count[1] > 1 || local_size[1] > 1 ? 2 : 1;
}

}  // namespace zefuse::cpu
