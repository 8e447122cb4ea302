// The CPU posing as a discrete GPU (ZEFUSE_CPU_DRIVER_AS=gpu): what the host must not do with its memory, and what it
// may.
#include "tests/unit/driver/ze_test.h"

#include <csignal>
#include <cstring>

namespace zefuse::test {
namespace {

class PosingGpu : public ZeTest {
protected:
  void SetUp() override {
    ZeTest::SetUp();
    ze_device_properties_t properties = {};
    properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    ZE_OK(zeDeviceGetProperties(device, &properties));
    if (properties.type != ZE_DEVICE_TYPE_GPU)
      GTEST_SKIP() << "ZEFUSE_CPU_DRIVER_AS=gpu is not set";
    ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
    ZE_OK(zeMemAllocDevice(context, &desc, count * sizeof(int), 0, device, reinterpret_cast<void**>(&memory)));
    list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  }
  void TearDown() override {
    if (memory)
      EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemFree(context, memory));
    ZeTest::TearDown();
  }
  std::vector<int> contents() {
    std::vector<int> out(count);
    EXPECT_EQ(ZE_RESULT_SUCCESS,
              zeCommandListAppendMemoryCopy(list, out.data(), memory, count * sizeof(int), nullptr, 0, nullptr));
    return out;
  }
  ze_kernel_handle_t increment() { return kernel(module(), "increment", uint32_t(count)); }

  static constexpr size_t count = 64;
  int* memory = nullptr;
  ze_command_list_handle_t list = nullptr;
};

TEST_F(PosingGpu, TheHostCannotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT({ *const_cast<volatile int*>(memory) = 1; }, testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(
      { [[maybe_unused]] int value = *const_cast<volatile int*>(memory); }, testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(PosingGpu, FreshMemoryIsPoisoned) {
  for (int word : contents())
    EXPECT_EQ(-1, word);  // as a float: NaN
}

// Behind an allocation lies memory of somebody else's, where such a copy would have gone unseen.
TEST_F(PosingGpu, CopiesAndFillsEndWithTheirAllocation) {
  std::vector<int> host(2 * count);
  const size_t bytes = count * sizeof(int);
  const int zero = 0;
  ze_copy_region_t region = {0, 0, 0, uint32_t(bytes), 2, 1};
  for (ze_command_queue_mode_t mode : {ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS}) {
    auto on = immediateList(mode);
    auto p = pool(4);
    ze_event_handle_t done[] = {event(p, 0), event(p, 1), event(p, 2), event(p, 3)};
    const ze_result_t results[] = {
        zeCommandListAppendMemoryCopy(on, host.data(), memory + 1, bytes, done[0], 0, nullptr),
        zeCommandListAppendMemoryCopy(on, memory + 1, host.data(), bytes, done[1], 0, nullptr),
        zeCommandListAppendMemoryFill(on, memory + 1, &zero, sizeof zero, bytes, done[2], 0, nullptr),
        zeCommandListAppendMemoryCopyRegion(on, memory, &region, 0, 0, host.data(), &region, 0, 0, done[3], 0,
                                            nullptr)};
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(results[i],
                mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS ? ZE_RESULT_ERROR_INVALID_SIZE : ZE_RESULT_SUCCESS);
      EXPECT_EQ(zeEventHostSynchronize(done[i], UINT64_MAX), ZE_RESULT_ERROR_INVALID_SIZE) << i;
    }
  }
  for (int word : contents())
    EXPECT_EQ(-1, word);
}

TEST_F(PosingGpu, KernelsAndCopiesReachIt) {
  std::vector<int> in(count, 41);
  ZE_OK(zeCommandListAppendMemoryCopy(list, memory, in.data(), count * sizeof(int), nullptr, 0, nullptr));
  const int zero = 0;
  ZE_OK(zeCommandListAppendMemoryFill(list, memory + 32, &zero, sizeof zero, 32 * sizeof(int), nullptr, 0, nullptr));
  ze_kernel_handle_t k = increment();
  setPointer(k, 0, memory);
  const ze_group_count_t one = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
  std::vector<int> out = contents();
  EXPECT_EQ(42, out[0]);
  EXPECT_EQ(42, out[31]);
  EXPECT_EQ(1, out[32]);
}

TEST_F(PosingGpu, KernelsReachNothingButUsm) {
  std::vector<int> on_the_heap(count);
  ze_kernel_handle_t k = increment();
  const int* pointer = on_the_heap.data();
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, setValue(k, 0, pointer));
  ze_host_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
  int* pinned = nullptr;
  ZE_OK(zeMemAllocHost(context, &desc, count * sizeof(int), 0, reinterpret_cast<void**>(&pinned)));
  std::memset(pinned, 0, count * sizeof(int));
  setPointer(k, 0, pinned);
  const ze_group_count_t one = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
  EXPECT_EQ(1, pinned[count - 1]);
  ZE_OK(zeMemFree(context, pinned));
}

TEST_F(PosingGpu, AnArgumentIsAnAddress) {
  // Freed and allocated again at the same address, memory is what an argument set before names.
  ze_kernel_handle_t k = increment();
  setPointer(k, 0, memory);
  int* const before = memory;
  ZE_OK(zeMemFree(context, memory));
  memory = nullptr;
  ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
  ZE_OK(zeMemAllocDevice(context, &desc, count * sizeof(int), 0, device, reinterpret_cast<void**>(&memory)));
  if (memory != before)
    GTEST_SKIP() << "the host chose another address";
  const ze_group_count_t one = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
  EXPECT_EQ(0, contents()[0]);  // -1, the poison, and 1
}

TEST_F(PosingGpu, OnlyBarriersOrder) {
  // Commands that are there at the same time run last first: behind the event all of them are.
  auto later = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  const int values[] = {1, 2, 3};
  int out[2] = {};
  for (int with_barriers : {0, 1}) {
    auto go = event(), done = event();
    ZE_OK(zeCommandListAppendBarrier(later, nullptr, 1, &go));
    for (const int& value : values) {
      ZE_OK(zeCommandListAppendMemoryCopy(later, memory, &value, sizeof value, nullptr, 0, nullptr));
      if (with_barriers)
        ZE_OK(zeCommandListAppendBarrier(later, nullptr, 0, nullptr));
    }
    ZE_OK(zeCommandListAppendBarrier(later, nullptr, 0, nullptr));
    ZE_OK(zeCommandListAppendMemoryCopy(later, out + with_barriers, memory, sizeof(int), done, 0, nullptr));
    ZE_OK(zeEventHostSignal(go));
    ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  }
  EXPECT_EQ(1, out[0]);
  EXPECT_EQ(3, out[1]);
}

TEST_F(PosingGpu, AnInOrderListNeedsNoBarriers) {
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.flags = ZE_BIT(1);  // in order, as newer headers have it
  desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_list_handle_t ordered = nullptr;
  ZE_OK(zeCommandListCreateImmediate(context, device, &desc, &ordered));
  const int values[] = {1, 2, 3};
  int out = 0;
  auto go = event(), done = event();
  ZE_OK(zeCommandListAppendBarrier(ordered, nullptr, 1, &go));
  for (const int& value : values)
    ZE_OK(zeCommandListAppendMemoryCopy(ordered, memory, &value, sizeof value, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(ordered, &out, memory, sizeof(int), done, 0, nullptr));
  ZE_OK(zeEventHostSignal(go));
  ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  EXPECT_EQ(3, out);
  ZE_OK(zeCommandListDestroy(ordered));
}

TEST_F(PosingGpu, TheCpuIsThereToo) {
  uint32_t devices = 0;
  ZE_OK(zeDeviceGet(driver, &devices, nullptr));
  ASSERT_EQ(2u, devices);
  ze_device_handle_t both[2];
  ZE_OK(zeDeviceGet(driver, &devices, both));
  ze_device_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  ZE_OK(zeDeviceGetProperties(both[1], &properties));
  EXPECT_EQ(ZE_DEVICE_TYPE_CPU, properties.type);
}

}  // namespace
}  // namespace zefuse::test
