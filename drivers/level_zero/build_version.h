// Which build of a driver, and of the compiler that it loads, this is.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

namespace zefuse::level_zero {

// FNV-1a: the ids are hashes already, this only folds them.
inline uint32_t foldBuildIds(std::initializer_list<std::string_view> ids) {
  uint32_t state = 2166136261u;
  for (std::string_view id : ids)
    for (unsigned char byte : id)
      state = (state ^ byte) * 16777619u;
  return state;
}

// The file `name` in the folder of the loaded library, or of the program, that holds `address`.
inline std::string pathBeside(const void* address, std::string_view name) {
  Dl_info info{};
  std::string path;
  if (dladdr(address, &info) && info.dli_fname)
    path = info.dli_fname;
  std::error_code error;
  if (path.find('/') == std::string::npos)  // a program, as it was called: found in PATH
    path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const size_t slash = path.rfind('/');
  return path.substr(0, slash == std::string::npos ? 0 : slash + 1) + std::string(name);
}

}  // namespace zefuse::level_zero
