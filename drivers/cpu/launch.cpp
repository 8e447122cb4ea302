#include "drivers/cpu/launch.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "drivers/cpu/codegen/arena.h"
#include "drivers/cpu/gomp.h"
#include "drivers/cpu/level_zero.h"

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

// Groups [begin, end) in row-major order, x fastest. Returns how much memory some of them asked for in vain.
uint64_t runRange(const KernelCall& call, uint64_t begin, uint64_t end) {
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
  return call.keeps_across_barriers ? takeRefusedBytes() : 0;
}

// Launches that run on a team now. A thread that forks meanwhile leaves its child a count too high, which costs it the
// teams of Team::if_idle and nothing else.
std::atomic<uint32_t> launches_on_teams{0};

bool claimTeam(Team team) {
  if (team == Team::callers) {
    launches_on_teams.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  uint32_t none = 0;
  return launches_on_teams.compare_exchange_strong(none, 1, std::memory_order_relaxed);
}

// What the threads of a team share.
struct Launch {
  const KernelCall& call;
  std::atomic<uint64_t> refused_bytes{0};
};

// Static chunks: the same thread gets the same groups in every launch of one shape, so data stays in its cache.
void runShare(void* data, uint32_t thread, uint32_t threads) {
  auto& launch = *static_cast<Launch*>(data);
  const KernelCall& call = launch.call;
  uint64_t total = groupCount(call.launch);
  uint64_t share = total / threads, rest = total % threads;
  uint64_t begin = share * thread + std::min<uint64_t>(thread, rest);
  uint64_t end = begin + share + (thread < rest ? 1 : 0);
  if (begin >= end)
    return;
  if (const uint64_t refused = runRange(call, begin, end)) [[unlikely]]
    launch.refused_bytes.store(refused, std::memory_order_relaxed);  // the end of the region publishes it
}

[[gnu::cold]] ze_result_t refuseLaunch(const KernelCall& call, uint64_t bytes) {
  return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                "kernel '%s': no memory left for the %llu bytes that a work-group of %llu x %llu x %llu items keeps "
                "across its barriers; make groups smaller or free memory",
                call.info->name.c_str(), static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(call.launch.local_size[0]),
                static_cast<unsigned long long>(call.launch.local_size[1]),
                static_cast<unsigned long long>(call.launch.local_size[2]));
}

}  // namespace

ze_result_t runGroups(const KernelCall& call, Team team) {
  uint64_t groups = groupCount(call.launch);
  if (groups == 0)
    return ZE_RESULT_SUCCESS;
  uint64_t items = call.launch.local_size[0] * call.launch.local_size[1] * call.launch.local_size[2];
  bool tiny = groups == 1 || (items > 1 && items <= kTinyLaunchItems / groups);
  uint32_t threads = tiny ? 1 : teamSize();
  uint64_t refused = 0;
  if (threads == 1 || !claimTeam(team)) {
    refused = runRange(call, 0, groups);
  } else {  // the whole team even for fewer groups: see runTeam
    Launch launch{call};
    runTeam(threads, runShare, &launch);
    launches_on_teams.fetch_sub(1, std::memory_order_relaxed);
    refused = launch.refused_bytes.load(std::memory_order_relaxed);
  }
  return refused == 0 ? ZE_RESULT_SUCCESS : refuseLaunch(call, refused);
}

uint32_t workDimension(const uint64_t group_count[3], const uint64_t local_size[3]) {
  if (group_count[2] > 1 || local_size[2] > 1)
    return 3;
  return group_count[1] > 1 || local_size[1] > 1 ? 2 : 1;
}

}  // namespace zefuse::cpu
