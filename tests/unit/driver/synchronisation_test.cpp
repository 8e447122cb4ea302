// Events, fences, lists and queues: what blocks, what returns at once, what is sticky.
#include "tests/unit/driver/ze_test.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace zefuse::test {
namespace {

constexpr uint64_t kForever = UINT64_MAX;
constexpr uint64_t kShortNs = 2'000'000;

using Events = ZeTest;

TEST_F(Events, StateIsStickyUntilReset) {
  auto e = event();
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(e));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventHostSynchronize(e, 0));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventHostSynchronize(e, kShortNs));
  ZE_OK(zeEventHostSignal(e));
  ZE_OK(zeEventQueryStatus(e));
  ZE_OK(zeEventHostSynchronize(e, 0));
  ZE_OK(zeEventHostSynchronize(e, kForever));
  ZE_OK(zeEventHostReset(e));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(e));
}

TEST_F(Events, AnIndexUsedAgainStartsUnsignalled) {
  auto p = pool(1);
  ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t e = nullptr;
  ZE_OK(zeEventCreate(p, &desc, &e));
  ZE_OK(zeEventHostSignal(e));
  ZE_OK(zeEventDestroy(e));
  ZE_OK(zeEventCreate(p, &desc, &e));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(e));
  ZE_OK(zeEventDestroy(e));
  desc.index = 1;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventCreate(p, &desc, &e));
}

// An event that counts needs no reset between two uses: one of the drivers' events in its place would be waited for in
// vain or not at all.
TEST_F(Events, CountersAndUnknownFlagsAreRefused) {
  ze_base_desc_t counters = {static_cast<ze_structure_type_t>(0x00020014), nullptr};
  ze_event_pool_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, &counters, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
  ze_event_pool_handle_t p = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, zeEventPoolCreate(context, &desc, 0, nullptr, &p));
  EXPECT_EQ(nullptr, p);
  desc.pNext = nullptr;
  desc.flags = ZE_BIT(4);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ENUMERATION, zeEventPoolCreate(context, &desc, 0, nullptr, &p));
  ze_event_desc_t event_desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, ZE_EVENT_SCOPE_FLAG_HOST, ZE_BIT(3)};
  ze_event_handle_t e = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ENUMERATION, zeEventCreate(pool(1), &event_desc, &e));
}

TEST_F(Events, APoolDestroyedFirstDoesNoHarm) {
  ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
  ze_event_pool_handle_t p = nullptr;
  ZE_OK(zeEventPoolCreate(context, &pool_desc, 0, nullptr, &p));
  ze_event_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t e = nullptr;
  ZE_OK(zeEventCreate(p, &desc, &e));
  ZE_OK(zeEventPoolDestroy(p));
  ZE_OK(zeEventHostSignal(e));
  ZE_OK(zeEventQueryStatus(e));
  ZE_OK(zeEventDestroy(e));
}

TEST_F(Events, TimesAreToldByTheHostsClockToo) {
  if (loaderWrapsHandles())
    GTEST_SKIP() << "an extension's function gets the driver's handles";
  struct Results {
    ze_structure_type_t stype;
    void* pNext;
    ze_kernel_timestamp_result_t* device;
    uint64_t* host;  // global start and end, context start and end, in ns
  };
  using Query = ze_result_t (*)(ze_event_handle_t, ze_device_handle_t, uint32_t*, Results*);
  void* address = nullptr;
  ZE_OK(zeDriverGetExtensionFunctionAddress(driver, "zeEventQueryKernelTimestampsExt", &address));
  const auto query = reinterpret_cast<Query>(address);
  constexpr ze_event_pool_flags_t mapped = ZE_BIT(3);
  auto e = event(pool(1, ZE_EVENT_POOL_FLAG_HOST_VISIBLE | mapped));
  uint32_t count = 0;
  ZE_OK(query(e, device, &count, nullptr));
  ASSERT_EQ(1u, count);
  ze_kernel_timestamp_result_t by_device = {};
  uint64_t by_host[4] = {};
  Results results = {static_cast<ze_structure_type_t>(0x00010012), nullptr, &by_device, by_host};
  EXPECT_EQ(ZE_RESULT_NOT_READY, query(e, device, &count, &results));
  uint64_t before = 0, after = 0, clock = 0;
  ZE_OK(zeDeviceGetGlobalTimestamps(device, &before, &clock));
  ZE_OK(zeCommandListAppendBarrier(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), e, 0, nullptr));
  ZE_OK(zeDeviceGetGlobalTimestamps(device, &after, &clock));
  ZE_OK(query(e, device, &count, &results));
  constexpr uint64_t apart = 200'000;  // of two clocks of which each is read on its own
  EXPECT_GE(by_host[0] + apart, before);
  EXPECT_LE(by_host[0], by_host[1]);
  EXPECT_LE(by_host[1], after + apart);
  ze_kernel_timestamp_result_t direct = {};
  ZE_OK(zeEventQueryKernelTimestamp(e, &direct));
  EXPECT_EQ(0, std::memcmp(&direct, &by_device, sizeof direct));
}

TEST_F(Events, TimestampsAreMissingUntilSignalledAndAfterReset) {
  auto e = event(pool(1, ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP));
  ze_kernel_timestamp_result_t result;
  std::memset(&result, 0xab, sizeof result);
  auto before = result;
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryKernelTimestamp(e, &result));
  EXPECT_EQ(0, std::memcmp(&before, &result, sizeof result)) << "unsignalled: the destination must stay as it was";
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  auto* memory = allocate(64);
  ZE_OK(zeCommandListAppendMemoryCopy(list, memory, memory + 32, 32, e, 0, nullptr));
  ZE_OK(zeEventQueryKernelTimestamp(e, &result));
  EXPECT_GE(result.global.kernelEnd, result.global.kernelStart);
  EXPECT_GE(result.context.kernelEnd, result.context.kernelStart);
  uint64_t host = 0, now = 0;
  ZE_OK(zeDeviceGetGlobalTimestamps(device, &host, &now));
  EXPECT_LE(result.global.kernelEnd, now) << "one clock for events and the device";
  ZE_OK(zeEventHostReset(e));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryKernelTimestamp(e, &result));
}

TEST_F(Events, HostSignalWakesAWaitingThread) {
  auto e = event();
  std::thread waiter([&] { EXPECT_EQ(ZE_RESULT_SUCCESS, zeEventHostSynchronize(e, kForever)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ZE_OK(zeEventHostSignal(e));
  waiter.join();
}

using Fences = ZeTest;

TEST_F(Fences, MayStartSignalledAndAreReset) {
  auto f = fence(queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS), ZE_FENCE_FLAG_SIGNALED);
  ZE_OK(zeFenceQueryStatus(f));
  ZE_OK(zeFenceReset(f));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeFenceQueryStatus(f));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeFenceHostSynchronize(f, kShortNs));
}

TEST_F(Fences, SignalAfterAllListsOfTheCall) {
  auto q = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto f = fence(q);
  auto p = pool(2);
  auto first_ran = event(p, 0), go = event(p, 1);
  ze_command_list_handle_t lists[2] = {regularList(), regularList()};
  ZE_OK(zeCommandListAppendSignalEvent(lists[0], first_ran));
  ZE_OK(zeCommandListClose(lists[0]));
  ZE_OK(zeCommandListAppendWaitOnEvents(lists[1], 1, &go));
  ZE_OK(zeCommandListClose(lists[1]));
  ZE_OK(zeCommandQueueExecuteCommandLists(q, 2, lists, f));
  ZE_OK(zeEventHostSynchronize(first_ran, kForever));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeFenceHostSynchronize(f, kShortNs)) << "the second list still waits";
  ZE_OK(zeEventHostSignal(go));
  ZE_OK(zeFenceHostSynchronize(f, kForever));
}

TEST_F(Fences, OfAnotherQueueAreRefused) {
  auto list = regularList();
  ZE_OK(zeCommandListClose(list));
  auto f = fence(queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
            zeCommandQueueExecuteCommandLists(queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS), 1, &list, f));
}

using Queues = ZeTest;

TEST_F(Queues, AnAsynchronousQueueReturnsWhileItsWorkWaits) {
  auto q = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto list = regularList();
  auto go = event();
  ZE_OK(zeCommandListAppendWaitOnEvents(list, 1, &go));
  ZE_OK(zeCommandListClose(list));
  ZE_OK(zeCommandQueueExecuteCommandLists(q, 1, &list, nullptr));  // a queue that waits here never gets further
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeCommandQueueSynchronize(q, 0));
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeCommandQueueSynchronize(q, kShortNs));
  ZE_OK(zeEventHostSignal(go));
  ZE_OK(zeCommandQueueSynchronize(q, kForever));
}

TEST_F(Queues, AQueueThatWaitsHoldsUpNoOther) {
  auto waiting = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS), other = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto p = pool(1);
  auto go = event(p);
  auto first = regularList(), second = regularList();
  ZE_OK(zeCommandListAppendWaitOnEvents(first, 1, &go));
  ZE_OK(zeCommandListClose(first));
  ZE_OK(zeCommandListAppendSignalEvent(second, go));
  ZE_OK(zeCommandListClose(second));
  ZE_OK(zeCommandQueueExecuteCommandLists(waiting, 1, &first, nullptr));
  ZE_OK(zeCommandQueueExecuteCommandLists(other, 1, &second, nullptr));
  ZE_OK(zeCommandQueueSynchronize(waiting, kForever));
}

TEST_F(Queues, ASynchronousQueueReturnsWithTheWorkDone) {
  auto q = queue(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  auto list = regularList();
  auto* value = allocate<int>(2);
  value[0] = 5;
  value[1] = 0;
  ZE_OK(zeCommandListAppendMemoryCopy(list, value + 1, value, sizeof(int), nullptr, 0, nullptr));
  ZE_OK(zeCommandListClose(list));
  auto f = fence(q);
  ZE_OK(zeCommandQueueExecuteCommandLists(q, 1, &list, f));
  EXPECT_EQ(5, value[1]);
  ZE_OK(zeFenceQueryStatus(f));
}

TEST_F(Queues, AListRunsAsOftenAsItIsGivenAndReadsMemoryThen) {
  auto q = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto list = regularList();
  auto* value = allocate<int>(2);
  ZE_OK(zeCommandListAppendMemoryCopy(list, value + 1, value, sizeof(int), nullptr, 0, nullptr));
  ZE_OK(zeCommandListClose(list));
  for (int i = 1; i < 4; ++i) {
    value[0] = i;
    ZE_OK(zeCommandQueueExecuteCommandLists(q, 1, &list, nullptr));
    ZE_OK(zeCommandQueueSynchronize(q, kForever));
    EXPECT_EQ(i, value[1]);
  }
  ZE_OK(zeCommandListReset(list));
  ZE_OK(zeCommandListClose(list));
  value[0] = 100;
  ZE_OK(zeCommandQueueExecuteCommandLists(q, 1, &list, nullptr));
  ZE_OK(zeCommandQueueSynchronize(q, kForever));
  EXPECT_EQ(3, value[1]) << "reset emptied the list";
}

TEST_F(Queues, WrongListsAreRefused) {
  auto q = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto open = regularList();
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandQueueExecuteCommandLists(q, 1, &open, nullptr));
  auto immediate = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, zeCommandQueueExecuteCommandLists(q, 1, &immediate, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE, zeCommandQueueExecuteCommandLists(q, 0, &open, nullptr));
  ZE_OK(zeCommandListClose(open));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListAppendBarrier(open, nullptr, 0, nullptr)) << "closed";
}

TEST_F(Queues, DescriptorsAreChecked) {
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.ordinal = 99;
  ze_command_queue_handle_t q = nullptr;
  EXPECT_NE(ZE_RESULT_SUCCESS, zeCommandQueueCreate(context, device, &desc, &q));
  ze_command_list_handle_t list = nullptr;
  EXPECT_NE(ZE_RESULT_SUCCESS, zeCommandListCreateImmediate(context, device, &desc, &list));
}

TEST_F(Queues, DestroyedWithAnEventMissingEndsAndDropsTheRest) {
  auto go = event(), after = event();
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_list_handle_t list = nullptr;
  ZE_OK(zeCommandListCreateImmediate(context, device, &desc, &list));
  ZE_OK(zeCommandListAppendWaitOnEvents(list, 1, &go));
  ZE_OK(zeCommandListAppendSignalEvent(list, after));
  ZE_OK(zeCommandListDestroy(list));  // must come back
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(after));
}

TEST_F(Queues, WhatIsRecordedOutlivesItsHandles) {
  auto q = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto go = event();
  auto f = fence(q);
  ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
  ze_event_pool_handle_t p = nullptr;
  ZE_OK(zeEventPoolCreate(context, &pool_desc, 0, nullptr, &p));
  ze_event_desc_t event_desc = {ZE_STRUCTURE_TYPE_EVENT_DESC, nullptr, 0, 0, 0};
  ze_event_handle_t e = nullptr;
  ZE_OK(zeEventCreate(p, &event_desc, &e));
  ze_command_list_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
  ze_command_list_handle_t list = nullptr;
  ZE_OK(zeCommandListCreate(context, device, &desc, &list));
  ZE_OK(zeCommandListAppendBarrier(list, e, 1, &go));
  ZE_OK(zeCommandListClose(list));
  ZE_OK(zeCommandQueueExecuteCommandLists(q, 1, &list, f));
  ZE_OK(zeCommandListDestroy(list));
  ZE_OK(zeEventDestroy(e));
  ZE_OK(zeEventPoolDestroy(p));
  ZE_OK(zeEventHostSignal(go));
  ZE_OK(zeFenceHostSynchronize(f, kForever));
}

TEST_F(Queues, DeadAndWrongHandlesAreRecognised) {
  if (loaderWrapsHandles())
    GTEST_SKIP() << "the loader follows the handles itself";
  auto e = event();
  auto* as_list = reinterpret_cast<ze_command_list_handle_t>(e);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeCommandListAppendBarrier(as_list, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeCommandListClose(nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeEventQueryStatus(nullptr));
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE, zeCommandListAppendBarrier(list, nullptr, 1, nullptr));
}

TEST_F(Queues, ADefaultListWithAMissingEventDoesNotBlockTheHost) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_DEFAULT);
  auto go = event(), done = event();
  ZE_OK(zeCommandListAppendBarrier(list, done, 1, &go));
  ZE_OK(zeEventHostSignal(go));
  ZE_OK(zeEventHostSynchronize(done, kForever));
}

using ListEvents = EveryList;

TEST_P(ListEvents, WaitsAndSignalsChainCommands) {
  auto p = pool(2);
  auto first = event(p, 0), second = event(p, 1);
  auto* value = allocate<int>(3);
  value[0] = 11;
  value[1] = value[2] = 0;
  ZE_OK(zeCommandListAppendMemoryCopy(list, value + 1, value, sizeof(int), first, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(list, value + 2, value + 1, sizeof(int), second, 1, &first));
  finish();
  EXPECT_EQ(11, value[2]);
  ZE_OK(zeEventQueryStatus(first));
  ZE_OK(zeEventQueryStatus(second));
}

TEST_P(ListEvents, ResetOnTheDevice) {
  auto e = event();
  ZE_OK(zeEventHostSignal(e));
  ZE_OK(zeCommandListAppendEventReset(list, e));
  finish();
  EXPECT_EQ(ZE_RESULT_NOT_READY, zeEventQueryStatus(e));
}

TEST_P(ListEvents, GlobalTimestampsIncrease) {
  auto* times = allocate<uint64_t>(2);
  constexpr size_t bytes = 4 << 20;  // longer work than any host's clock has between two ticks
  auto* memory = allocate(bytes);
  const uint8_t zero = 0;
  ZE_OK(zeCommandListAppendWriteGlobalTimestamp(list, &times[0], nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryFill(list, memory, &zero, sizeof zero, bytes, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendWriteGlobalTimestamp(list, &times[1], nullptr, 0, nullptr));
  finish();
  EXPECT_GT(times[0], 0u);
  EXPECT_GT(times[1], times[0]);
}

TEST_P(ListEvents, TimestampQueriesKeepTheOrderOfTheEventsAndTheOffsets) {
  auto p = pool(2, ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
  ze_event_handle_t timed[2] = {event(p, 0), event(p, 1)};
  auto* memory = allocate(64);
  ZE_OK(zeCommandListAppendMemoryCopy(list, memory, memory + 32, 32, timed[0], 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(list, memory, memory + 32, 32, timed[1], 1, &timed[0]));
  auto* packed = allocate<ze_kernel_timestamp_result_t>(2);
  auto* placed = allocate<ze_kernel_timestamp_result_t>(4);
  const size_t offsets[2] = {3 * sizeof *placed, sizeof *placed};
  ZE_OK(zeCommandListAppendQueryKernelTimestamps(list, 2, timed, packed, nullptr, nullptr, 2, timed));
  ZE_OK(zeCommandListAppendQueryKernelTimestamps(list, 2, timed, placed, offsets, nullptr, 2, timed));
  finish();
  for (int i = 0; i < 2; ++i) {
    ze_kernel_timestamp_result_t direct;
    ZE_OK(zeEventQueryKernelTimestamp(timed[i], &direct));
    EXPECT_EQ(0, std::memcmp(&direct, &packed[i], sizeof direct));
    EXPECT_EQ(0, std::memcmp(&direct, &placed[i == 0 ? 3 : 1], sizeof direct));
  }
  EXPECT_LE(packed[0].global.kernelEnd, packed[1].global.kernelStart);
}

INSTANTIATE_TEST_SUITE_P(Lists, ListEvents,
                         ::testing::Values(ListKind::synchronous, ListKind::asynchronous, ListKind::default_mode,
                                           ListKind::regular),
                         [](const auto& info) { return nameOf(info.param); });

}  // namespace
}  // namespace zefuse::test
