#include "drivers/cpu/device.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "common/toolchain/targets.h"
#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/environment.h"
#include "drivers/cpu/image.h"
#include "drivers/cpu/launch.h"
#include "drivers/level_zero/affinity.h"
#include "drivers/level_zero/clock.h"
#include "drivers/level_zero/counted.h"
#include "drivers/level_zero/device_calls.h"
#include "drivers/level_zero/driver.h"

namespace zefuse::cpu {
namespace {

uint32_t countProcessors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    return static_cast<uint32_t>(std::max(CPU_COUNT(&allowed), 1));
  return static_cast<uint32_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1l));
}

// The value of a "key : value" line of /proc/cpuinfo, or "".
std::string cpuInfo(const char* key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0)
      if (size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "";
}

uint32_t clockRateMHz() {
  std::string text = cpuInfo("cpu MHz");
  return text.empty() ? 1 : std::max(1, std::atoi(text.c_str()));
}

uint32_t simdWidth() { return hostIsaLevel() >= IsaLevel::avx512 ? 16 : 8; }

// Names what decides whether native code fits: two hosts with the same bytes run the same binaries.
void fillDeviceUuid(uint8_t (&id)[ZE_MAX_DEVICE_UUID_SIZE]) {
  std::memset(id, 0, sizeof id);
  std::snprintf(reinterpret_cast<char*>(id), sizeof id, "zefuse-cpu-%u", static_cast<unsigned>(hostIsaLevel()));
}

}  // namespace

Device::Device(bool is_gpu)
    : processors(countProcessors()), is_gpu(is_gpu),
      memory_bytes(static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE))) {
  if (is_gpu && environment().gpu_memory_bytes != 0)
    memory_bytes = std::min(memory_bytes, environment().gpu_memory_bytes);
  std::string model = cpuInfo("model name");
  std::snprintf(name, sizeof name, "zefuse CPU%s (%s, %s)", is_gpu ? " as a GPU" : "",
                model.empty() ? "x86-64" : model.c_str(), isaLevelName(hostIsaLevel()));
}

Device& Device::instance() {
  static Device* device = new Device(false);  // never destroyed, as the driver
  return *device;
}

Device& Device::posingGpu() {
  static Device* device = new Device(true);
  return *device;
}

bool isolatesMemory(const Device& device) { return device.is_gpu && environment().gpu == PosingGpu::discrete; }

bool reachesUsmOnly(const Device& device) {
  return isolatesMemory(device) || (device.is_gpu && environment().gpu == PosingGpu::integrated_usm);
}

ze_result_t deviceGet(ze_driver_handle_t hDriver, uint32_t* pCount, ze_device_handle_t* phDevices) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(pCount);
  static const uint32_t visible = level_zero::visibleDevices();
  Device* devices[2];
  uint32_t available = 0;
  if (environment().gpu == PosingGpu::none) {
    devices[available++] = &Device::instance();  // whatever the mask: it is meant for GPUs
  } else {
    if (visible & 1)
      devices[available++] = &Device::posingGpu();
    if (visible & 2)
      devices[available++] = &Device::instance();
  }
  uint32_t wanted = settleCount(pCount, available, phDevices);
  for (uint32_t i = 0; i < wanted; ++i)
    phDevices[i] = toHandle<ze_device_handle_t>(devices[i]);
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetProperties(ze_device_handle_t hDevice, ze_device_properties_t* properties) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  fillCommonProperties(*properties, device->processors);
  bool gpu = device->is_gpu;
  properties->type = gpu ? ZE_DEVICE_TYPE_GPU : ZE_DEVICE_TYPE_CPU;
  const uint32_t posed = gpu ? environment().gpu_id : 0;
  properties->vendorId = posed ? intel_pci : zefuse_pci;  // Intel's would switch on paths for Intel's GPUs
  properties->deviceId = posed ? posed : gpu ? 2 : 1;
  properties->flags = gpu && environment().gpu == PosingGpu::discrete ? 0 : ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
  properties->coreClockRate = clockRateMHz();
  properties->maxMemAllocSize = device->memory_bytes;
  properties->maxHardwareContexts = 64 * 1024;  // contexts are host objects: no hardware limit
  properties->numThreadsPerEU = 1;
  properties->physicalEUSimdWidth = simdWidth();
  properties->numEUsPerSubslice = device->processors;
  properties->numSubslicesPerSlice = 1;
  properties->numSlices = 1;
  fillDeviceUuid(properties->uuid.id);
  if (gpu)
    properties->uuid.id[ZE_MAX_DEVICE_UUID_SIZE - 1] = 1;
  std::memcpy(properties->name, device->name, sizeof properties->name);
  if (auto* readonly = findExtension<ReadonlyMemoryProperties>(properties->pNext, ReadonlyMemoryProperties::kType))
    readonly->capability = ReadonlyMemoryProperties::kEnforced;
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetComputeProperties(ze_device_handle_t hDevice, ze_device_compute_properties_t* properties) {
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  properties->maxTotalGroupSize = kMaxGroupItems;
  properties->maxGroupSizeX = kMaxGroupItems;
  properties->maxGroupSizeY = kMaxGroupItems;
  properties->maxGroupSizeZ = kMaxGroupItems;
  properties->maxGroupCountX = UINT32_MAX;
  properties->maxGroupCountY = UINT32_MAX;
  properties->maxGroupCountZ = UINT32_MAX;
  properties->maxSharedLocalMemory = kMaxLocalBytes;
  std::fill(std::begin(properties->subGroupSizes), std::end(properties->subGroupSizes), 0u);
  properties->numSubGroupSizes = std::size(kSubgroupSizes);
  std::copy(std::begin(kSubgroupSizes), std::end(kSubgroupSizes), properties->subGroupSizes);
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetModuleProperties(ze_device_handle_t hDevice, ze_device_module_properties_t* properties) {
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  fillCommonModuleProperties(*properties);
  properties->maxArgumentsSize = kMaxArguments * sizeof(void*);
  properties->printfBufferSize = 0;
  std::memcpy(properties->nativeKernelSupported.id, "zefuse-native-1\0", sizeof properties->nativeKernelSupported.id);
  return ZE_RESULT_SUCCESS;
}

QueueGroups Device::queueGroups() const {
  return {.queues = processors,
          .copy_queues = is_gpu ? 1u : 0u,
          .cooperative = true,
          .fill_pattern_size = kMaxFillPatternBytes};
}

ze_result_t deviceGetMemoryProperties(ze_device_handle_t hDevice, uint32_t* pCount,
                                      ze_device_memory_properties_t* properties) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(pCount);
  if (settleCount(pCount, 1, properties)) {
    properties->flags = 0;
    properties->maxClockRate = 0;  // not known without root
    properties->maxBusWidth = 64;  // bits of one DDR channel
    properties->totalSize = device->memory_bytes;
    std::snprintf(properties->name, sizeof properties->name, device->is_gpu ? "device memory" : "host memory");
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetMemoryAccessProperties(ze_device_handle_t hDevice,
                                            ze_device_memory_access_properties_t* properties) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  constexpr ze_memory_access_cap_flags_t kAll = ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC |
                                                ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT |
                                                ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC;
  properties->hostAllocCapabilities = kAll;
  properties->deviceAllocCapabilities = kAll;
  properties->sharedSingleDeviceAllocCapabilities = kAll;
  properties->sharedCrossDeviceAllocCapabilities = kAll;
  // Kernels run in the process and do reach malloc'ed memory, unless the device plays one that does not.
  properties->sharedSystemAllocCapabilities = reachesUsmOnly(*device) ? 0 : kAll;
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetCacheProperties(ze_device_handle_t hDevice, uint32_t* pCount,
                                     ze_device_cache_properties_t* properties) {
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(pCount);
  // The data caches a core sees, from the first level on; a host that does not tell reports one of size 0.
  const int levels[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  size_t sizes[3];
  uint32_t available = 0;
  for (int level : levels)
    if (long size = sysconf(level); size > 0)
      sizes[available++] = static_cast<size_t>(size);
  if (available == 0)
    sizes[available++] = 0;
  uint32_t wanted = settleCount(pCount, available, properties);
  for (uint32_t i = 0; i < wanted; ++i) {
    properties[i].flags = 0;
    properties[i].cacheSize = sizes[i];
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetImageProperties(ze_device_handle_t hDevice, ze_device_image_properties_t* properties) {
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  properties->maxImageDims1D = kMaxImageSize;
  properties->maxImageDims2D = kMaxImageSize;
  properties->maxImageDims3D = kMaxImageSize3D;
  properties->maxImageBufferSize = kMaxImageBufferBytes;
  properties->maxImageArraySlices = kMaxImageLayers;
  properties->maxSamplers = kMaxImageArguments;
  properties->maxReadImageArgs = kMaxImageArguments;
  properties->maxWriteImageArgs = kMaxImageArguments;
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetStatus(ze_device_handle_t hDevice) {
  ZEFUSE_CHECK(Device, hDevice);
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetGlobalTimestamps(ze_device_handle_t hDevice, uint64_t* hostTimestamp, uint64_t* deviceTimestamp) {
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(hostTimestamp);
  ZEFUSE_NOT_NULL(deviceTimestamp);
  *hostTimestamp = hostNowNs();
  *deviceTimestamp = nowNs();
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
