// The devices: the host's CPUs as one Level Zero device, without sub-devices; and, where the environment asks for it,
// the same once more as a discrete GPU (docs/gpu.md), listed first.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cpu/level_zero.h"
#include "drivers/level_zero/commands.h"
#include "drivers/level_zero/queue_groups.h"

namespace zefuse::cpu {

// What codegen builds for (codegen/workgroup.h): group sizes, and the sub-group widths that kernels may require.
constexpr uint32_t kMaxGroupItems = 1024;
constexpr uint32_t kSubgroupSizes[] = {8, 16, 32};
constexpr uint32_t kDefaultSubgroupSize = 16;

struct Device : Object<Device> {
  static constexpr uint32_t kMagic = magicOf("ZDEV");
  static Device& instance();  // the CPU; lives as long as the process, as does the next
  static Device& posingGpu();

  uint32_t processors;  // that this process may run on
  const bool is_gpu;
  uint64_t memory_bytes;  // of the host; of the GPU: the limit of its allocations
  char name[ZE_MAX_DEVICE_NAME];

  explicit Device(bool is_gpu);

  QueueGroups queueGroups() const;  // the GPU has one that only copies, as real ones do
};

// Whether the host cannot reach the device's memory, nor its kernels what is no USM.
bool isolatesMemory(const Device& device);

// Whether kernels reach allocations of Level Zero and nothing else of the process.
bool reachesUsmOnly(const Device& device);

// All are the host.
inline bool reaches(const Device&, const Device&) { return true; }

decltype(::zeDeviceGet) deviceGet;
decltype(::zeDeviceGetProperties) deviceGetProperties;
decltype(::zeDeviceGetComputeProperties) deviceGetComputeProperties;
decltype(::zeDeviceGetModuleProperties) deviceGetModuleProperties;
decltype(::zeDeviceGetMemoryProperties) deviceGetMemoryProperties;
decltype(::zeDeviceGetMemoryAccessProperties) deviceGetMemoryAccessProperties;
decltype(::zeDeviceGetCacheProperties) deviceGetCacheProperties;
decltype(::zeDeviceGetImageProperties) deviceGetImageProperties;
decltype(::zeDeviceGetStatus) deviceGetStatus;
decltype(::zeDeviceGetGlobalTimestamps) deviceGetGlobalTimestamps;

}  // namespace zefuse::cpu
