// Modules.
#pragma once

#include <level_zero/ze_api.h>

#include <string>
#include <vector>

#include "drivers/cuda/context.h"
#include "drivers/cuda/cuda_api.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/level_zero.h"
#include "drivers/cuda/program.h"

namespace zefuse::cuda {

// Immutable after creation, so calls on one module need no lock. Its code stays loaded while a kernel or a recorded
// launch refers to it.
struct Module : Object<Module> {
  static constexpr uint32_t kMagic = magicOf("ZMOD");
  const Ref<Context> context;
  Device& device;
  const Program program;
  const std::vector<std::byte> native;
  const CUmodule loaded;

  Module(Context& context, Device& device, Program program, std::vector<std::byte> native, CUmodule loaded);
  ~Module();
  size_t kernelCount() const { return program.kernels.size(); }
  const std::string& kernelName(size_t index) const { return program.kernels[index].info.name; }
  const std::vector<std::string>& unboundImports() const { return program.imports; }
  std::vector<std::string> exports() const;  // variables: functions are inlined into the kernels
};

decltype(::zeModuleCreate) moduleCreate;
decltype(::zeModuleDynamicLink) moduleDynamicLink;
decltype(::zeModuleGetGlobalPointer) moduleGetGlobalPointer;

}  // namespace zefuse::cuda
