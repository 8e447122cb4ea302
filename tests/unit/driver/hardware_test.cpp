// What only a real GPU can show, and tests of the CPU's driver cannot: kernels that do not end for a while, a kernel
// that leaves its memory, a device whose memory is used up. Skipped elsewhere. Each test needs a process of its own,
// since one of them loses the device.
#include <chrono>
#include <cstring>

#include "tests/unit/driver/ze_test.h"

namespace zefuse::test {
namespace {

constexpr uint64_t kMillisecond = 1000000;
constexpr uint64_t kRounds = uint64_t(1) << 25;  // of a kernel that waits: half a minute at the most, if a test fails

class Hardware : public ZeTest {
protected:
  void SetUp() override {
    ZeTest::SetUp();
    ze_device_properties_t properties{};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    ZE_OK(zeDeviceGetProperties(device, &properties));
    if (properties.vendorId != 0x10de && properties.vendorId != 0x8086)
      GTEST_SKIP() << "this device is no GPU";
  }
  ze_result_t launch(ze_command_list_handle_t list, ze_kernel_handle_t kernel, ze_event_handle_t signal = nullptr) {
    const ze_group_count_t one{1, 1, 1};
    return zeCommandListAppendLaunchKernel(list, kernel, &one, signal, 0, nullptr);
  }
  void* hostMemory(size_t bytes) {
    ze_host_mem_alloc_desc_t desc{};
    desc.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC;
    void* memory = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemAllocHost(context, &desc, bytes, 64, &memory));
    std::memset(memory, 0, bytes);
    return memory;
  }
};

// Every wait comes back when its time is up; what was queued goes on, and is right at the end.
TEST_F(Hardware, WaitsForAKernelThatDoesNotEndComeBack) {
  auto* flag = static_cast<int*>(hostMemory(64));
  auto* seen = static_cast<int*>(hostMemory(64));
  ze_kernel_handle_t k = kernel(module("hardware.spv"), "await_flag");
  setPointer(k, 0, flag);
  setPointer(k, 1, seen);
  ASSERT_EQ(ZE_RESULT_SUCCESS, setValue(k, 2, kRounds));
  ze_event_handle_t done = event();
  ze_command_list_handle_t list = regularList();
  ZE_OK(launch(list, k, done));
  ZE_OK(zeCommandListClose(list));
  ze_command_queue_handle_t q = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  ze_fence_handle_t f = fence(q);
  const auto start = std::chrono::steady_clock::now();
  ZE_OK(zeCommandQueueExecuteCommandLists(q, 1, &list, f));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventHostSynchronize(done, 200 * kMillisecond));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeFenceHostSynchronize(f, 200 * kMillisecond));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeCommandQueueSynchronize(q, 200 * kMillisecond));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(done));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
  ZE_OK(zeFenceHostSynchronize(f, UINT64_MAX));
  ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  EXPECT_EQ(*seen, 1);
  ZE_OK(zeMemFree(context, flag));
  ZE_OK(zeMemFree(context, seen));
}

// Another queue's work is not held up by it.
TEST_F(Hardware, AnotherQueueReleasesAKernelThatWaits) {
  auto* flag = static_cast<int*>(hostMemory(64));
  auto* seen = static_cast<int*>(hostMemory(64));
  const int one = 1;
  ze_kernel_handle_t k = kernel(module("hardware.spv"), "await_flag");
  setPointer(k, 0, flag);
  setPointer(k, 1, seen);
  ASSERT_EQ(ZE_RESULT_SUCCESS, setValue(k, 2, kRounds));
  ze_event_handle_t done = event();
  ZE_OK(launch(immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS), k, done));
  ZE_OK(zeCommandListAppendMemoryFill(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), flag, &one, sizeof one,
                                      sizeof one, nullptr, 0, nullptr));
  ZE_OK(zeEventHostSynchronize(done, 60000 * kMillisecond));
  EXPECT_EQ(*seen, 1);
  ZE_OK(zeMemFree(context, flag));
  ZE_OK(zeMemFree(context, seen));
}

TEST_F(Hardware, OutOfMemoryIsAnErrorAndFreedMemoryIsThereAgain) {
  ze_device_mem_alloc_desc_t desc{};
  desc.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC;
  constexpr size_t kPart = size_t(1) << 30;
  constexpr size_t kMost = 1024;  // GiB: no device has so much
  auto fill = [&] {
    std::vector<void*> parts;
    ze_result_t result = ZE_RESULT_SUCCESS;
    while (parts.size() < kMost) {
      void* memory = nullptr;
      result = zeMemAllocDevice(context, &desc, kPart, 64, device, &memory);
      if (result != ZE_RESULT_SUCCESS)
        break;
      parts.push_back(memory);
    }
    EXPECT_EQ(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, result);
    for (void* memory : parts)
      EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemFree(context, memory));
    return parts.size();
  };
  const size_t first = fill();
  EXPECT_GT(first, 0u);
  EXPECT_EQ(fill(), first);
}

// The error says so, all later calls at once as well, and nothing hangs: the process can end.
TEST_F(Hardware, AKernelOutsideItsMemoryLosesTheDevice) {
  ze_kernel_handle_t k = kernel(module("hardware.spv"), "write_at");
  ASSERT_EQ(ZE_RESULT_SUCCESS, setValue(k, 0, uint64_t(64)));
  ze_event_handle_t done = event(), other = event();
  ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  const auto start = std::chrono::steady_clock::now();
  ze_result_t result = launch(list, k, done);
  if (result == ZE_RESULT_SUCCESS)
    result = zeEventHostSynchronize(done, 10000 * kMillisecond);
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, result);
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, launch(list, k));
  EXPECT_EQ(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(other, 10000 * kMillisecond));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

}  // namespace
}  // namespace zefuse::test
