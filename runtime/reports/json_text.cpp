#include "runtime/reports/json_text.h"

#include <cstdio>

namespace zefuse::json {

Text of(std::string_view text) {
  std::string json = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += char(c);
    } else if (c < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      json += escape;
    } else {
      json += char(c);
    }
  }
  return {json + "\""};
}

Text of(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return {buffer};
}

}  // namespace zefuse::json
