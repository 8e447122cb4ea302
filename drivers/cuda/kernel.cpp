#include "drivers/cuda/kernel.h"
#include "drivers/level_zero/counted.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

namespace zefuse::cuda {
namespace {

using spirv::ArgKind;

bool isPointer(ArgKind kind) { return kind == ArgKind::global_pointer || kind == ArgKind::constant_pointer; }
size_t storedBytes(const spirv::ArgInfo& info) {
  return isPointer(info.kind) || info.kind == ArgKind::local_pointer ? sizeof(void*) : info.size;
}

}  // namespace

std::vector<void*> Parameters::pointers() {
  std::vector<void*> all;
  for (uint32_t offset : offsets)
    all.push_back(values.data() + offset);
  return all;
}

Kernel::Kernel(Module& owner, const ProgramKernel& kernel, CUfunction loaded, uint32_t items)
    : module(&owner), program(kernel), info(kernel.info), function(loaded), max_items(items),
      kept_name(keptName(kernel.info.name)), local_bytes_(kernel.info.args.size()),
      is_set_(kernel.info.args.size(), false), unset_(kernel.info.args.size()) {
  for (int i = 0; i < 3; ++i)
    group_size[i] = std::max(program.info.required_group_size[i], 1u);
  size_t end = 0;
  for (const spirv::ArgInfo& info : program.info.args) {
    end = (end + 15) & ~size_t(15);
    parameters_.offsets.push_back(uint32_t(end));
    end += storedBytes(info);
  }
  if (program.takes_offset)
    for (size_t i = 0; i < std::size(global_offset); ++i) {
      end = (end + 7) & ~size_t(7);
      parameters_.offsets.push_back(uint32_t(end));
      end += sizeof global_offset[i];
    }
  parameters_.values.resize(end);
  pointers_ = parameters_.pointers();
  placeLocals();
}

void Kernel::placeLocals() {
  all_local_bytes_ = alignLocal(program.info.local_bytes);
  for (size_t i = 0; i < program.info.args.size(); ++i) {
    if (program.info.args[i].kind != ArgKind::local_pointer)
      continue;
    std::memcpy(pointers_[i], &all_local_bytes_, sizeof all_local_bytes_);
    all_local_bytes_ += alignLocal(uint32_t(local_bytes_[i]));
  }
  parameters_.local_bytes = uint32_t(all_local_bytes_);
}

uint32_t Kernel::privateBytes() const {
  const Current current(module->device);
  int bytes = 0;
  cuda().cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
  return uint32_t(bytes);
}

ze_result_t Kernel::setArgument(uint32_t index, size_t size, const void* value) {
  if (index >= program.info.args.size())
    return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
                  "zeKernelSetArgumentValue: kernel '%s' has %zu arguments, not one numbered %u", name().c_str(),
                  program.info.args.size(), index);
  const spirv::ArgInfo& info = program.info.args[index];
  const auto isSet = [&] {
    unset_ -= !is_set_[index];
    is_set_[index] = true;
    return ZE_RESULT_SUCCESS;
  };
  if (info.kind == ArgKind::local_pointer) {
    if (value)
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                    "zeKernelSetArgumentValue: argument %u of kernel '%s' is local memory: the value must be NULL and "
                    "the size its bytes",
                    index, name().c_str());
    if (size == 0 || size > module->device.max_local_bytes)
      return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                    "zeKernelSetArgumentValue: argument %u of kernel '%s': %zu bytes of local memory; 1 to %u are "
                    "possible",
                    index, name().c_str(), size, module->device.max_local_bytes);
    local_bytes_[index] = size;
    placeLocals();
    return isSet();
  }
  if (size != storedBytes(info))
    return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                  "zeKernelSetArgumentValue: argument %u of kernel '%s' has %zu bytes, not %zu", index, name().c_str(),
                  storedBytes(info), size);
  if (value)
    std::memcpy(pointers_[index], value, size);
  else
    std::memset(pointers_[index], 0, size);  // "considered null"
  return isSet();
}

ze_result_t Kernel::prepare(const char* call) {
  if (unset_ != 0) [[unlikely]]
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: kernel '%s': argument %td was never set", call, name().c_str(),
                  std::find(is_set_.begin(), is_set_.end(), false) - is_set_.begin());
  if (all_local_bytes_ > module->device.max_local_bytes) [[unlikely]]
    return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                  "%s: kernel '%s': a work-group needs %llu bytes of local memory; there are %u", call, name().c_str(),
                  static_cast<unsigned long long>(all_local_bytes_), module->device.max_local_bytes);
  if (program.takes_offset)
    for (size_t i = 0; i < std::size(global_offset); ++i)
      std::memcpy(pointers_[program.info.args.size() + i], &global_offset[i], sizeof global_offset[i]);
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelCreate(ze_module_handle_t hModule, const ze_kernel_desc_t* desc, ze_kernel_handle_t* phKernel) {
  ZEFUSE_OBJECT(Module, module, hModule);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(desc->pKernelName);
  ZEFUSE_NOT_NULL(phKernel);
  *phKernel = nullptr;
  const auto& kernels = module->program.kernels;
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const ProgramKernel& each) { return each.info.name == desc->pKernelName; });
  if (found == kernels.end())
    return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_NAME,
                  "zeKernelCreate: the module has no kernel '%s' (it has %zu, the first is '%s')", desc->pKernelName,
                  kernels.size(), kernels.empty() ? "" : kernels.front().info.name.c_str());
  if (!module->program.imports.empty())
    return refuse(ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED,
                  "zeKernelCreate: the module imports '%s' (%zu imports in all)",
                  module->program.imports.front().c_str(), module->program.imports.size());
  for (const spirv::ArgInfo& info : found->info.args)
    if (info.kind == ArgKind::image || info.kind == ArgKind::sampler)
      return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                    "zeKernelCreate: kernel '%s' takes an image or a sampler, which this driver does not have",
                    desc->pKernelName);
  return guarded(__func__, [&]() -> ze_result_t {
    Device& device = module->device;
    if (ze_result_t result = device.open("zeKernelCreate"))
      return result;
    const Current current(device);
    CUfunction function = nullptr;
    ZEFUSE_CUDA(device, "zeKernelCreate", cuModuleGetFunction, &function, module->loaded, found->symbol.c_str());
    int items = 0;
    ZEFUSE_CUDA(device, "zeKernelCreate", cuFuncGetAttribute, &items, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                function);
    // More than 48 KiB have to be asked for; what a launch takes counts then, not this.
    int own = 0;
    ZEFUSE_CUDA(device, "zeKernelCreate", cuFuncGetAttribute, &own, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
    ZEFUSE_CUDA(device, "zeKernelCreate", cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                int(device.max_local_bytes) - own);
    *phKernel = toHandle<ze_kernel_handle_t>(new Kernel(*module, *found, function, uint32_t(items)));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t kernelSuggestMaxCooperativeGroupCount(ze_kernel_handle_t hKernel, uint32_t* totalGroupCount) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(totalGroupCount);
  Device& device = kernel->module->device;
  *totalGroupCount = 0;
  if (!device.cooperative)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                  "zeKernelSuggestMaxCooperativeGroupCount: the device has no cooperative launches");
  if (ze_result_t result = kernel->prepare("zeKernelSuggestMaxCooperativeGroupCount"))
    return result;
  const Current current(device);
  int groups = 0;
  const uint32_t* size = kernel->group_size;
  ZEFUSE_CUDA(device, "zeKernelSuggestMaxCooperativeGroupCount", cuOccupancyMaxActiveBlocksPerMultiprocessor, &groups,
              kernel->function, int(size[0] * size[1] * size[2]), kernel->parameters().local_bytes);
  *totalGroupCount = uint32_t(groups) * device.multiprocessors;
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSetArgumentValue(ze_kernel_handle_t hKernel, uint32_t argIndex, size_t argSize,
                                   const void* pArgValue) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  return kernel->setArgument(argIndex, argSize, pArgValue);
}

}  // namespace zefuse::cuda
