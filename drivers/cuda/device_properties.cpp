// What Level Zero asks of a device.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "drivers/cuda/command_queue.h"
#include "drivers/cuda/device.h"
#include "drivers/level_zero/clock.h"
#include "drivers/level_zero/counted.h"
#include "drivers/level_zero/device_calls.h"
#include "drivers/level_zero/driver.h"

namespace zefuse::cuda {
namespace {

constexpr uint32_t kSubgroupSizes[] = {16, 32};

}  // namespace

ze_result_t deviceGet(ze_driver_handle_t hDriver, uint32_t* pCount, ze_device_handle_t* phDevices) {
  ZEFUSE_CHECK(Driver, hDriver);
  ZEFUSE_NOT_NULL(pCount);
  const auto devices = Device::all();
  const uint32_t wanted = settleCount(pCount, uint32_t(devices.size()), phDevices);
  for (uint32_t i = 0; i < wanted; ++i)
    phDevices[i] = toHandle<ze_device_handle_t>(devices[i]);
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetProperties(ze_device_handle_t hDevice, ze_device_properties_t* properties) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  fillCommonProperties(*properties, device->multiprocessors);
  properties->type = ZE_DEVICE_TYPE_GPU;
  properties->vendorId = kNvidiaPci;
  properties->deviceId = device->pci_device;
  properties->flags = (device->attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED) ? ZE_DEVICE_PROPERTY_FLAG_INTEGRATED : 0) |
                      (device->attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED) ? ZE_DEVICE_PROPERTY_FLAG_ECC : 0);
  properties->coreClockRate = uint32_t(std::max(device->attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000, 1));
  properties->maxMemAllocSize = device->memory_bytes;
  properties->maxHardwareContexts = 1;
  // A multiprocessor as an execution unit whose threads are warps.
  properties->numThreadsPerEU = device->items_per_multiprocessor / 32;
  properties->physicalEUSimdWidth = 32;
  properties->numEUsPerSubslice = 1;
  properties->numSubslicesPerSlice = device->multiprocessors;
  properties->numSlices = 1;
  std::memcpy(properties->uuid.id, device->uuid.bytes, sizeof properties->uuid.id);
  std::snprintf(properties->name, sizeof properties->name, "%s", device->name);
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetComputeProperties(ze_device_handle_t hDevice, ze_device_compute_properties_t* properties) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  auto limit = [&](CUdevice_attribute which) { return uint32_t(device->attribute(which)); };
  properties->maxTotalGroupSize = device->max_group_items;
  properties->maxGroupSizeX = limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  properties->maxGroupSizeY = limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  properties->maxGroupSizeZ = limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  properties->maxGroupCountX = limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  properties->maxGroupCountY = limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  properties->maxGroupCountZ = limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  properties->maxSharedLocalMemory = device->max_local_bytes;
  std::fill(std::begin(properties->subGroupSizes), std::end(properties->subGroupSizes), 0u);
  properties->numSubGroupSizes = uint32_t(std::size(kSubgroupSizes));
  std::copy(std::begin(kSubgroupSizes), std::end(kSubgroupSizes), properties->subGroupSizes);
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetModuleProperties(ze_device_handle_t hDevice, ze_device_module_properties_t* properties) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  fillCommonModuleProperties(*properties);
  properties->fp16flags &= ~ze_device_fp_flags_t(ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT);
  properties->maxArgumentsSize = 4096;
  properties->printfBufferSize = 1 << 20;                       // CUDA's default
  char code[sizeof properties->nativeKernelSupported.id] = {};  // zefuse's runtime reads the number
  std::snprintf(code, sizeof code, "zefuse-sm_%u", device->architecture);
  std::memcpy(properties->nativeKernelSupported.id, code, sizeof code);
  return ZE_RESULT_SUCCESS;
}

// CUDA has streams, as many as are asked for, and no queues: 16 is a number that clients can work with. Its copy
// engines serve all streams.
QueueGroups Device::queueGroups() const {
  return {
      .queues = 16, .copy_queues = copy_engines, .cooperative = cooperative, .fill_pattern_size = kMaxFillPatternBytes};
}

ze_result_t deviceGetMemoryProperties(ze_device_handle_t hDevice, uint32_t* pCount,
                                      ze_device_memory_properties_t* properties) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(pCount);
  if (settleCount(pCount, 1, properties)) {
    properties->flags = 0;
    properties->maxClockRate = uint32_t(device->attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000);
    properties->maxBusWidth = uint32_t(device->attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
    properties->totalSize = device->memory_bytes;
    std::snprintf(properties->name, sizeof properties->name, "device memory");
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetMemoryAccessProperties(ze_device_handle_t hDevice,
                                            ze_device_memory_access_properties_t* properties) {
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  constexpr ze_memory_access_cap_flags_t kOwn =
      ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT;
  // Over PCIe the host sees no atomics of the device's.
  constexpr ze_memory_access_cap_flags_t kHost = ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT;
  properties->hostAllocCapabilities = kHost;
  properties->deviceAllocCapabilities = kOwn;
  properties->sharedSingleDeviceAllocCapabilities = kHost;
  properties->sharedCrossDeviceAllocCapabilities = kHost;
  properties->sharedSystemAllocCapabilities = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetCacheProperties(ze_device_handle_t hDevice, uint32_t* pCount,
                                     ze_device_cache_properties_t* properties) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(pCount);
  if (settleCount(pCount, 1, properties)) {
    properties->flags = 0;
    properties->cacheSize = size_t(device->attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetImageProperties(ze_device_handle_t hDevice, ze_device_image_properties_t* properties) {
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(properties);
  // All zero: images are not supported (level_zero/image.h).
  properties->maxImageDims1D = 0;
  properties->maxImageDims2D = 0;
  properties->maxImageDims3D = 0;
  properties->maxImageBufferSize = 0;
  properties->maxImageArraySlices = 0;
  properties->maxSamplers = 0;
  properties->maxReadImageArgs = 0;
  properties->maxWriteImageArgs = 0;
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceGetStatus(ze_device_handle_t hDevice) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  return device->probe(__func__);
}

ze_result_t deviceGetGlobalTimestamps(ze_device_handle_t hDevice, uint64_t* hostTimestamp, uint64_t* deviceTimestamp) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(hostTimestamp);
  ZEFUSE_NOT_NULL(deviceTimestamp);
  if (ze_result_t result = device->open("zeDeviceGetGlobalTimestamps"))
    return result;
  if (ze_result_t result = device->readClock("zeDeviceGetGlobalTimestamps", *hostTimestamp, *deviceTimestamp))
    return result;
  *hostTimestamp += hostAheadNs();
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
