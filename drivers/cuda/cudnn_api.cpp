#include "drivers/cuda/cudnn_api.h"

#include <dlfcn.h>

#include "drivers/cuda/nvidia_library.h"

namespace zefuse::cuda {
namespace {

struct FoundCudnn {
  CudnnApi api;
  std::string text;
  bool usable = false;
};

constexpr const char* kCudnnNames[] = {"libcudnn.so.9"};
constexpr const char* kCudnnWheels[] = {"nvidia/cudnn/lib/"};

// Whether it is complete and for this driver; `text`: its name, or what is missing.
bool takeCudnn(void* library, const std::string& path, CudnnApi& api, std::string& text) {
  const char* missing = nullptr;
#define ZEFUSE_CUDNN_FIND(result, name, parameters)                                                                    \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name));                                              \
  if (!api.name)                                                                                                       \
    missing = #name;
  ZEFUSE_CUDNN_FUNCTIONS(ZEFUSE_CUDNN_FIND)
#undef ZEFUSE_CUDNN_FIND
  if (missing) {
    text = path + " has no " + missing;
    return false;
  }
  const size_t own = api.cudnnGetVersion();
  if (own < 90000) {  // 8 counts its versions by thousands
    text = path + " is cuDNN " + std::to_string(own / 1000) + ": 9.0 is the least";
    return false;
  }
  if (!isForThisDriver(api.cudnnGetCudartVersion() / 1000, path, text))
    return false;
  text = "cuDNN " + std::to_string(own / 10000) + "." + std::to_string(own / 100 % 100) + "." +
         std::to_string(own % 100) + " (" + path + ")";
  return true;
}

FoundCudnn findAndTake() {
  FoundCudnn found;
  found.usable = findNvidiaLibrary(
      {"ZEFUSE_CUDNN", kCudnnNames, kCudnnWheels},
      [&](void* library, const std::string& path, std::string& text) {
        return takeCudnn(library, path, found.api, text);
      },
      found.text);
  return found;
}

}  // namespace

const CudnnApi* findCudnn(std::string& text) {
  static const FoundCudnn* made = new FoundCudnn(findAndTake());  // never destroyed, as the driver
  text = made->text;
  return made->usable ? &made->api : nullptr;
}

}  // namespace zefuse::cuda
