// Looking for a library of NVIDIA's that torch's CUDA wheels and the toolkit bring: what a variable names, else the one
// that the process has already, else that of NVIDIA's wheels beside zefuse's, else the system's.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace zefuse::cuda {

struct NvidiaLibrary {
  const char* variable;                 // of the environment: "off", or a file
  std::span<const char* const> names;   // sonames, the newest first
  std::span<const char* const> wheels;  // folders in site-packages, with a slash at the end
};

// Whether an opened library is complete and for this driver; else `text` says what is missing.
using TakeLibrary = std::function<bool(void* library, const std::string& path, std::string& text)>;

// Whether one was taken. Else `text` says why none was: of several that do not do, the last one's reason.
bool findNvidiaLibrary(const NvidiaLibrary& wanted, const TakeLibrary& take, std::string& text);

// Whether libraries of this major version of CUDA make what the driver runs; else `text` says so of `path`.
bool isForThisDriver(size_t cuda_major, const std::string& path, std::string& text);

}  // namespace zefuse::cuda
