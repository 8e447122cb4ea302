// Code on a device. Thread-safe: kernels may be created from it by any thread. Must be destroyed
// before its context.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/ze/context.h"

namespace zefuse::ze {

class Module {
public:
  // `label` names the module in errors. A failed build's message carries the driver's build log.
  // `flags`: build flags of the driver's.
  static Result<Module> fromSpirv(const Context& context, std::span<const uint32_t> words, const std::string& label,
                                  const std::string& flags = {});
  // `damaged` when the driver refuses the binary: make it again from SPIR-V.
  static Result<Module> fromNative(const Context& context, std::span<const std::byte> native, const std::string& label);

  Result<std::vector<std::byte>> nativeBinary() const;

  const Context& context() const { return *context_; }
  ze_module_handle_t handle() const { return handle_.get(); }

private:
  static Result<Module> create(const Context& context, ze_module_format_t format, std::span<const std::byte> bytes,
                               const std::string& label, const std::string& flags);
  const Context* context_ = nullptr;
  Owned<ze_module_handle_t, &Api::zeModuleDestroy> handle_;
};

}  // namespace zefuse::ze
