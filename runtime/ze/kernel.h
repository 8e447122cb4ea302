// A kernel handle. Level Zero keeps arguments and group size as its state: one thread at a time, so
// each call in flight has handles of its own. Must be destroyed before its module.
#pragma once

#include "runtime/ze/module.h"

namespace zefuse::ze {

class Kernel {
public:
  static Result<Kernel> create(const Module& module, const char* name);

  uint32_t argumentCount() const { return argument_count_; }
  Status setGroupSize(uint32_t x, uint32_t y, uint32_t z);
  // Copies `size` bytes from `value`.
  Status setArgument(uint32_t index, size_t size, const void* value) {
    ZEFUSE_ZE(module_->context().api(), module_->context().device().name, zeKernelSetArgumentValue, handle_.get(),
              index, size, value);
    return {};
  }
  ze_kernel_handle_t handle() const { return handle_.get(); }

private:
  const Module* module_ = nullptr;
  Owned<ze_kernel_handle_t, &Api::zeKernelDestroy> handle_;
  uint32_t argument_count_ = 0;
};

}  // namespace zefuse::ze
