// Helpers of the API tests. They call Level Zero through whatever loader and driver the process has (ctest names ours),
// so they can be run against any driver.
#pragma once

#include <gtest/gtest.h>
#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#define ZE_OK(call) ASSERT_EQ(ZE_RESULT_SUCCESS, (call))

namespace zefuse::test {

enum class ListKind { synchronous, asynchronous, default_mode, regular };
std::string nameOf(ListKind kind);

// One driver, one device; a context per test. What a test creates with these helpers is destroyed at its end, unless
// the test did so itself (forget).
class ZeTest : public ::testing::Test {
protected:
  void SetUp() override;
  void TearDown() override;

  ze_driver_handle_t driver = nullptr;
  ze_device_handle_t device = nullptr;
  ze_context_handle_t context = nullptr;

  template <typename T = std::byte> T* allocate(size_t count) {
    return static_cast<T*>(allocateBytes(count * sizeof(T)));
  }
  ze_event_pool_handle_t pool(uint32_t count, ze_event_pool_flags_t flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
  ze_event_handle_t event(ze_event_pool_handle_t pool, uint32_t index = 0);
  ze_event_handle_t event() { return event(pool(1)); }
  // `ordinal`: of the queue group.
  ze_command_queue_handle_t queue(ze_command_queue_mode_t mode, uint32_t ordinal = 0);
  ze_fence_handle_t fence(ze_command_queue_handle_t queue, ze_fence_flags_t flags = 0);
  ze_command_list_handle_t regularList(uint32_t ordinal = 0);
  ze_command_list_handle_t immediateList(ze_command_queue_mode_t mode, uint32_t ordinal = 0);
  ze_module_handle_t module(const char* spirv_file = "basic.spv");
  ze_kernel_handle_t kernel(ze_module_handle_t module, const char* name, uint32_t x = 1, uint32_t y = 1,
                            uint32_t z = 1);

private:
  void* allocateBytes(size_t bytes);
  std::vector<void*> memory_;
  std::vector<ze_event_pool_handle_t> pools_;
  std::vector<ze_event_handle_t> events_;
  std::vector<ze_command_queue_handle_t> queues_;
  std::vector<ze_fence_handle_t> fences_;
  std::vector<ze_command_list_handle_t> lists_;
  std::vector<ze_module_handle_t> modules_;
  std::vector<ze_kernel_handle_t> kernels_;
};

// ZE_ENABLE_LOADER_INTERCEPT: the loader's own objects stand for the driver's handles. Loader 1.8.12 then follows any
// handle it is given, and forgets to wrap the build log of a failed build: tests of these skip.
bool loaderWrapsHandles();

// Creates a module, or says with which log it failed ("" when the log cannot be read, see above).
struct ModuleResult {
  ze_result_t result;
  ze_module_handle_t module;
  std::string log;
};
ModuleResult createModule(ze_context_handle_t context, ze_device_handle_t device, ze_module_format_t format,
                          const std::vector<uint8_t>& bytes, const char* flags = nullptr,
                          const ze_module_constants_t* constants = nullptr);
std::vector<uint8_t> readKernelFile(const char* name);
std::vector<uint8_t> nativeBinary(ze_module_handle_t module);

void setPointer(ze_kernel_handle_t kernel, uint32_t index, const void* pointer);
template <typename T> ze_result_t setValue(ze_kernel_handle_t kernel, uint32_t index, const T& value) {
  return zeKernelSetArgumentValue(kernel, index, sizeof value, &value);
}

// Tests that must hold for every way of running a command.
template <typename Base> class OnEveryList : public Base, public ::testing::WithParamInterface<ListKind> {
protected:
  void SetUp() override {
    Base::SetUp();
    if (this->IsSkipped())
      return;
    switch (this->GetParam()) {
    case ListKind::synchronous: list = this->immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS); break;
    case ListKind::asynchronous: list = this->immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS); break;
    case ListKind::default_mode: list = this->immediateList(ZE_COMMAND_QUEUE_MODE_DEFAULT); break;
    case ListKind::regular:
      list = this->regularList();
      queue_ = this->queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
      break;
    }
    done_ = this->event();
  }
  // Where to append. finish() runs what was appended so far and waits for it; then more can be appended.
  ze_command_list_handle_t list = nullptr;
  void finish() {
    ZE_OK(zeCommandListAppendSignalEvent(list, done_));
    if (this->GetParam() == ListKind::regular) {
      ZE_OK(zeCommandListClose(list));
      ZE_OK(zeCommandQueueExecuteCommandLists(queue_, 1, &list, nullptr));
      ZE_OK(zeCommandQueueSynchronize(queue_, UINT64_MAX));
      ZE_OK(zeCommandListReset(list));
    }
    ZE_OK(zeEventHostSynchronize(done_, UINT64_MAX));
    ZE_OK(zeEventHostReset(done_));
  }

private:
  ze_command_queue_handle_t queue_ = nullptr;
  ze_event_handle_t done_ = nullptr;
};
class EveryList : public OnEveryList<ZeTest> {};

}  // namespace zefuse::test
