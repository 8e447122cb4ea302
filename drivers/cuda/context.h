// Contexts: what owns allocations. CUDA's own context is the device's primary one (device.h).
#pragma once

#include <level_zero/ze_api.h>

#include <utility>
#include <vector>

#include "drivers/cuda/level_zero.h"
#include "drivers/level_zero/context_calls.h"

namespace zefuse::cuda {

struct Device;

struct Context : Object<Context> {
  static constexpr uint32_t kMagic = magicOf("ZCTX");

  // The devices that it is for, as zeContextCreateEx lists them; none: all.
  const std::vector<const Device*> devices;

  explicit Context(std::vector<const Device*> devices = {}) : devices(std::move(devices)) {}
  ~Context();  // frees its allocations
};

decltype(::zeContextGetStatus) contextGetStatus;

}  // namespace zefuse::cuda
