// Images and samplers of a driver that has none (zero limits in zeDeviceGetImageProperties): the creating calls refuse
// with a sentence; since no handle can exist, every call that takes one refuses the handle.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/level_zero/error.h"

namespace zefuse::level_zero {

decltype(::zeImageGetProperties) imageGetProperties;
decltype(::zeImageCreate) imageCreate;
decltype(::zeImageDestroy) imageDestroy;
decltype(::zeSamplerCreate) samplerCreate;
decltype(::zeSamplerDestroy) samplerDestroy;

}  // namespace zefuse::level_zero
