// Modules.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <string>
#include <vector>

#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

// Immutable but for relink(), so calls on one module need no lock. Its code stays mapped while a kernel or a recorded
// launch refers to it.
struct Module : Object<Module> {
  static constexpr uint32_t kMagic = magicOf("ZMOD");
  const Ref<Context> context;
  const Device& device;
  std::unique_ptr<LoadedModule> loaded;
  std::vector<std::byte> native;
  std::vector<std::string> imports;  // unresolved: kernels cannot be created
  // As it was: the application may have addresses of it.
  std::unique_ptr<LoadedModule> before_linking;

  Module(Context& context, const Device& device, std::unique_ptr<LoadedModule> loaded, std::vector<std::byte> native);
  size_t kernelCount() const { return loaded->kernels().size(); }
  const std::string& kernelName(size_t index) const { return loaded->kernels()[index].name; }
  const std::vector<std::string>& unboundImports() const { return imports; }
  std::vector<std::string> exports() const;  // functions and variables
  // zeModuleDynamicLink: the module with its imports bound. No kernel exists yet, since one could not be created.
  void relink(std::unique_ptr<LoadedModule> linked, std::vector<std::byte> native_binary);
};

decltype(::zeModuleCreate) moduleCreate;
decltype(::zeModuleDynamicLink) moduleDynamicLink;
decltype(::zeModuleGetGlobalPointer) moduleGetGlobalPointer;
decltype(::zeModuleGetFunctionPointer) moduleGetFunctionPointer;

}  // namespace zefuse::cpu
