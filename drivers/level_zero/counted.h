// The count-then-fill idiom of Level Zero's listing calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zefuse::level_zero {

// Sets *count to what there is (asked with 0, or with more), and returns how many elements to write: none for a query.
inline uint32_t settleCount(uint32_t* count, uint32_t available, const void* array) {
  uint32_t room = *count;
  *count = room == 0 ? available : std::min(room, available);
  return array ? std::min(room, available) : 0;
}

// Likewise of a text, which is cut where `out` has no room for it and for its end. `out` may be null.
template <typename Size> void settleText(Size* size, std::string_view text, char* out) {
  if (out && *size > 0) {
    const size_t copied = std::min<size_t>(*size - 1, text.size());
    std::copy_n(text.data(), copied, out);
    out[copied] = 0;
  }
  *size = static_cast<Size>(text.size() + 1);
}

}  // namespace zefuse::level_zero
