// One Level Zero implementation's functions: the system's loader, or one of our drivers without any loader.
//
// An Api lives until the process ends (its library is never closed: kernels and torch's threads may
// outlive any scope), so handles keep a plain pointer to it.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>

#include "common/base/status.h"
#include "common/ze_extension/convolution.h"
#include "common/ze_extension/product.h"
#include "common/ze_extension/stream.h"

namespace zefuse::ze {

// table of ze_ddi.h, member, flat name. Only what the shim calls.
#define ZEFUSE_ZE_FUNCTIONS(X)                                                                                         \
  X(Global, Init, zeInit)                                                                                              \
  X(Driver, Get, zeDriverGet)                                                                                          \
  X(Driver, GetProperties, zeDriverGetProperties)                                                                      \
  X(Driver, GetExtensionProperties, zeDriverGetExtensionProperties)                                                    \
  X(Driver, GetExtensionFunctionAddress, zeDriverGetExtensionFunctionAddress)                                          \
  X(Device, Get, zeDeviceGet)                                                                                          \
  X(Device, GetProperties, zeDeviceGetProperties)                                                                      \
  X(Device, GetComputeProperties, zeDeviceGetComputeProperties)                                                        \
  X(Device, GetModuleProperties, zeDeviceGetModuleProperties)                                                          \
  X(Device, GetMemoryProperties, zeDeviceGetMemoryProperties)                                                          \
  X(Device, GetMemoryAccessProperties, zeDeviceGetMemoryAccessProperties)                                              \
  X(Device, GetCommandQueueGroupProperties, zeDeviceGetCommandQueueGroupProperties)                                    \
  X(Context, Create, zeContextCreate)                                                                                  \
  X(Context, Destroy, zeContextDestroy)                                                                                \
  X(CommandQueue, Create, zeCommandQueueCreate)                                                                        \
  X(CommandQueue, Destroy, zeCommandQueueDestroy)                                                                      \
  X(CommandQueue, ExecuteCommandLists, zeCommandQueueExecuteCommandLists)                                              \
  X(CommandQueue, Synchronize, zeCommandQueueSynchronize)                                                              \
  X(CommandList, Create, zeCommandListCreate)                                                                          \
  X(CommandList, Close, zeCommandListClose)                                                                            \
  X(CommandList, CreateImmediate, zeCommandListCreateImmediate)                                                        \
  X(CommandList, Destroy, zeCommandListDestroy)                                                                        \
  X(CommandList, AppendLaunchKernel, zeCommandListAppendLaunchKernel)                                                  \
  X(CommandList, AppendMemoryCopy, zeCommandListAppendMemoryCopy)                                                      \
  X(CommandList, AppendMemoryFill, zeCommandListAppendMemoryFill)                                                      \
  X(CommandList, AppendBarrier, zeCommandListAppendBarrier)                                                            \
  X(EventPool, Create, zeEventPoolCreate)                                                                              \
  X(EventPool, Destroy, zeEventPoolDestroy)                                                                            \
  X(Event, Create, zeEventCreate)                                                                                      \
  X(Event, Destroy, zeEventDestroy)                                                                                    \
  X(Event, HostSynchronize, zeEventHostSynchronize)                                                                    \
  X(Event, HostReset, zeEventHostReset)                                                                                \
  X(Event, QueryStatus, zeEventQueryStatus)                                                                            \
  X(Module, Create, zeModuleCreate)                                                                                    \
  X(Module, Destroy, zeModuleDestroy)                                                                                  \
  X(Module, GetNativeBinary, zeModuleGetNativeBinary)                                                                  \
  X(ModuleBuildLog, Destroy, zeModuleBuildLogDestroy)                                                                  \
  X(ModuleBuildLog, GetString, zeModuleBuildLogGetString)                                                              \
  X(Kernel, Create, zeKernelCreate)                                                                                    \
  X(Kernel, Destroy, zeKernelDestroy)                                                                                  \
  X(Kernel, SetArgumentValue, zeKernelSetArgumentValue)                                                                \
  X(Kernel, SetGroupSize, zeKernelSetGroupSize)                                                                        \
  X(Kernel, GetProperties, zeKernelGetProperties)                                                                      \
  X(Mem, AllocHost, zeMemAllocHost)                                                                                    \
  X(Mem, AllocDevice, zeMemAllocDevice)                                                                                \
  X(Mem, AllocShared, zeMemAllocShared)                                                                                \
  X(Mem, Free, zeMemFree)

struct Api {
#define ZEFUSE_ZE_MEMBER(table, member, name) decltype(&::name) name = nullptr;
  ZEFUSE_ZE_FUNCTIONS(ZEFUSE_ZE_MEMBER)
#undef ZEFUSE_ZE_MEMBER
  std::string library;  // path or name it was loaded from, for messages
  // Of our own driver: why the calling thread's last failing call failed. The loader's table has it from 1.6 on only.
  ze_driver_handle_t described = nullptr;
  ze_result_t(ZE_APICALL* describeLastError)(ze_driver_handle_t, const char**) = nullptr;
  // Of our driver over CUDA: products by a library. All or none.
  ze_extension::ProductCreate productCreate = nullptr;
  ze_extension::ProductDestroy productDestroy = nullptr;
  ze_extension::AppendProduct appendProduct = nullptr;
  ze_extension::ProductLibrary productLibrary = nullptr;
  // Likewise convolutions.
  ze_extension::ConvolutionCreate convolutionCreate = nullptr;
  ze_extension::ConvolutionDestroy convolutionDestroy = nullptr;
  ze_extension::AppendConvolution appendConvolution = nullptr;
  ze_extension::ConvolutionLibrary convolutionLibrary = nullptr;
  ze_extension::DeviceOrdinal deviceOrdinal = nullptr;  // of our driver over CUDA
  ze_extension::StreamIsCapturing streamIsCapturing = nullptr;
  // Of Level Zero 1.9, and of drivers that say so (Driver::appendsLists): closed lists on an immediate one.
  ze_result_t(ZE_APICALL* immediateAppendLists)(ze_command_list_handle_t, uint32_t, ze_command_list_handle_t*,
                                                ze_event_handle_t, uint32_t, ze_event_handle_t*) = nullptr;
};

// Our driver for the CPU, bound through its DDI getters and initialised once per process. Thread-safe.
Result<const Api*> cpuApi();

// Our driver over CUDA (docs/cuda_driver.md), likewise; it stands beside the library that has this code. An error, with
// the driver's reason, where NVIDIA's driver is missing or has no device for us. Thread-safe.
Result<const Api*> cudaApi();

// The system's libze_loader.so.1, initialised once per process. not_found without a loader;
// deadline or device when its zeInit hangs, crashes or fails (tried in a process of its own first: a
// broken driver must not take this one along).
Result<const Api*> loaderApi();

// What loaderApi does first: loads `name` and calls its zeInit in another program. ok when that returned success.
Status tryLoader(const std::string& name, std::chrono::milliseconds limit);

// For tests: load a driver library from exactly this path, without the process-wide cache. `what` is for messages.
Result<const Api*> loadDriver(const std::string& path, const std::string& what = "the CPU driver");

const char* resultName(ze_result_t result);
bool traceEnabled();  // ZEFUSE_ZE_TRACE=1, read once
void traceCall(const Api& api, const char* call, ze_result_t result);
// "CALL failed with RESULT (code) on device 'name' (library)"
std::string failedCall(const Api& api, const char* call, ze_result_t result, const std::string& device);
Status callError(const Api& api, const char* call, ze_result_t result, const std::string& device,
                 std::source_location place = std::source_location::current());

// Every ze call goes through here: traced, and a failure returns a Status with call, code and
// device.
#define ZEFUSE_ZE(api, device, name, ...)                                                                              \
  do {                                                                                                                 \
    const ze_result_t result_ = (api).name(__VA_ARGS__);                                                               \
    if (::zefuse::ze::traceEnabled()) [[unlikely]]                                                                     \
      ::zefuse::ze::traceCall(api, #name, result_);                                                                    \
    if (result_ != ZE_RESULT_SUCCESS) [[unlikely]]                                                                     \
      return ::zefuse::ze::callError(api, #name, result_, device);                                                     \
  } while (false)

// A zeroed descriptor or properties struct with the stype of its type.
template <typename T> constexpr ze_structure_type_t structureType();
#define ZEFUSE_ZE_STYPE(type, value)                                                                                   \
  template <> constexpr ze_structure_type_t structureType<type>() { return value; }
ZEFUSE_ZE_STYPE(ze_driver_properties_t, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES)
ZEFUSE_ZE_STYPE(ze_device_properties_t, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES)
ZEFUSE_ZE_STYPE(ze_device_compute_properties_t, ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES)
ZEFUSE_ZE_STYPE(ze_device_module_properties_t, ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES)
ZEFUSE_ZE_STYPE(ze_device_memory_properties_t, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES)
ZEFUSE_ZE_STYPE(ze_device_memory_access_properties_t, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES)
ZEFUSE_ZE_STYPE(ze_command_queue_group_properties_t, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES)
ZEFUSE_ZE_STYPE(ze_context_desc_t, ZE_STRUCTURE_TYPE_CONTEXT_DESC)
ZEFUSE_ZE_STYPE(ze_command_queue_desc_t, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC)
ZEFUSE_ZE_STYPE(ze_command_list_desc_t, ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC)
ZEFUSE_ZE_STYPE(ze_event_pool_desc_t, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC)
ZEFUSE_ZE_STYPE(ze_event_desc_t, ZE_STRUCTURE_TYPE_EVENT_DESC)
ZEFUSE_ZE_STYPE(ze_module_desc_t, ZE_STRUCTURE_TYPE_MODULE_DESC)
ZEFUSE_ZE_STYPE(ze_kernel_desc_t, ZE_STRUCTURE_TYPE_KERNEL_DESC)
ZEFUSE_ZE_STYPE(ze_kernel_properties_t, ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES)
ZEFUSE_ZE_STYPE(ze_device_mem_alloc_desc_t, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC)
ZEFUSE_ZE_STYPE(ze_host_mem_alloc_desc_t, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC)
#undef ZEFUSE_ZE_STYPE

template <typename T> T make() {
  T value{};
  value.stype = structureType<T>();
  return value;
}

// The name of a function by its member, for traces.
template <auto Member> constexpr const char* functionName();
#define ZEFUSE_ZE_NAME(table, member, name)                                                                            \
  template <> constexpr const char* functionName<&Api::name>() { return #name; }
ZEFUSE_ZE_FUNCTIONS(ZEFUSE_ZE_NAME)
#undef ZEFUSE_ZE_NAME
template <> constexpr const char* functionName<&Api::productDestroy>() { return ze_extension::product_destroy_name; }
template <> constexpr const char* functionName<&Api::convolutionDestroy>() {
  return ze_extension::convolution_destroy_name;
}

// Owns one handle; Destroy names the Api member that frees it. Move-only.
template <typename Handle, auto Destroy> class Owned {
public:
  Owned() = default;
  Owned(const Api* api, Handle handle) : api_(api), handle_(handle) {}
  Owned(Owned&& other) noexcept : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (!handle_)
      return;
    const ze_result_t result = (api_->*Destroy)(handle_);  // nobody could handle its failure here
    if (traceEnabled())
      traceCall(*api_, functionName<Destroy>(), result);
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

private:
  const Api* api_ = nullptr;
  Handle handle_ = nullptr;
};

}  // namespace zefuse::ze
