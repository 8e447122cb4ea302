#include "drivers/level_zero/error.h"

#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "drivers/level_zero/traits.h"

namespace zefuse::level_zero {
namespace {
thread_local char last_refusal[512] = "";
}

ze_result_t refuse(ze_result_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_refusal, sizeof last_refusal, format, arguments);
  va_end(arguments);
  if (const Traits& driver = traits(); driver.log_refusals)
    std::fprintf(stderr, "%s: %s (0x%x)\n", driver.log_name, last_refusal, static_cast<unsigned>(code));
  return code;
}

CallName::CallName(const char* function) {
  bool named = !std::strncmp(function, "ze", 2);
  std::snprintf(text, sizeof text, "%s%s", named ? "" : "ze", function);
  if (!named)
    text[2] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[2])));
}

const char* lastRefusal() { return last_refusal; }

}  // namespace zefuse::level_zero
