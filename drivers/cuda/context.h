// Contexts: what owns allocations. CUDA's own context is the device's primary one (device.h).
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cuda/level_zero.h"

namespace zefuse::cuda {

struct Context : Object<Context> {
  static constexpr uint32_t kMagic = magicOf("ZCTX");
  ~Context();  // frees its allocations
};

decltype(::zeContextCreate) contextCreate;
decltype(::zeContextCreateEx) contextCreateEx;
decltype(::zeContextDestroy) contextDestroy;
decltype(::zeContextGetStatus) contextGetStatus;
decltype(::zeContextSystemBarrier) contextSystemBarrier;
decltype(::zeContextMakeMemoryResident) contextMakeMemoryResident;
decltype(::zeContextEvictMemory) contextEvictMemory;

}  // namespace zefuse::cuda
