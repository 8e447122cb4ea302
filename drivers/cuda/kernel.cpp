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

// The largest divisor of `size` that is at most `limit`.
uint32_t largestDivisor(uint32_t size, uint32_t limit) {
  for (uint32_t divisor = std::min(size, limit); divisor > 1; --divisor)
    if (size % divisor == 0)
      return divisor;
  return 1;
}

int functionAttribute(const Kernel& kernel, CUfunction_attribute which) {
  const Current current(kernel.module->device);
  int value = 0;
  cuda().cuFuncGetAttribute(&value, which, kernel.function);
  return value;
}

}  // namespace

std::vector<void*> Parameters::pointers() {
  std::vector<void*> all;
  for (uint32_t offset : offsets)
    all.push_back(values.data() + offset);
  return all;
}

Kernel::Kernel(Module& owner, const ProgramKernel& kernel, CUfunction loaded, uint32_t items)
    : module(&owner), program(kernel), function(loaded), max_items(items), is_set_(kernel.info.args.size(), false) {
  for (int i = 0; i < 3; ++i)
    group_size[i] = std::max(program.info.required_group_size[i], 1u);
  size_t end = 0;
  for (const spirv::ArgInfo& info : program.info.args) {
    end = (end + 15) & ~size_t(15);
    offsets_.push_back(uint32_t(end));
    end += storedBytes(info);
  }
  values_.resize(end);
}

ze_result_t Kernel::setArgument(uint32_t index, size_t size, const void* value) {
  if (index >= program.info.args.size())
    return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
                  "zeKernelSetArgumentValue: kernel '%s' has %zu arguments, not one numbered %u", name().c_str(),
                  program.info.args.size(), index);
  const spirv::ArgInfo& info = program.info.args[index];
  std::byte* stored = values_.data() + offsets_[index];
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
    const uint64_t bytes = size;
    std::memcpy(stored, &bytes, sizeof bytes);
    is_set_[index] = true;
    return ZE_RESULT_SUCCESS;
  }
  if (size != storedBytes(info))
    return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                  "zeKernelSetArgumentValue: argument %u of kernel '%s' has %zu bytes, not %zu", index, name().c_str(),
                  storedBytes(info), size);
  if (value)
    std::memcpy(stored, value, size);
  else
    std::memset(stored, 0, size);  // "considered null"
  is_set_[index] = true;
  return ZE_RESULT_SUCCESS;
}

ze_result_t Kernel::parameters(const char* call, Parameters& out) const {
  const auto missing = std::find(is_set_.begin(), is_set_.end(), false);
  if (missing != is_set_.end())
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: kernel '%s': argument %td was never set", call, name().c_str(),
                  missing - is_set_.begin());
  out.values = values_;
  out.offsets = offsets_;
  uint64_t local = alignLocal(program.info.local_bytes);
  for (size_t i = 0; i < program.info.args.size(); ++i) {
    if (program.info.args[i].kind != ArgKind::local_pointer)
      continue;
    uint64_t bytes;
    std::memcpy(&bytes, &out.values[offsets_[i]], sizeof bytes);
    std::memcpy(&out.values[offsets_[i]], &local, sizeof local);
    local += alignLocal(uint32_t(bytes));
  }
  if (local > module->device.max_local_bytes)
    return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                  "%s: kernel '%s': a work-group needs %llu bytes of local memory; there are %u", call, name().c_str(),
                  static_cast<unsigned long long>(local), module->device.max_local_bytes);
  out.local_bytes = uint32_t(local);
  if (program.takes_offset)
    for (uint64_t offset : global_offset) {
      out.offsets.push_back(uint32_t(out.values.size()));
      auto* bytes = reinterpret_cast<const std::byte*>(&offset);
      out.values.insert(out.values.end(), bytes, bytes + sizeof offset);
    }
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

ze_result_t kernelDestroy(ze_kernel_handle_t hKernel) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  kernel->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSetCacheConfig(ze_kernel_handle_t hKernel, ze_cache_config_flags_t) {
  ZEFUSE_CHECK(Kernel, hKernel);
  return ZE_RESULT_SUCCESS;  // a hint; the division follows what a launch takes
}

ze_result_t kernelSetGroupSize(ze_kernel_handle_t hKernel, uint32_t groupSizeX, uint32_t groupSizeY,
                               uint32_t groupSizeZ) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  const uint32_t size[3] = {groupSizeX, groupSizeY, groupSizeZ};
  const uint64_t plane = uint64_t{size[0]} * size[1];
  if (plane == 0 || size[2] == 0 || plane > kernel->max_items || plane * size[2] > kernel->max_items || size[2] > 64)
    return refuse(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                  "zeKernelSetGroupSize: %u x %u x %u for kernel '%s': 1 to %u items are possible, at most 64 of them "
                  "in z",
                  size[0], size[1], size[2], kernel->name().c_str(), kernel->max_items);
  const uint32_t* required = kernel->program.info.required_group_size;
  if (required[0] != 0 && !std::equal(size, size + 3, required))
    return refuse(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
                  "zeKernelSetGroupSize: %u x %u x %u, but kernel '%s' requires %u x %u x %u", size[0], size[1],
                  size[2], kernel->name().c_str(), required[0], required[1], required[2]);
  std::copy(size, size + 3, kernel->group_size);
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSuggestGroupSize(ze_kernel_handle_t hKernel, uint32_t globalSizeX, uint32_t globalSizeY,
                                   uint32_t globalSizeZ, uint32_t* groupSizeX, uint32_t* groupSizeY,
                                   uint32_t* groupSizeZ) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(groupSizeX);
  ZEFUSE_NOT_NULL(groupSizeY);
  ZEFUSE_NOT_NULL(groupSizeZ);
  if (globalSizeX == 0 || globalSizeY == 0 || globalSizeZ == 0)
    return refuse(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, "zeKernelSuggestGroupSize: a global size of 0");
  const uint32_t* required = kernel->program.info.required_group_size;
  if (required[0] != 0) {
    *groupSizeX = required[0];
    *groupSizeY = required[1];
    *groupSizeZ = required[2];
    return ZE_RESULT_SUCCESS;
  }
  // Long in x, where neighbours in memory are.
  const uint32_t items = std::min(256u, kernel->max_items);
  *groupSizeX = largestDivisor(globalSizeX, items);
  *groupSizeY = largestDivisor(globalSizeY, items / *groupSizeX);
  *groupSizeZ = largestDivisor(globalSizeZ, std::min(64u, items / *groupSizeX / *groupSizeY));
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSuggestMaxCooperativeGroupCount(ze_kernel_handle_t hKernel, uint32_t* totalGroupCount) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(totalGroupCount);
  Device& device = kernel->module->device;
  *totalGroupCount = 0;
  if (!device.cooperative)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
                  "zeKernelSuggestMaxCooperativeGroupCount: the device has no cooperative launches");
  Parameters parameters;
  if (ze_result_t result = kernel->parameters("zeKernelSuggestMaxCooperativeGroupCount", parameters))
    return result;
  const Current current(device);
  int groups = 0;
  const uint32_t* size = kernel->group_size;
  ZEFUSE_CUDA(device, "zeKernelSuggestMaxCooperativeGroupCount", cuOccupancyMaxActiveBlocksPerMultiprocessor, &groups,
              kernel->function, int(size[0] * size[1] * size[2]), parameters.local_bytes);
  *totalGroupCount = uint32_t(groups) * device.multiprocessors;
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSetArgumentValue(ze_kernel_handle_t hKernel, uint32_t argIndex, size_t argSize,
                                   const void* pArgValue) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  return kernel->setArgument(argIndex, argSize, pArgValue);
}

ze_result_t kernelSetIndirectAccess(ze_kernel_handle_t hKernel, ze_kernel_indirect_access_flags_t flags) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  kernel->indirect_access = flags;  // every allocation is resident: nothing to do
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelGetIndirectAccess(ze_kernel_handle_t hKernel, ze_kernel_indirect_access_flags_t* pFlags) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pFlags);
  *pFlags = kernel->indirect_access;
  return ZE_RESULT_SUCCESS;
}

// `*pString` is memory of the caller's: a char* was meant.
ze_result_t kernelGetSourceAttributes(ze_kernel_handle_t hKernel, uint32_t* pSize, char** pString) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pSize);
  if (pString)
    ZEFUSE_NOT_NULL(*pString);
  settleText(pSize, kernel->program.info.source_attributes, pString ? *pString : nullptr);
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelGetProperties(ze_kernel_handle_t hKernel, ze_kernel_properties_t* properties) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(properties);
  const spirv::KernelInfo& info = kernel->program.info;
  properties->numKernelArgs = static_cast<uint32_t>(info.args.size());
  properties->requiredGroupSizeX = info.required_group_size[0];
  properties->requiredGroupSizeY = info.required_group_size[1];
  properties->requiredGroupSizeZ = info.required_group_size[2];
  properties->requiredNumSubGroups = 0;
  properties->requiredSubgroupSize = info.required_subgroup_size;
  properties->maxSubgroupSize = info.required_subgroup_size ? info.required_subgroup_size : 32;
  properties->maxNumSubgroups = kernel->max_items / properties->maxSubgroupSize;
  properties->localMemSize = info.local_bytes;
  properties->privateMemSize = uint32_t(functionAttribute(*kernel, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  properties->spillMemSize = 0;  // CUDA counts spills as private memory
  const std::vector<std::byte>& native = kernel->module->native;
  const uint64_t hashes[2] = {
      std::hash<std::string>()(info.name),
      std::hash<std::string_view>()({reinterpret_cast<const char*>(native.data()), native.size()})};
  std::memset(&properties->uuid, 0, sizeof properties->uuid);
  std::memcpy(properties->uuid.kid, &hashes[0], sizeof hashes[0]);
  std::memcpy(properties->uuid.mid, &hashes[1], sizeof hashes[1]);
  if (auto* preferred = findExtension<ze_kernel_preferred_group_size_properties_t>(
          properties->pNext, ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES))
    preferred->preferredMultiple = 32;
  if (auto* most = findExtension<KernelMaxGroupSizeProperties>(properties->pNext, KernelMaxGroupSizeProperties::kType))
    most->items = kernel->max_items;
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelGetName(ze_kernel_handle_t hKernel, size_t* pSize, char* pName) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pSize);
  settleText(pSize, kernel->program.info.name, pName);
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelSetGlobalOffsetExp(ze_kernel_handle_t hKernel, uint32_t offsetX, uint32_t offsetY, uint32_t offsetZ) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  kernel->global_offset[0] = offsetX;
  kernel->global_offset[1] = offsetY;
  kernel->global_offset[2] = offsetZ;
  return ZE_RESULT_SUCCESS;
}

ze_result_t kernelGetBinaryExp(ze_kernel_handle_t hKernel, size_t* pSize, uint8_t* pKernelBinary) {
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  // The code of one kernel alone is no loadable unit: the answer is its module's binary.
  return moduleGetNativeBinary(toHandle<ze_module_handle_t>(kernel->module.get()), pSize, pKernelBinary);
}

}  // namespace zefuse::cuda
