// A libnvJitLink for tests of the driver: what it links is the PTX with a line behind it that says for which
// architecture.
//
// FAKE_NVJITLINK_MAJOR=14: of which version of CUDA it is; 13 without it. FAKE_NVJITLINK=unknown: it knows no
// architecture; invalid: it takes no PTX; damaged: it makes what libcuda does not load.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

struct nvJitLink {
  std::string architecture, text;
};

namespace {
bool asked(const char* what) {
  const char* value = std::getenv("FAKE_NVJITLINK");
  return value && !std::strcmp(value, what);
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvJitLinkVersion(unsigned* major, unsigned* minor) {
  const char* value = std::getenv("FAKE_NVJITLINK_MAJOR");
  *major = value ? unsigned(std::atoi(value)) : 13;
  *minor = 0;
  return 0;
}
EXPORT int nvJitLinkCreate(nvJitLink** handle, uint32_t count, const char** options) {
  if (count != 1 || std::strncmp(options[0], "-arch=", 6) != 0 || asked("unknown"))
    return 16;
  *handle = new nvJitLink{options[0] + 6, {}};
  return 0;
}
EXPORT int nvJitLinkDestroy(nvJitLink** handle) {
  delete *handle;
  *handle = nullptr;
  return 0;
}
EXPORT int nvJitLinkAddData(nvJitLink* handle, int type, const void* data, size_t bytes, const char*) {
  const auto* text = static_cast<const char*>(data);
  if (type != 2 || bytes == 0 || text[bytes - 1] || asked("invalid"))
    return 4;
  handle->text = text;
  return 0;
}
EXPORT int nvJitLinkComplete(nvJitLink* handle) {
  handle->text = asked("damaged") ? "nothing" : handle->text + "// linked for " + handle->architecture + "\n";
  return 0;
}
EXPORT int nvJitLinkGetLinkedCubinSize(nvJitLink* handle, size_t* bytes) {
  *bytes = handle->text.size() + 1;
  return 0;
}
EXPORT int nvJitLinkGetLinkedCubin(nvJitLink* handle, void* to) {
  std::memcpy(to, handle->text.c_str(), handle->text.size() + 1);
  return 0;
}
EXPORT int nvJitLinkGetErrorLogSize(nvJitLink*, size_t* bytes) {
  *bytes = 10;
  return 0;
}
EXPORT int nvJitLinkGetErrorLog(nvJitLink*, char* to) {
  std::memcpy(to, "it failed", 10);
  return 0;
}
