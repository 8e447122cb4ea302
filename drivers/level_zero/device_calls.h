// Devices, what every driver here answers alike: no sub-devices, no memory of other interfaces. Device: queueGroups().
// The driver's own:
//   bool reaches(const Device&, const Device& peer)  // whether kernels of the first reach memory of the other
#pragma once

#include "drivers/level_zero/calls.h"
#include "drivers/level_zero/queue_groups.h"

namespace zefuse::level_zero {

// Of zeDeviceGetProperties and zeDeviceGetModuleProperties: clocks of nanoseconds, no priorities, SPIR-V 1.4, IEEE
// arithmetic, atomics of every kind.
void fillCommonProperties(ze_device_properties_t& properties, uint32_t units);
void fillCommonModuleProperties(ze_device_module_properties_t& properties);

template <typename D> struct DeviceCalls {
  using Device = typename D::Device;

  static ze_result_t deviceGetSubDevices(ze_device_handle_t hDevice, uint32_t* pCount, ze_device_handle_t*) {
    ZEFUSE_CHECK(Device, hDevice);
    ZEFUSE_NOT_NULL(pCount);
    *pCount = 0;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t deviceGetRootDevice(ze_device_handle_t hDevice, ze_device_handle_t* phRootDevice) {
    ZEFUSE_CHECK(Device, hDevice);
    ZEFUSE_NOT_NULL(phRootDevice);
    *phRootDevice = nullptr;  // what a root device answers
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t deviceGetCommandQueueGroupProperties(ze_device_handle_t hDevice, uint32_t* pCount,
                                                          ze_command_queue_group_properties_t* properties) {
    ZEFUSE_OBJECT(Device, device, hDevice);
    ZEFUSE_NOT_NULL(pCount);
    listQueueGroups(device->queueGroups(), pCount, properties);
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t deviceGetExternalMemoryProperties(ze_device_handle_t hDevice,
                                                       ze_device_external_memory_properties_t* properties) {
    ZEFUSE_CHECK(Device, hDevice);
    ZEFUSE_NOT_NULL(properties);
    properties->memoryAllocationImportTypes = 0;
    properties->memoryAllocationExportTypes = 0;
    properties->imageImportTypes = 0;
    properties->imageExportTypes = 0;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t deviceGetP2PProperties(ze_device_handle_t hDevice, ze_device_handle_t hPeerDevice,
                                            ze_device_p2p_properties_t* properties) {
    ZEFUSE_OBJECT(Device, device, hDevice);
    ZEFUSE_OBJECT(Device, peer, hPeerDevice);
    ZEFUSE_NOT_NULL(properties);
    properties->flags =
        reaches(*device, *peer) ? ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS | ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS : 0;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t deviceCanAccessPeer(ze_device_handle_t hDevice, ze_device_handle_t hPeerDevice, ze_bool_t* value) {
    ZEFUSE_OBJECT(Device, device, hDevice);
    ZEFUSE_OBJECT(Device, peer, hPeerDevice);
    ZEFUSE_NOT_NULL(value);
    *value = reaches(*device, *peer);
    return ZE_RESULT_SUCCESS;
  }

  static void fill(Entries& made) {
    made.device.pfnGetSubDevices = deviceGetSubDevices;
    made.device.pfnGetCommandQueueGroupProperties = deviceGetCommandQueueGroupProperties;
    made.device.pfnGetExternalMemoryProperties = deviceGetExternalMemoryProperties;
    made.device.pfnGetP2PProperties = deviceGetP2PProperties;
    made.device.pfnCanAccessPeer = deviceCanAccessPeer;
    made.newer.deviceGetRootDevice = deviceGetRootDevice;
  }
};

}  // namespace zefuse::level_zero
