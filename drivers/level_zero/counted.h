// The count-then-fill idiom of Level Zero's listing calls.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zefuse::level_zero {

// Sets *count to what there is (asked with 0, or with more), and returns how many elements to write: none for a query.
inline uint32_t settleCount(uint32_t* count, uint32_t available, const void* array) {
  uint32_t room = *count;
  *count = room == 0 ? available : std::min(room, available);
  return array ? std::min(room, available) : 0;
}

}  // namespace zefuse::level_zero
