// The driver: one per process, and its entries. What differs from driver to driver is in traits().
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/level_zero/error.h"
#include "drivers/level_zero/handle.h"

namespace zefuse::level_zero {

struct Driver : Object<Driver> {
  static constexpr uint32_t kMagic = magicOf("ZDRV");
  static Driver& instance();  // lives as long as the process
};

// Flags of zeInitDrivers' descriptor, which Level Zero has from 1.10 on.
struct InitDriverTypeDesc {
  ze_structure_type_t stype;
  const void* pNext;
  uint32_t flags;
};

decltype(::zeInit) init;
ze_result_t initDrivers(uint32_t* pCount, ze_driver_handle_t* phDrivers, InitDriverTypeDesc* desc);
decltype(::zeDriverGet) driverGet;
decltype(::zeDriverGetApiVersion) driverGetApiVersion;
decltype(::zeDriverGetProperties) driverGetProperties;
decltype(::zeDriverGetIpcProperties) driverGetIpcProperties;
decltype(::zeDriverGetExtensionProperties) driverGetExtensionProperties;
decltype(::zeDriverGetExtensionFunctionAddress) driverGetExtensionFunctionAddress;
ze_result_t driverGetLastErrorDescription(ze_driver_handle_t hDriver, const char** ppString);

}  // namespace zefuse::level_zero
