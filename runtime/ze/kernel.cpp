#include "runtime/ze/kernel.h"

namespace zefuse::ze {

Result<Kernel> Kernel::create(const Module& module, const char* name) {
  const Context& context = module.context();
  auto desc = make<ze_kernel_desc_t>();
  desc.pKernelName = name;
  ze_kernel_handle_t handle = nullptr;
  ZEFUSE_ZE(context.api(), context.device().name, zeKernelCreate, module.handle(), &desc, &handle);
  Kernel kernel;
  kernel.module_ = &module;
  kernel.handle_ = {&context.api(), handle};
  auto properties = make<ze_kernel_properties_t>();
  ZEFUSE_ZE(context.api(), context.device().name, zeKernelGetProperties, handle, &properties);
  kernel.argument_count_ = properties.numKernelArgs;
  return kernel;
}

Status Kernel::setGroupSize(uint32_t x, uint32_t y, uint32_t z) {
  ZEFUSE_ZE(module_->context().api(), module_->context().device().name, zeKernelSetGroupSize, handle(), x, y, z);
  return {};
}

}  // namespace zefuse::ze
