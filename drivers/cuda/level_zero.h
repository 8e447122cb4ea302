// What this driver takes of drivers/level_zero, under its own namespace: handles and refusals are on every page here.
#pragma once

#include "drivers/level_zero/error.h"
#include "drivers/level_zero/extensions.h"
#include "drivers/level_zero/handle.h"

namespace zefuse::cuda {
using namespace level_zero;
}
