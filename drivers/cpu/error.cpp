#include "drivers/cpu/error.h"

#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "drivers/cpu/environment.h"

namespace zefuse::cpu {
namespace {
thread_local char last_refusal[512] = "";
}

ze_result_t refuse(ze_result_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_refusal, sizeof last_refusal, format, arguments);
  va_end(arguments);
  if (environment().log_refusals)
    std::fprintf(stderr, "zefuse cpu driver: %s (0x%x)\n", last_refusal, static_cast<unsigned>(code));
  return code;
}

CallName::CallName(const char* function) {
  bool named = !std::strncmp(function, "ze", 2);
  std::snprintf(text, sizeof text, "%s%s", named ? "" : "ze", function);
  if (!named)
    text[2] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[2])));
}

const char* lastRefusal() { return last_refusal; }

}  // namespace zefuse::cpu
