#include "drivers/cuda/cublaslt_api.h"

#include <dlfcn.h>

#include "drivers/cuda/nvidia_library.h"

namespace zefuse::cuda {
namespace {

struct FoundLibrary {
  CublasLtApi api;
  std::string text;
  bool usable = false;
};

// The newest first: each serves drivers of its own major version and later ones.
constexpr const char* kCublasLtNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
constexpr const char* kCublasLtWheels[] = {"nvidia/cu13/lib/", "nvidia/cublas/lib/"};

std::string versionText(size_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

// Whether it is complete and for this driver. Else `text` says what is missing.
bool takeLibrary(void* library, const std::string& path, CublasLtApi& api, std::string& text) {
  const char* missing = nullptr;
#define ZEFUSE_CUBLASLT_FIND(result, name, parameters)                                                                 \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name));                                              \
  if (!api.name)                                                                                                       \
    missing = #name;
  ZEFUSE_CUBLASLT_FUNCTIONS(ZEFUSE_CUBLASLT_FIND)
#undef ZEFUSE_CUBLASLT_FIND
  if (missing) {
    text = path + " has no " + missing;
    return false;
  }
  const size_t own = api.cublasLtGetVersion();
  if (own < 120000) {
    text = path + " is cuBLASLt " + versionText(own) + ": 12.0 is the least";
    return false;
  }
  if (!isForThisDriver(api.cublasLtGetCudartVersion() / 1000, path, text))
    return false;
  text = "cuBLASLt " + versionText(own) + " (" + path + ")";
  return true;
}

FoundLibrary findLibrary() {
  FoundLibrary found;
  found.usable = findNvidiaLibrary(
      {"ZEFUSE_CUBLASLT", kCublasLtNames, kCublasLtWheels},
      [&](void* library, const std::string& path, std::string& text) {
        return takeLibrary(library, path, found.api, text);
      },
      found.text);
  return found;
}

}  // namespace

const CublasLtApi* findCublasLt(std::string& text) {
  static const FoundLibrary* made = new FoundLibrary(findLibrary());  // never destroyed, as the driver
  text = made->text;
  return made->usable ? &made->api : nullptr;
}

const char* statusName(cublasStatus_t status) {
  switch (status) {
#define ZEFUSE_CUBLAS_STATUS(name)                                                                                     \
  case name: return #name;
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_SUCCESS)
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_NOT_INITIALIZED)
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_ALLOC_FAILED)
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_INVALID_VALUE)
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_ARCH_MISMATCH)
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_MAPPING_ERROR)
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_EXECUTION_FAILED)
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_INTERNAL_ERROR)
    ZEFUSE_CUBLAS_STATUS(CUBLAS_STATUS_NOT_SUPPORTED)
#undef ZEFUSE_CUBLAS_STATUS
  }
  return "an unknown status";
}

}  // namespace zefuse::cuda
