#include "drivers/cuda/nvidia_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "drivers/cuda/cuda_api.h"

namespace zefuse::cuda {
namespace {

std::string folderOfDriver() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&folderOfDriver), &info) || !info.dli_fname)
    return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

bool findNvidiaLibrary(const NvidiaLibrary& wanted, const TakeLibrary& take, std::string& text) {
  const std::string variable = wanted.variable;
  if (const char* named = std::getenv(wanted.variable); named && *named) {
    if (!std::strcmp(named, "off") || !std::strcmp(named, "0")) {
      text = variable + " turns it off";
      return false;
    }
    if (void* library = dlopen(named, RTLD_NOW | RTLD_LOCAL))
      return take(library, named, text);
    const char* reason = dlerror();
    text = variable + ": " + std::string(reason ? reason : named);
    return false;
  }
  auto opened = [&](const std::string& path, int flags) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    return library && take(library, path, text);
  };
  for (const char* name : wanted.names)
    if (opened(name, RTLD_NOLOAD))
      return true;
  const std::string packages = folderOfDriver() + "/../../";  // site-packages, of site-packages/zefuse/lib
  for (const char* name : wanted.names)
    for (const char* wheel : wanted.wheels)
      if (opened(packages + wheel + name, 0))
        return true;
  for (const char* name : wanted.names)
    if (opened(name, 0))
      return true;
  if (text.empty()) {
    for (const char* name : wanted.names)
      text += (text.empty() ? "no " : " or ") + std::string(name);
    text += " in this process, in NVIDIA's packages beside zefuse or in the library search path; " + variable +
            "=/path/" + std::string(wanted.names[0]).substr(0, std::string(wanted.names[0]).rfind('.')) + " names one";
  }
  return false;
}

bool isForThisDriver(size_t cuda_major, const std::string& path, std::string& text) {
  int driver = 0;
  cuda().cuDriverGetVersion(&driver);
  if (cuda_major <= size_t(driver) / 1000)
    return true;
  text = path + " is for CUDA " + std::to_string(cuda_major) + ", and the driver has CUDA " +
         std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10);
  return false;
}

}  // namespace zefuse::cuda
