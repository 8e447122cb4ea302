// Commands that fail while they run: who is told, and what else does not run.
#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "tests/unit/driver/ze_test.h"
#include "tests/unit/little_memory.h"

namespace zefuse::test {
namespace {

constexpr uint64_t kForever = UINT64_MAX;
constexpr uint32_t kItems = 1024;

// What the driver says of this thread's last refusal.
std::string lastError(ze_driver_handle_t driver) {
  void* address = nullptr;
  if (loaderWrapsHandles() ||
      zeDriverGetExtensionFunctionAddress(driver, "zeDriverGetLastErrorDescription", &address) != ZE_RESULT_SUCCESS)
    return {};
  const char* text = nullptr;
  reinterpret_cast<ze_result_t (*)(ze_driver_handle_t, const char**)>(address)(driver, &text);
  return text;
}

class Failures : public ZeTest {
protected:
  void SetUp() override {
    ZeTest::SetUp();
    values = allocate<int>(2 * kItems);
    std::fill_n(values, 2 * kItems, 0);
  }
  // Fails at every run: more groups than can be counted, which shows only when the buffer is read.
  ze_result_t appendFailing(ze_command_list_handle_t list, ze_event_handle_t signal = nullptr) {
    ze_kernel_handle_t k = kernel(module(), "increment");
    setPointer(k, 0, values);
    auto* groups = allocate<ze_group_count_t>(1);
    *groups = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    return zeCommandListAppendLaunchKernelIndirect(list, k, groups, signal, 0, nullptr);
  }
  // values[0] = 7
  ze_result_t appendCopy(ze_command_list_handle_t list, uint32_t waits = 0, ze_event_handle_t* events = nullptr,
                         ze_event_handle_t signal = nullptr) {
    values[1] = 7;
    return zeCommandListAppendMemoryCopy(list, values, values + 1, sizeof(int), signal, waits, events);
  }
  int* values = nullptr;
};

#ifndef ZEFUSE_SANITIZED  // whose allocators end the process when there is no memory

TEST_F(Failures, AGroupWithoutMemoryForItsBarriersFailsTheLaunch) {
  auto m = module("keep.spv");
  ze_kernel_handle_t k = kernel(m, "keep_much", kItems);
  setPointer(k, 0, values);
  const ze_group_count_t one = {1, 1, 1};
  for (ze_command_queue_mode_t mode :
       {ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_DEFAULT}) {
    auto list = immediateList(mode);
    std::fill_n(values, kItems, 0);
    auto done = event();
    // On a thread of its own: memory that a thread once had it keeps.
    std::async(std::launch::async, [&] {
      const LittleMemory little;
      ze_result_t result = zeCommandListAppendLaunchKernel(list, k, &one, done, 0, nullptr);
      if (result == ZE_RESULT_SUCCESS)
        result = zeEventHostSynchronize(done, kForever);
      EXPECT_EQ(result, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY) << "mode " << mode;
      if (const std::string text = lastError(driver); !loaderWrapsHandles()) {
        EXPECT_NE(text.find("'keep_much'"), std::string::npos) << text;
        EXPECT_NE(text.find("5033"), std::string::npos) << text;  // 48 MiB and a little
      }
    }).get();
    EXPECT_EQ(values[5], 0);
    ZE_OK(zeEventHostReset(done));
    ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, done, 0, nullptr)) << "there is memory again";
    ZE_OK(zeEventHostSynchronize(done, kForever));
    EXPECT_EQ(values[5], 5);
  }
}

#endif

TEST_F(Failures, OfAnAsynchronousListAreToldAtItsEventAndHoldUpWhatWasAppended) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto p = pool(3);
  auto go = event(p, 0), failed = event(p, 1), after = event(p, 2);
  ZE_OK(zeCommandListAppendWaitOnEvents(list, 1, &go));
  ZE_OK(appendFailing(list, failed));
  ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
  ZE_OK(appendCopy(list, 0, nullptr, after));
  ZE_OK(zeEventHostSignal(go));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, zeEventHostSynchronize(after, kForever));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, zeEventQueryStatus(failed));
  EXPECT_EQ(values[0], 0) << "what comes after a failure must not run";
  ZE_OK(zeEventHostReset(after));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(after));
  ZE_OK(appendCopy(list, 0, nullptr, after)) << "appended by who was told: runs";
  ZE_OK(zeEventHostSynchronize(after, kForever));
  EXPECT_EQ(values[0], 7);
}

TEST_F(Failures, OfOneListReachTheListThatWaitsForIt) {
  auto p = pool(2);
  for (ze_command_queue_mode_t mode :
       {ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_DEFAULT}) {
    values[0] = 0;
    auto first = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS), second = immediateList(mode);
    auto failed = event(p, 0), copied = event(p, 1);
    ZE_OK(appendFailing(first, failed));
    ze_result_t result = appendCopy(second, 1, &failed, copied);
    if (mode == ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS)
      ZE_OK(result);
    if (result == ZE_RESULT_SUCCESS)
      result = zeEventHostSynchronize(copied, kForever);
    EXPECT_EQ(result, ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION) << "mode " << mode;
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, zeEventQueryStatus(copied));
    EXPECT_EQ(values[0], 0);
    ZE_OK(zeEventHostSignal(copied)) << "the host may signal it all the same";
    ZE_OK(zeEventQueryStatus(copied));
  }
}

TEST_F(Failures, OfAQueueAreToldAtItsFenceAndAtTheQueue) {
  for (ze_command_queue_mode_t mode :
       {ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_DEFAULT}) {
    values[0] = 0;
    auto q = queue(mode);
    auto f = fence(q);
    auto list = regularList(), second = regularList();
    ZE_OK(appendFailing(list));
    ZE_OK(appendCopy(list));
    ZE_OK(zeCommandListClose(list));
    ZE_OK(appendCopy(second));
    ZE_OK(zeCommandListClose(second));
    ze_command_list_handle_t both[] = {list, second};
    const ze_result_t result = zeCommandQueueExecuteCommandLists(q, 2, both, f);
    if (mode == ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS)
      ZE_OK(result);
    else
      EXPECT_EQ(result, ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION);
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, zeFenceHostSynchronize(f, kForever));
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, zeFenceQueryStatus(f));
    EXPECT_EQ(zeCommandQueueSynchronize(q, kForever), mode == ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS
                                                          ? ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION
                                                          : ZE_RESULT_SUCCESS)
        << "a failure that the call itself returned is told";
    EXPECT_EQ(values[0], 0);
    ZE_OK(zeFenceReset(f));
    ZE_OK(zeCommandQueueExecuteCommandLists(q, 1, &second, f));
    ZE_OK(zeFenceHostSynchronize(f, kForever));
    ZE_OK(zeCommandQueueSynchronize(q, kForever));
    EXPECT_EQ(values[0], 7);
  }
}

TEST_F(Failures, OfAnAdaptiveListHoldUpWhatComesUntilTheyAreTold) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_DEFAULT);
  auto p = pool(3);
  auto go = event(p, 0), failed = event(p, 1), after = event(p, 2);
  ZE_OK(zeCommandListAppendWaitOnEvents(list, 1, &go));  // so that the next goes to the worker
  ZE_OK(appendFailing(list, failed));
  ZE_OK(zeEventHostSignal(go));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the worker is idle, and nobody was told
  ZE_OK(appendCopy(list, 0, nullptr, after));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION, zeEventHostSynchronize(after, kForever));
  EXPECT_EQ(values[0], 0);
}

// zeMemFreeExt with the blocking policy waits for work that may need the host first.
TEST_F(Failures, FreeingThatWaitsHoldsUpNoAllocation) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto go = event();
  ZE_OK(zeCommandListAppendWaitOnEvents(list, 1, &go));
  ze_host_mem_alloc_desc_t host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  void* freed = nullptr;
  ZE_OK(zeMemAllocHost(context, &host, 64, 0, &freed));
  auto freeing = std::async(std::launch::async, [&] {
    ze_memory_free_ext_desc_t desc = {};
    desc.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC;
    desc.freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE;
    return zeMemFreeExt(context, &desc, freed);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  auto allocating = std::async(std::launch::async, [&] {
    void* pointer = nullptr;
    ze_result_t result = zeMemAllocHost(context, &host, 64, 0, &pointer);
    return result == ZE_RESULT_SUCCESS ? zeMemFree(context, pointer) : result;
  });
  // A list of the same context, too: its worker is counted with the others.
  auto creating = std::async(std::launch::async, [&] {
    ze_command_queue_desc_t desc = {};
    desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    ze_command_list_handle_t other = nullptr;
    const ze_result_t result = zeCommandListCreateImmediate(context, device, &desc, &other);
    return result == ZE_RESULT_SUCCESS ? zeCommandListDestroy(other) : result;
  });
  const auto soon = std::chrono::seconds(20);
  EXPECT_EQ(allocating.wait_for(soon), std::future_status::ready) << "an allocation waits for what only we can signal";
  EXPECT_EQ(creating.wait_for(soon), std::future_status::ready);
  EXPECT_EQ(freeing.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  ZE_OK(zeEventHostSignal(go));
  ZE_OK(allocating.get());
  ZE_OK(creating.get());
  ZE_OK(freeing.get());
}

}  // namespace
}  // namespace zefuse::test
