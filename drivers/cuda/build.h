// From a module descriptor to loaded code.
#pragma once

#include <level_zero/ze_api.h>

#include <string>

#include "drivers/cuda/device.h"
#include "drivers/cuda/program.h"

namespace zefuse::cuda {

// `ok` is false on failure, and the first line of `log` says why.
struct Build {
  bool ok = false;
  Program program;  // its image is a cubin wherever CUDA could make one
  CUmodule loaded = nullptr;
  std::string log;
};

// SPIR-V by the compiler (compiler_library.h); a native binary of this driver; or, as native too, PTX or a cubin of
// anybody's, whose kernels CUDA 12.4 and newer tell.
Build buildModule(Device& device, const ze_module_desc_t& desc);

}  // namespace zefuse::cuda
