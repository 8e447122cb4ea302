#include "drivers/cuda/cuda_api.h"

#include <dlfcn.h>

#include <cstdlib>

namespace zefuse::cuda {
namespace {

struct Loaded {
  CudaApi api;
  std::string reason;
  bool usable = false;
};

Loaded load() {
  Loaded loaded;
  const char* named = std::getenv("ZEFUSE_CUDA_LIBRARY");
  const char* path = named ? named : "libcuda.so.1";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // for the rest of the process
  if (!library) {
    const char* reason = dlerror();
    loaded.reason = "no NVIDIA driver: " + std::string(reason ? reason : path);
    return loaded;
  }
#define ZEFUSE_CUDA_FIND(name, symbol, parameters)                                                                     \
  loaded.api.name = reinterpret_cast<decltype(loaded.api.name)>(dlsym(library, #symbol));
  ZEFUSE_CUDA_FUNCTIONS(ZEFUSE_CUDA_FIND)
  ZEFUSE_CUDA_OPTIONAL_FUNCTIONS(ZEFUSE_CUDA_FIND)
#undef ZEFUSE_CUDA_FIND
#define ZEFUSE_CUDA_CHECK(name, symbol, parameters)                                                                    \
  if (!loaded.api.name && loaded.reason.empty())                                                                       \
    loaded.reason = std::string(path) + " has no " #symbol ": CUDA 12.0 (driver 525) is the least";
  ZEFUSE_CUDA_FUNCTIONS(ZEFUSE_CUDA_CHECK)
#undef ZEFUSE_CUDA_CHECK
  if (!loaded.reason.empty())
    return loaded;
  // Streams that wait for one another's events must not share a queue of the hardware: as many as there can be.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const CUresult result = loaded.api.cuInit(0);
  loaded.usable = result == CUDA_SUCCESS;
  if (!loaded.usable) {
    const char* text = nullptr;
    loaded.api.cuGetErrorString(result, &text);
    loaded.reason = "cuInit: error " + std::to_string(result) + ", " + (text ? text : "unknown");
  }
  return loaded;
}

const Loaded& loaded() {
  static const Loaded* made = new Loaded(load());  // never destroyed, as the driver
  return *made;
}

}  // namespace

const CudaApi* findCuda(std::string& reason) {
  reason = loaded().reason;
  return loaded().usable ? &loaded().api : nullptr;
}

const CudaApi& cuda() { return loaded().api; }

std::string errorText(CUresult result) {
  const char *name = nullptr, *text = nullptr;
  cuda().cuGetErrorName(result, &name);
  cuda().cuGetErrorString(result, &text);
  return std::string(name ? name : "CUDA error") + " (" + std::to_string(result) + ")" +
         (text ? std::string(": ") + text : "");
}

}  // namespace zefuse::cuda
