// The device: the host's CPUs as one Level Zero device, without sub-devices.
#pragma once

#include <level_zero/ze_api.h>

#include "runtime/cpu_driver/error.h"
#include "runtime/cpu_driver/handle.h"

namespace zefuse::cpu {

// What codegen builds for (codegen/workgroup.h): group sizes, and the sub-group widths that kernels may require.
constexpr uint32_t kMaxGroupItems = 1024;
constexpr uint32_t kSubgroupSizes[] = {8, 16, 32};
constexpr uint32_t kDefaultSubgroupSize = 16;

constexpr size_t kMaxFillPatternBytes = 128;
constexpr uint64_t kTicksPerSecond = 1'000'000'000;

struct Device : Object<Device> {
  static constexpr uint32_t kMagic = magicOf("ZDEV");
  static Device& instance();  // lives as long as the process

  uint32_t processors;    // that this process may run on
  uint64_t memory_bytes;  // of the host
  char name[ZE_MAX_DEVICE_NAME];

  Device();
};

decltype(::zeDeviceGet) deviceGet;
decltype(::zeDeviceGetSubDevices) deviceGetSubDevices;
ze_result_t deviceGetRootDevice(ze_device_handle_t hDevice, ze_device_handle_t* phRootDevice);
decltype(::zeDeviceGetProperties) deviceGetProperties;
decltype(::zeDeviceGetComputeProperties) deviceGetComputeProperties;
decltype(::zeDeviceGetModuleProperties) deviceGetModuleProperties;
decltype(::zeDeviceGetCommandQueueGroupProperties) deviceGetCommandQueueGroupProperties;
decltype(::zeDeviceGetMemoryProperties) deviceGetMemoryProperties;
decltype(::zeDeviceGetMemoryAccessProperties) deviceGetMemoryAccessProperties;
decltype(::zeDeviceGetCacheProperties) deviceGetCacheProperties;
decltype(::zeDeviceGetImageProperties) deviceGetImageProperties;
decltype(::zeDeviceGetExternalMemoryProperties) deviceGetExternalMemoryProperties;
decltype(::zeDeviceGetP2PProperties) deviceGetP2PProperties;
decltype(::zeDeviceCanAccessPeer) deviceCanAccessPeer;
decltype(::zeDeviceGetStatus) deviceGetStatus;
decltype(::zeDeviceGetGlobalTimestamps) deviceGetGlobalTimestamps;

}  // namespace zefuse::cpu
