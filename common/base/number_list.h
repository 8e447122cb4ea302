// "[2, 3, 4]": sizes and strides in messages and names.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace zefuse {

inline std::string numberList(std::span<const int64_t> numbers, const char* separator = ", ") {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i)
    text += (i ? separator : "") + std::to_string(numbers[i]);
  return text + "]";
}

}  // namespace zefuse
