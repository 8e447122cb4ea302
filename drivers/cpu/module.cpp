#include "drivers/cpu/module.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "drivers/cpu/device.h"
#include "drivers/cpu/environment.h"
#include "drivers/cpu/module_build.h"
#include "drivers/level_zero/kernel_calls.h"

namespace zefuse::cpu {
Module::Module(Context& context, const Device& device, std::unique_ptr<LoadedModule> loaded_module,
               std::vector<std::byte> native_binary)
    : context(&context), device(device), loaded(std::move(loaded_module)), native(std::move(native_binary)),
      imports(loaded->unresolvedImports()) {}

std::vector<std::string> Module::exports() const {
  std::vector<std::string> names = loaded->functions();
  for (const GlobalInfo& global : loaded->globals())
    names.push_back(global.name);
  return names;
}

void Module::relink(std::unique_ptr<LoadedModule> linked, std::vector<std::byte> native_binary) {
  before_linking = std::exchange(loaded, std::move(linked));
  native = std::move(native_binary);
  imports.clear();
}

ze_result_t moduleCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice, const ze_module_desc_t* desc,
                         ze_module_handle_t* phModule, ze_module_build_log_handle_t* phBuildLog) {
  if (phBuildLog)
    *phBuildLog = nullptr;
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phModule);
  *phModule = nullptr;
  if (ze_result_t result = checkInContext("zeModuleCreate", *context, *device))
    return result;
  const ze_module_program_exp_desc_t* program = findProgram(*desc);
  bool native = desc->format == ZE_MODULE_FORMAT_NATIVE;
  if (!native && desc->format != ZE_MODULE_FORMAT_IL_SPIRV)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "zeModuleCreate: format %d", static_cast<int>(desc->format));
  if (program) {
    if (native)
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeModuleCreate: several inputs must be SPIR-V");
    if (program->count == 0)
      return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeModuleCreate: a program of 0 inputs");
    ZEFUSE_NOT_NULL(program->inputSizes);
    ZEFUSE_NOT_NULL(program->pInputModules);
    for (uint32_t i = 0; i < program->count; ++i)
      ZEFUSE_NOT_NULL(program->pInputModules[i]);
  } else {
    ZEFUSE_NOT_NULL(desc->pInputModule);
    if (desc->inputSize == 0)
      return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeModuleCreate: inputSize is 0");
  }
  return guarded(__func__, [&]() -> ze_result_t {
    if (!native && device->is_gpu) {  // what a device's own compiler may do, for tests
      if (environment().fault == Fault::jit_crash)
        std::raise(SIGSEGV);
      while (environment().fault == Fault::jit_hang)
        std::this_thread::sleep_for(std::chrono::seconds(1));
      if (environment().fault == Fault::jit_memory)
        for (std::vector<std::unique_ptr<char[]>> eaten; eaten.size() < 1 << 14;)  // not written, so no test needs it
          eaten.push_back(std::make_unique_for_overwrite<char[]>(size_t(64) << 20));
    }
    Build build = native ? loadNative(*desc) : program ? buildProgram(*program) : buildSpirv(*desc);
    // The application gets the log whether or not there is a module.
    const std::string reason = giveLog(std::move(build.log), phBuildLog);
    if (!build.loaded)
      return refuse(native ? ZE_RESULT_ERROR_INVALID_NATIVE_BINARY : ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
                    "zeModuleCreate: %s", reason.c_str());
    *phModule =
        toHandle<ze_module_handle_t>(new Module(*context, *device, std::move(build.loaded), std::move(build.native)));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t moduleDynamicLink(uint32_t numModules, ze_module_handle_t* phModules,
                              ze_module_build_log_handle_t* phLinkLog) {
  ZEFUSE_NOT_NULL(phModules);
  if (phLinkLog)
    *phLinkLog = nullptr;
  for (uint32_t i = 0; i < numModules; ++i)
    ZEFUSE_CHECK(Module, phModules[i]);
  return guarded(__func__, [&]() -> ze_result_t {
    // All are built before one is changed.
    std::vector<std::pair<Module*, Build>> built;
    std::string log;
    for (uint32_t i = 0; i < numModules; ++i) {
      Module* module = fromHandle<Module>(phModules[i]);
      if (module->imports.empty())
        continue;
      std::vector<std::span<const std::byte>> natives = {module->native};
      for (uint32_t k = 0; k < numModules; ++k)
        if (k != i)
          natives.push_back(fromHandle<Module>(phModules[k])->native);
      Build build = buildWithImports(natives);
      const std::string place =
          "module " + std::to_string(i) + " imports " + level_zero::quoted(module->imports) + "; ";
      if (!build.loaded)
        log += place + build.log;
      else if (auto missing = build.loaded->unresolvedImports(); !missing.empty())
        log += place + "nobody exports " + level_zero::quoted(missing) + "\n";
      built.emplace_back(module, std::move(build));
    }
    if (log.empty())
      for (auto& [module, build] : built)
        module->relink(std::move(build.loaded), std::move(build.native));
    const std::string reason = giveLog(std::move(log), phLinkLog);
    if (!reason.empty())
      return refuse(ZE_RESULT_ERROR_MODULE_LINK_FAILURE, "zeModuleDynamicLink: %s", reason.c_str());
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t moduleGetGlobalPointer(ze_module_handle_t hModule, const char* pGlobalName, size_t* pSize, void** pptr) {
  ZEFUSE_OBJECT(Module, module, hModule);
  ZEFUSE_NOT_NULL(pGlobalName);
  const auto& globals = module->loaded->globals();
  for (size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].name != pGlobalName)
      continue;
    if (pSize)
      *pSize = globals[i].size;
    if (pptr)
      *pptr = module->loaded->globalAddress(i);
    return ZE_RESULT_SUCCESS;
  }
  return refuse(ZE_RESULT_ERROR_INVALID_GLOBAL_NAME, "zeModuleGetGlobalPointer: the module has no global variable '%s'",
                pGlobalName);
}

ze_result_t moduleGetFunctionPointer(ze_module_handle_t hModule, const char* pFunctionName, void** pfnFunction) {
  ZEFUSE_OBJECT(Module, module, hModule);
  ZEFUSE_NOT_NULL(pFunctionName);
  ZEFUSE_NOT_NULL(pfnFunction);
  return guarded(__func__, [&]() -> ze_result_t {
    *pfnFunction = module->loaded->functionAddress(pFunctionName);
    if (!*pfnFunction)
      return refuse(ZE_RESULT_ERROR_INVALID_FUNCTION_NAME,
                    "zeModuleGetFunctionPointer: the module exports no function '%s'", pFunctionName);
    return ZE_RESULT_SUCCESS;
  });
}

}  // namespace zefuse::cpu
