// ZE_AFFINITY_MASK, which Level Zero has for every driver: the devices that it lists.
#pragma once

#include <cstdint>

namespace zefuse::level_zero {

// A bit for each of the first 32 devices, in the order that they are listed in without a mask; all of them where the
// variable is not set. Read at each call. A value that does not parse is reported on stderr and changes nothing.
uint32_t visibleDevices();

}  // namespace zefuse::level_zero
