// What the tests of the driver over CUDA share: its entries through the system's loader, and what the tests' own
// libcuda (fake_cuda.cpp) tells.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <level_zero/ze_api.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace zefuse::test {

// In a fixture's tests and its members: what the driver says is the first that one wants to read.
#define ZE_OK(call) ASSERT_EQ(ZE_RESULT_SUCCESS, (call)) << lastError()

template <typename F> F fake(const char* name) {
  static void* library = dlopen(ZEFUSE_FAKE_CUDA, RTLD_NOW);
  return reinterpret_cast<F>(dlsym(library, name));
}
inline std::string happened() { return fake<const char* (*)()>("fake_cuda_log")(); }
inline int alive(const char* kind) { return fake<int (*)(const char*)>("fake_cuda_alive")(kind); }

class CudaDriver : public ::testing::Test {
protected:
  void SetUp() override {
    ZE_OK(zeInit(0));
    uint32_t count = 1;
    ZE_OK(zeDriverGet(&count, &driver));
    count = 1;
    ZE_OK(zeDeviceGet(driver, &count, &device));
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    ZE_OK(zeContextCreate(driver, &desc, &context));
    uint64_t host, clock;
    ZE_OK(zeDeviceGetGlobalTimestamps(device, &host, &clock));  // opens the device
    fake<void (*)()>("fake_cuda_clear")();
  }
  void TearDown() override { zeContextDestroy(context); }

  // Of the calling thread's last refused call.
  std::string lastError() {
    if (!driver)
      return "there is no driver";
    void* address = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS,
              zeDriverGetExtensionFunctionAddress(driver, "zeDriverGetLastErrorDescription", &address));
    const char* text = "";
    reinterpret_cast<ze_result_t (*)(ze_driver_handle_t, const char**)>(address)(driver, &text);
    return text;
  }
  template <typename F> void find(F& function, const char* name) {
    void* address = nullptr;
    ZE_OK(zeDriverGetExtensionFunctionAddress(driver, name, &address));
    function = reinterpret_cast<F>(address);
  }
  ze_module_handle_t module(const char* spirv = ZEFUSE_TEST_KERNEL) {
    std::ifstream file(spirv, std::ios::binary);
    const std::vector<uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
    ze_module_desc_t desc = {};
    desc.stype = ZE_STRUCTURE_TYPE_MODULE_DESC;
    desc.format = ZE_MODULE_FORMAT_IL_SPIRV;
    desc.inputSize = bytes.size();
    desc.pInputModule = bytes.data();
    ze_module_handle_t made = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleCreate(context, device, &desc, &made, nullptr)) << lastError();
    return made;
  }
  ze_kernel_handle_t kernel(ze_module_handle_t module, const char* name, uint32_t items) {
    ze_kernel_desc_t desc = {ZE_STRUCTURE_TYPE_KERNEL_DESC, nullptr, 0, name};
    ze_kernel_handle_t made = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelCreate(module, &desc, &made)) << lastError();
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelSetGroupSize(made, items, 1, 1));
    return made;
  }
  ze_command_list_handle_t immediate() {
    ze_command_queue_desc_t desc = {};
    desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    ze_command_list_handle_t made = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListCreateImmediate(context, device, &desc, &made));
    return made;
  }
  ze_result_t synchronize(ze_command_list_handle_t list, uint64_t timeout) {
    void* address = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeDriverGetExtensionFunctionAddress(driver, "zeCommandListHostSynchronize", &address));
    return reinterpret_cast<ze_result_t (*)(ze_command_list_handle_t, uint64_t)>(address)(list, timeout);
  }
  float* memory(size_t bytes) {
    ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
    void* made = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemAllocDevice(context, &desc, bytes, 0, device, &made));
    return static_cast<float*>(made);
  }
  float* hostMemory(size_t elements) {
    ze_host_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
    void* made = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemAllocHost(context, &desc, elements * sizeof(float), 0, &made));
    return static_cast<float*>(made);
  }
  void launch(ze_command_list_handle_t list, ze_kernel_handle_t kernel, uint32_t groups,
              ze_event_handle_t signal = nullptr, ze_event_handle_t wait = nullptr) {
    ze_group_count_t count = {groups, 1, 1};
    ZE_OK(zeCommandListAppendLaunchKernel(list, kernel, &count, signal, wait ? 1 : 0, wait ? &wait : nullptr));
  }

  // A launch of one group on a queue, with its fence, and the event that it signals.
  struct Executed {
    ze_command_queue_handle_t queue = nullptr;
    ze_command_list_handle_t list = nullptr;
    ze_fence_handle_t fence = nullptr;
    ze_event_pool_handle_t pool = nullptr;
    ze_event_handle_t done = nullptr;
  };
  Executed execute(ze_kernel_handle_t kernel) {
    Executed made;
    auto run = [&] {
      ze_command_queue_desc_t queue_desc = {};
      queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
      queue_desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
      ZE_OK(zeCommandQueueCreate(context, device, &queue_desc, &made.queue));
      ze_fence_desc_t fence_desc = {ZE_STRUCTURE_TYPE_FENCE_DESC, nullptr, 0};
      ZE_OK(zeFenceCreate(made.queue, &fence_desc, &made.fence));
      ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
      ZE_OK(zeEventPoolCreate(context, &pool_desc, 0, nullptr, &made.pool));
      ze_event_desc_t event_desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
      ZE_OK(zeEventCreate(made.pool, &event_desc, &made.done));
      ze_command_list_desc_t list_desc = {ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, nullptr, 0, 0};
      ZE_OK(zeCommandListCreate(context, device, &list_desc, &made.list));
      launch(made.list, kernel, 1, made.done);
      ZE_OK(zeCommandListClose(made.list));
      ZE_OK(zeCommandQueueExecuteCommandLists(made.queue, 1, &made.list, made.fence));
    };
    run();
    return made;
  }
  void destroy(const Executed& executed) {
    ZE_OK(zeCommandListDestroy(executed.list));
    ZE_OK(zeFenceDestroy(executed.fence));
    ZE_OK(zeCommandQueueDestroy(executed.queue));
    ZE_OK(zeEventDestroy(executed.done));
    ZE_OK(zeEventPoolDestroy(executed.pool));
  }

  ze_driver_handle_t driver = nullptr;
  ze_device_handle_t device = nullptr;
  ze_context_handle_t context = nullptr;
};

}  // namespace zefuse::test
