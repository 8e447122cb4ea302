// Running a kernel's work-groups: inline on the calling thread's OpenMP team, or on the calling thread alone.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>

#include "drivers/cpu/codegen/codegen.h"

namespace zefuse::cpu {

// Local memory of one work-group: the kernel's static Workgroup variables and its local-pointer arguments, each
// aligned.
constexpr uint32_t kMaxLocalBytes = 64 * 1024;
constexpr uint32_t kLocalAlignment = 128;  // of the largest OpenCL type, double16
constexpr uint32_t kMaxArguments = 256;    // reported as maxArgumentsSize, 8 bytes each

constexpr uint32_t alignLocal(uint32_t bytes) { return (bytes + kLocalAlignment - 1) & ~(kLocalAlignment - 1); }

struct LocalArgument {
  uint32_t index;  // among the kernel's arguments
  uint32_t bytes;  // 0 until set
};

// One launch. Everything it points to must stay unchanged until runGroups returns. The sum of the aligned local sizes
// is at most kMaxLocalBytes (whoever builds the call checks it).
struct KernelCall {
  WorkGroupFn entry;
  const spirv::KernelInfo* info;
  const void* const* arguments;
  uint32_t argument_count;
  const LocalArgument* local_arguments;
  uint32_t local_argument_count;
  uint32_t static_local_bytes;
  bool keeps_across_barriers;  // groups ask for memory while they run
  LaunchContext launch;
};

enum class Team {
  callers,  // the calling thread's OpenMP team
  if_idle,  // the calling thread's, while no other launch runs on a team; else that thread alone. For the driver's own
            // threads: libgomp keeps a team for each thread, and two at work compete for the cores
};

// Returns when every group has run. Where one had no memory for what its items keep across barriers it did nothing:
// then OUT_OF_DEVICE_MEMORY, through refuse(). No allocation but that memory, no lock. Thread-safe; not re-entrant from
// a kernel.
ze_result_t runGroups(const KernelCall& call, Team team);

// Level Zero has no work dimension: the highest one in use, as Intel's driver does.
uint32_t workDimension(const uint64_t group_count[3], const uint64_t local_size[3]);

}  // namespace zefuse::cpu
