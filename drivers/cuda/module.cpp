#include "drivers/cuda/module.h"

#include <algorithm>
#include <cstring>

#include "drivers/cuda/build.h"
#include "drivers/cuda/deferred_releases.h"
#include "drivers/level_zero/kernel_calls.h"

namespace zefuse::cuda {
Module::Module(Context& owner, Device& owner_device, Program made, std::vector<std::byte> binary, CUmodule module)
    : context(&owner), device(owner_device), program(std::move(made)), native(std::move(binary)), loaded(module) {}

Module::~Module() {
  DeferredReleases::instance().release(device, [loaded = loaded] { cuda().cuModuleUnload(loaded); });
}

std::vector<std::string> Module::exports() const {
  std::vector<std::string> names;
  for (const ProgramVariable& variable : program.variables)
    names.push_back(variable.name);
  return names;
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
  if (findProgram(*desc))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                  "zeModuleCreate: ZE_experimental_module_program (several inputs) is not "
                  "supported: link the SPIR-V modules first");
  ZEFUSE_NOT_NULL(desc->pInputModule);
  if (desc->inputSize == 0)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeModuleCreate: inputSize is 0");
  const bool native = desc->format == ZE_MODULE_FORMAT_NATIVE;
  if (!native && desc->format != ZE_MODULE_FORMAT_IL_SPIRV)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "zeModuleCreate: format %d", static_cast<int>(desc->format));
  return guarded(__func__, [&]() -> ze_result_t {
    if (ze_result_t result = device->open("zeModuleCreate"))
      return result;
    Build build = buildModule(*device, *desc);
    // The application gets the log whether or not there is a module.
    const std::string reason = giveLog(std::move(build.log), phBuildLog);
    if (!build.ok)
      return refuse(native ? ZE_RESULT_ERROR_INVALID_NATIVE_BINARY : ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
                    "zeModuleCreate: %s", reason.c_str());
    std::vector<std::byte> binary = writeProgram(build.program);
    *phModule = toHandle<ze_module_handle_t>(
        new Module(*context, *device, std::move(build.program), std::move(binary), build.loaded));
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
    std::string log;
    for (uint32_t i = 0; i < numModules; ++i)
      for (const std::string& name : fromHandle<Module>(phModules[i])->program.imports)
        log += "module " + std::to_string(i) + " imports '" + name +
               "'; binding imports of one module to exports of another is not supported: link the SPIR-V modules "
               "(spirv-link) and create one module\n";
    const std::string reason = giveLog(std::move(log), phLinkLog);
    if (!reason.empty())
      return refuse(ZE_RESULT_ERROR_MODULE_LINK_FAILURE, "zeModuleDynamicLink: %s", reason.c_str());
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t moduleGetGlobalPointer(ze_module_handle_t hModule, const char* pGlobalName, size_t* pSize, void** pptr) {
  ZEFUSE_OBJECT(Module, module, hModule);
  ZEFUSE_NOT_NULL(pGlobalName);
  for (const ProgramVariable& variable : module->program.variables) {
    if (variable.name != pGlobalName)
      continue;
    const Current current(module->device);
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    ZEFUSE_CUDA(module->device, "zeModuleGetGlobalPointer", cuModuleGetGlobal, &pointer, &bytes, module->loaded,
                variable.symbol.c_str());
    if (pSize)
      *pSize = variable.size;
    if (pptr)
      *pptr = reinterpret_cast<void*>(pointer);
    return ZE_RESULT_SUCCESS;
  }
  return refuse(ZE_RESULT_ERROR_INVALID_GLOBAL_NAME, "zeModuleGetGlobalPointer: the module has no global variable '%s'",
                pGlobalName);
}

}  // namespace zefuse::cuda
