// Images and samplers: no driver here supports them, and each reports so (zero limits in zeDeviceGetImageProperties).
// Nothing zefuse compiles uses them, and a sampler in software is a library of its own. The creating calls refuse with
// that sentence; since no handle can exist, every call that takes one refuses the handle.
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
