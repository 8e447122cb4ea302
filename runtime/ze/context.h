// A context: owner of modules, lists, events and USM of one device's driver. Thread-safe.
#pragma once

#include "runtime/ze/device.h"

namespace zefuse::ze {

class Context {
public:
  // Of SYCL's device it is SYCL's own context, which is not destroyed with this.
  static Result<Context> create(const Device& device);
  // Of the device that Device::find finds.
  static Result<Context> of(const std::string& device);
  // One of somebody else's, whose driver is the device's, which outlives this.
  static Context adopt(const Device& device, ze_context_handle_t handle);

  const Api& api() const { return *device_.api; }
  const Device& device() const { return device_; }
  ze_context_handle_t handle() const { return adopted_ ? adopted_ : handle_.get(); }

private:
  Device device_;
  ze_context_handle_t adopted_ = nullptr;
  Owned<ze_context_handle_t, &Api::zeContextDestroy> handle_;
};

// Whether the application records what comes into its stream (CUDA's stream capture) instead of running it.
bool isCapturing(const Context& context, void* stream);

// What a call that waits has returned: `deadline` where it was not ready within the time, "`what` within N ms".
Status waited(const Context& context, const char* call, ze_result_t result, const char* what, uint64_t nanoseconds);

}  // namespace zefuse::ze
