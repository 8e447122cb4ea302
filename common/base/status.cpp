#include "common/base/status.h"

#include <cstring>

namespace zefuse {

const char* codeName(Code code) {
  switch (code) {
  case Code::ok: return "ok";
  case Code::invalid_argument: return "invalid argument";
  case Code::index_error: return "index error";
  case Code::not_found: return "not found";
  case Code::damaged: return "damaged";
  case Code::unsupported: return "unsupported";
  case Code::out_of_memory: return "out of memory";
  case Code::deadline: return "deadline";
  case Code::device: return "device";
  case Code::internal: return "internal";
  case Code::cancelled: return "cancelled";
  case Code::linear_algebra: return "linear algebra";
  }
  return "unknown";
}

std::string Status::toString() const {
  if (ok())
    return "ok";
  const char* file = std::strrchr(place_.file_name(), '/');
  return std::string(codeName(code_)) + ": " + message_ + " [" + (file ? file + 1 : place_.file_name()) + ":" +
         std::to_string(place_.line()) + "]";
}

}  // namespace zefuse
