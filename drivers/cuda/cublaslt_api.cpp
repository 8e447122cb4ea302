#include "drivers/cuda/cublaslt_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace zefuse::cuda {
namespace {

struct FoundLibrary {
  CublasLtApi api;
  std::string text;
  bool usable = false;
};

// The newest first: each serves drivers of its own major version and later ones.
constexpr const char* kCublasLtNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
// Where NVIDIA's wheels, which torch's depend on, put it beside zefuse's (site-packages/zefuse/lib).
constexpr const char* kCublasLtFolders[] = {"/../../nvidia/cu13/lib/", "/../../nvidia/cublas/lib/"};

std::string folderOfDriver() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&folderOfDriver), &info) || !info.dli_fname)
    return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string versionText(size_t number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

// Whether it is complete and for this driver. Else `text` says what is missing.
bool takeLibrary(void* library, const std::string& path, FoundLibrary& found) {
  const char* missing = nullptr;
#define ZEFUSE_CUBLASLT_FIND(result, name, parameters)                                                                 \
  found.api.name = reinterpret_cast<decltype(found.api.name)>(dlsym(library, #name));                                  \
  if (!found.api.name)                                                                                                 \
    missing = #name;
  ZEFUSE_CUBLASLT_FUNCTIONS(ZEFUSE_CUBLASLT_FIND)
#undef ZEFUSE_CUBLASLT_FIND
  if (missing) {
    found.text = path + " has no " + missing;
    return false;
  }
  const size_t own = found.api.cublasLtGetVersion(), cuda_version = found.api.cublasLtGetCudartVersion();
  if (own < 120000) {
    found.text = path + " is cuBLASLt " + versionText(own) + ": 12.0 is the least";
    return false;
  }
  int driver = 0;
  cuda().cuDriverGetVersion(&driver);
  if (cuda_version / 1000 > size_t(driver) / 1000) {
    found.text = path + " is for CUDA " + std::to_string(cuda_version / 1000) + ", and the driver has CUDA " +
                 std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10);
    return false;
  }
  found.text = "cuBLASLt " + versionText(own) + " (" + path + ")";
  return found.usable = true;
}

FoundLibrary findLibrary() {
  FoundLibrary found;
  if (const char* named = std::getenv("ZEFUSE_CUBLASLT"); named && *named) {
    if (!std::strcmp(named, "off") || !std::strcmp(named, "0")) {
      found.text = "ZEFUSE_CUBLASLT turns it off";
    } else if (void* library = dlopen(named, RTLD_NOW | RTLD_LOCAL)) {
      takeLibrary(library, named, found);
    } else {
      const char* reason = dlerror();
      found.text = "ZEFUSE_CUBLASLT: " + std::string(reason ? reason : named);
    }
    return found;
  }
  // What the process has already, then the wheels', then the system's. Of those that are there and do not do, the last
  // one's reason is told.
  for (const char* name : kCublasLtNames)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD); library && takeLibrary(library, name, found))
      return found;
  const std::string folder = folderOfDriver();
  for (const char* name : kCublasLtNames)
    for (const char* wheel : kCublasLtFolders)
      if (const std::string path = folder + wheel + name; void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
        if (takeLibrary(library, path, found))
          return found;
  for (const char* name : kCublasLtNames)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library && takeLibrary(library, name, found))
      return found;
  if (found.text.empty())
    found.text = std::string("no ") + kCublasLtNames[0] + " or " + kCublasLtNames[1] +
                 " in this process, in NVIDIA's packages beside zefuse or in the library search path; "
                 "ZEFUSE_CUBLASLT=/path/libcublasLt.so names one";
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
