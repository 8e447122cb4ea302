#include "drivers/cuda/jit_link.h"

#include <dlfcn.h>

#include <cstdint>

#include "drivers/cuda/nvidia_library.h"
#include "drivers/cuda/program.h"

namespace zefuse::cuda {
namespace {

// The part of nvJitLink that is called here. Names and values are those of nvJitLink.h, whose functions have these
// names without a version as well.
using Handle = struct nvJitLink*;
constexpr int kInputPtx = 2;
struct JitLinkApi {
  int (*create)(Handle*, uint32_t, const char**) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*add)(Handle, int, const void*, size_t, const char*) = nullptr;
  int (*complete)(Handle) = nullptr;
  int (*size)(Handle, size_t*) = nullptr;
  int (*cubin)(Handle, void*) = nullptr;
  int (*errorSize)(Handle, size_t*) = nullptr;
  int (*error)(Handle, char*) = nullptr;
};

constexpr const char* kNames[] = {"libnvJitLink.so.13", "libnvJitLink.so.12"};
constexpr const char* kWheels[] = {"nvidia/cu13/lib/", "nvidia/nvjitlink/lib/"};

bool take(void* library, const std::string& path, JitLinkApi& api, std::string& text) {
  const char* missing = nullptr;
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    missing = function ? missing : name;
  };
  find(api.create, "nvJitLinkCreate");
  find(api.destroy, "nvJitLinkDestroy");
  find(api.add, "nvJitLinkAddData");
  find(api.complete, "nvJitLinkComplete");
  find(api.size, "nvJitLinkGetLinkedCubinSize");
  find(api.cubin, "nvJitLinkGetLinkedCubin");
  find(api.errorSize, "nvJitLinkGetErrorLogSize");
  find(api.error, "nvJitLinkGetErrorLog");
  int (*version)(unsigned*, unsigned*) = nullptr;
  find(version, "nvJitLinkVersion");
  unsigned major = 0, minor = 0;
  if (missing || version(&major, &minor)) {
    text = path + " has no " + (missing ? missing : "version");
    return false;
  }
  return isForThisDriver(major, path, text);
}

struct Found {
  JitLinkApi api;
  std::string text;
  bool usable = false;
};

const Found& library() {
  static const Found* made = [] {  // never destroyed, as the driver
    auto* found = new Found;
    found->usable = findNvidiaLibrary(
        {"ZEFUSE_NVJITLINK", kNames, kWheels},
        [&](void* opened, const std::string& path, std::string& text) { return take(opened, path, found->api, text); },
        found->text);
    return found;
  }();
  return *made;
}

}  // namespace

std::optional<std::vector<std::byte>> jitLink(std::span<const std::byte> ptx, unsigned architecture, std::string& log) {
  const Found& found = library();
  if (!found.usable) {
    log = "nvJitLink: " + found.text + "\n";
    return std::nullopt;
  }
  const JitLinkApi& api = found.api;
  const std::string named = ptxTarget(ptx);  // code for one architecture alone is linked for that
  const std::string target = "-arch=" + (named.ends_with('a') ? named : "sm_" + std::to_string(architecture));
  const char* options[] = {target.c_str()};
  Handle handle = nullptr;
  if (const int result = api.create(&handle, 1, options)) {
    log = "nvJitLinkCreate for sm_" + std::to_string(architecture) + ": error " + std::to_string(result) + "\n";
    return std::nullopt;
  }
  std::vector<std::byte> made;
  size_t bytes = 0;
  int result = api.add(handle, kInputPtx, ptx.data(), ptx.size(), "kernels");
  if (!result)
    result = api.complete(handle);
  if (!result)
    result = api.size(handle, &bytes);
  if (!result) {
    made.resize(bytes);
    result = api.cubin(handle, made.data());
  }
  if (result) {
    log = "nvJitLink: error " + std::to_string(result) + "\n";
    if (size_t length = 0; !api.errorSize(handle, &length) && length > 1) {
      std::string told(length, 0);
      if (!api.error(handle, told.data()))
        log += std::string(told.c_str()) + "\n";
    }
  }
  api.destroy(&handle);
  return result ? std::nullopt : std::optional(std::move(made));
}

}  // namespace zefuse::cuda
