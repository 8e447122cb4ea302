// USM: kinds, alignment, interior pointers, contexts; and the commands that move memory.
#include "tests/unit/driver/ze_test.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace zefuse::test {
namespace {

class Memory : public ZeTest {
protected:
  ze_device_mem_alloc_desc_t on_device = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
  ze_host_mem_alloc_desc_t on_host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};

  void* allocateKind(ze_memory_type_t type, size_t bytes, size_t alignment = 0) {
    void* pointer = nullptr;
    ze_result_t result = type == ZE_MEMORY_TYPE_HOST ? zeMemAllocHost(context, &on_host, bytes, alignment, &pointer)
                         : type == ZE_MEMORY_TYPE_DEVICE
                             ? zeMemAllocDevice(context, &on_device, bytes, alignment, device, &pointer)
                             : zeMemAllocShared(context, &on_device, &on_host, bytes, alignment, device, &pointer);
    EXPECT_EQ(ZE_RESULT_SUCCESS, result);
    return pointer;
  }
  ze_memory_allocation_properties_t propertiesOf(const void* pointer, ze_device_handle_t* owner = nullptr) {
    ze_memory_allocation_properties_t properties = {};
    properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeMemGetAllocProperties(context, pointer, &properties, owner));
    return properties;
  }
};

TEST_F(Memory, KindsIdsAndInteriorPointers) {
  std::vector<uint64_t> ids;
  for (auto type : {ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_DEVICE, ZE_MEMORY_TYPE_SHARED}) {
    auto* base = static_cast<std::byte*>(allocateKind(type, 1000));
    ze_device_handle_t owner = device;
    auto at_base = propertiesOf(base, &owner);
    EXPECT_EQ(type, at_base.type);
    EXPECT_EQ(type == ZE_MEMORY_TYPE_HOST ? nullptr : device, owner);
    auto inside = propertiesOf(base + 999);
    EXPECT_EQ(type, inside.type);
    EXPECT_EQ(at_base.id, inside.id);
    ids.push_back(at_base.id);

    void* found_base = nullptr;
    size_t found_size = 0;
    ZE_OK(zeMemGetAddressRange(context, base + 500, &found_base, &found_size));
    EXPECT_EQ(base, found_base);
    EXPECT_GE(found_size, 1000u);
    ZE_OK(zeMemGetAddressRange(context, base + 500, nullptr, &found_size));
    ZE_OK(zeMemGetAddressRange(context, base + 500, &found_base, nullptr));

    ZE_OK(zeMemFree(context, base));
    EXPECT_EQ(ZE_MEMORY_TYPE_UNKNOWN, propertiesOf(base).type);
  }
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids.end(), std::unique(ids.begin(), ids.end()));
}

TEST_F(Memory, ForeignPointersAreUnknown) {
  int local = 0;
  EXPECT_EQ(ZE_MEMORY_TYPE_UNKNOWN, propertiesOf(&local).type);
  void* base = nullptr;
  EXPECT_NE(ZE_RESULT_SUCCESS, zeMemGetAddressRange(context, &local, &base, nullptr));
}

TEST_F(Memory, APointerOfAnotherContextIsUnknown) {
  ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ze_context_handle_t other = nullptr;
  ZE_OK(zeContextCreate(driver, &desc, &other));
  void* pointer = nullptr;
  ZE_OK(zeMemAllocHost(other, &on_host, 64, 0, &pointer));
  EXPECT_EQ(ZE_MEMORY_TYPE_UNKNOWN, propertiesOf(pointer).type);
  EXPECT_NE(ZE_RESULT_SUCCESS, zeMemFree(context, pointer));
  ZE_OK(zeMemFree(other, pointer));
  ZE_OK(zeContextDestroy(other));
}

TEST_F(Memory, AlignmentIsAtLeastACacheLine) {
  for (size_t alignment = 1; alignment <= 1 << 23; alignment *= 2) {
    void* pointer = allocateKind(ZE_MEMORY_TYPE_DEVICE, 3, alignment);
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(pointer) % std::max<size_t>(alignment, 64));
    ZE_OK(zeMemFree(context, pointer));
  }
  void* pointer = allocateKind(ZE_MEMORY_TYPE_SHARED, 3, 0);
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(pointer) % 64);
  ZE_OK(zeMemFree(context, pointer));
}

TEST_F(Memory, ImpossibleRequestsAreRefused) {
  void* pointer = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeMemAllocHost(context, &on_host, 0, 0, &pointer));
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, zeMemAllocHost(context, &on_host, 64, 48, &pointer));
  ze_device_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
  ZE_OK(zeDeviceGetProperties(device, &properties));
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
            zeMemAllocDevice(context, &on_device, properties.maxMemAllocSize + 1, 0, device, &pointer));
  EXPECT_EQ(nullptr, pointer);
}

// An application that relaxes the limit of one allocation gets none that the device has no memory for.
TEST_F(Memory, MoreThanThereIsIsNoMemory) {
  ze_relaxed_allocation_limits_exp_desc_t relaxed = {ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC, nullptr,
                                                     ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
  on_device.pNext = on_host.pNext = &relaxed;
  constexpr size_t bytes = size_t{1} << 50;
  void* pointer = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, zeMemAllocDevice(context, &on_device, bytes, 0, device, &pointer));
  EXPECT_EQ(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, zeMemAllocHost(context, &on_host, bytes, 0, &pointer));
  EXPECT_EQ(nullptr, pointer);
}

TEST_F(Memory, AContextDestroyedWithLiveAllocationsFreesThem) {  // the sanitizer run sees a leak
  ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
  ze_context_handle_t other = nullptr;
  ZE_OK(zeContextCreate(driver, &desc, &other));
  void* pointer = nullptr;
  ZE_OK(zeMemAllocHost(other, &on_host, 64, 0, &pointer));
  ZE_OK(zeContextDestroy(other));
}

TEST_F(Memory, BlockingFreeWaitsForPendingWork) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto* source = allocate<int>(1);
  *source = 7;
  auto* destination = static_cast<int*>(allocateKind(ZE_MEMORY_TYPE_HOST, sizeof(int)));
  auto* result = allocate<int>(1);
  ZE_OK(zeCommandListAppendMemoryCopy(list, destination, source, sizeof(int), nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(list, result, destination, sizeof(int), nullptr, 0, nullptr));
  ze_memory_free_ext_desc_t desc = {ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, nullptr,
                                    ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};
  ZE_OK(zeMemFreeExt(context, &desc, destination));
  EXPECT_EQ(7, *result);
}

TEST_F(Memory, DeferredFreeKeepsTheMemoryWhileWorkIsPending) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  auto go = event(), done = event();
  auto* result = allocate<int>(1);
  auto* source = static_cast<int*>(allocateKind(ZE_MEMORY_TYPE_HOST, sizeof(int)));
  *source = 9;
  ZE_OK(zeCommandListAppendMemoryCopy(list, result, source, sizeof(int), done, 1, &go));
  ze_memory_free_ext_desc_t desc = {ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, nullptr,
                                    ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE};
  ZE_OK(zeMemFreeExt(context, &desc, source));
  ZE_OK(zeEventHostSignal(go));
  ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  EXPECT_EQ(9, *result);
}

using Commands = EveryList;

TEST_P(Commands, CopyTakesPlainHostPointers) {
  std::vector<uint8_t> source(1000), destination(1000);
  std::iota(source.begin(), source.end(), uint8_t{1});
  auto* middle = allocate<uint8_t>(1000);
  ZE_OK(zeCommandListAppendMemoryCopy(list, middle, source.data(), 1000, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(list, destination.data(), middle, 1000, nullptr, 0, nullptr));
  finish();
  EXPECT_EQ(source, destination);
}

TEST_P(Commands, FillRepeatsThePatternOfTheTimeOfAppending) {
  for (size_t bytes = 1; bytes <= 128; bytes *= 2) {
    std::vector<uint8_t> pattern(bytes);
    std::iota(pattern.begin(), pattern.end(), uint8_t{3});
    auto* memory = allocate<uint8_t>(1024);
    std::memset(memory, 0, 1024);
    ZE_OK(zeCommandListAppendMemoryFill(list, memory, pattern.data(), bytes, 128 * 7, nullptr, 0, nullptr));
    std::vector<uint8_t> changed(bytes, 0xff);
    pattern.swap(changed);
    std::fill(pattern.begin(), pattern.end(), uint8_t{0xff});
    finish();
    for (size_t i = 0; i < 1024; ++i)
      ASSERT_EQ(i < 128 * 7 ? changed[i % bytes] : 0, memory[i]) << "pattern of " << bytes << ", byte " << i;
  }
}

TEST_P(Commands, FillPatternMustBeAPowerOfTwo) {
  auto* memory = allocate<uint8_t>(64);
  const uint8_t pattern[3] = {1, 2, 3};
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendMemoryFill(list, memory, pattern, 3, 63, nullptr, 0, nullptr));
}

TEST_P(Commands, RegionCopyObeysOriginsAndPitches) {
  constexpr uint32_t width = 5, height = 3, depth = 2;
  constexpr uint32_t source_pitch = 16, source_slice = 16 * 8, destination_pitch = 32, destination_slice = 32 * 6;
  auto* source = allocate<uint8_t>(source_slice * 4);
  auto* destination = allocate<uint8_t>(destination_slice * 4);
  for (uint32_t i = 0; i < source_slice * 4; ++i)
    source[i] = static_cast<uint8_t>(i * 7 + 1);
  std::memset(destination, 0, destination_slice * 4);
  ze_copy_region_t from = {2, 1, 1, width, height, depth}, to = {4, 2, 1, width, height, depth};
  ZE_OK(zeCommandListAppendMemoryCopyRegion(list, destination, &to, destination_pitch, destination_slice, source, &from,
                                            source_pitch, source_slice, nullptr, 0, nullptr));
  finish();
  uint32_t copied = 0;
  for (uint32_t z = 0; z < 4; ++z)
    for (uint32_t y = 0; y < 6; ++y)
      for (uint32_t x = 0; x < 32; ++x) {
        bool inside = x >= 4 && x < 4 + width && y >= 2 && y < 2 + height && z >= 1 && z < 1 + depth;
        uint8_t expected =
            inside ? source[(z - 1 + 1) * source_slice + (y - 2 + 1) * source_pitch + (x - 4 + 2)] : uint8_t{0};
        copied += inside;
        ASSERT_EQ(expected, destination[z * destination_slice + y * destination_pitch + x])
            << x << " " << y << " " << z;
      }
  EXPECT_EQ(width * height * depth, copied);
}

TEST_P(Commands, ARegionOfDepthZeroIsTwoDimensional) {
  auto* source = allocate<uint8_t>(64);
  auto* destination = allocate<uint8_t>(64);
  std::iota(source, source + 64, uint8_t{0});
  std::memset(destination, 0xff, 64);
  ze_copy_region_t region = {0, 0, 0, 4, 2, 0};
  ZE_OK(zeCommandListAppendMemoryCopyRegion(list, destination, &region, 8, 0, source, &region, 8, 0, nullptr, 0,
                                            nullptr));
  finish();
  EXPECT_EQ(3, destination[3]);
  EXPECT_EQ(0xff, destination[4]);
  EXPECT_EQ(11, destination[11]);
  EXPECT_EQ(0xff, destination[16]);
}

TEST_P(Commands, HintsAreAccepted) {
  auto* memory = allocate(64);
  ZE_OK(zeCommandListAppendMemoryPrefetch(list, memory, 64));
  ZE_OK(zeCommandListAppendMemAdvise(list, device, memory, 64, ZE_MEMORY_ADVICE_SET_READ_MOSTLY));
  const size_t size = 64;
  const void* range = memory;
  ZE_OK(zeCommandListAppendMemoryRangesBarrier(list, 1, &size, &range, nullptr, 0, nullptr));
  finish();
}

INSTANTIATE_TEST_SUITE_P(Lists, Commands,
                         ::testing::Values(ListKind::synchronous, ListKind::asynchronous, ListKind::default_mode,
                                           ListKind::regular),
                         [](const auto& info) { return nameOf(info.param); });

TEST_F(Memory, PhysicalMemoryIsMappedIntoReservedRanges) {
  size_t page = 0;
  ZE_OK(zeVirtualMemQueryPageSize(context, device, 1, &page));
  void* range = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeVirtualMemReserve(context, nullptr, page + 1, &range));
  ZE_OK(zeVirtualMemReserve(context, nullptr, 4 * page, &range));
  auto* base = static_cast<std::byte*>(range);
  ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, 0, 2 * page};
  ze_physical_mem_handle_t physical = nullptr;
  ZE_OK(zePhysicalMemCreate(context, device, &desc, &physical));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeVirtualMemMap(context, base, 4 * page, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
  ZE_OK(zeVirtualMemMap(context, base + page, 2 * page, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeVirtualMemMap(context, base, 2 * page, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));

  // A kernel writes there; the same memory at another address has it.
  auto k = kernel(module(), "increment");
  auto* value = reinterpret_cast<int*>(base + 2 * page);
  *value = 5;
  setPointer(k, 0, value);
  ze_group_count_t one = {1, 1, 1};
  ZE_OK(
      zeCommandListAppendLaunchKernel(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), k, &one, nullptr, 0, nullptr));
  EXPECT_EQ(6, *value);
  ZE_OK(zeVirtualMemMap(context, base, page, physical, page, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
  EXPECT_EQ(6, *reinterpret_cast<int*>(base));

  // Attributes, by runs of pages.
  ze_memory_access_attribute_t access = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
  size_t same = 0;
  ZE_OK(zeVirtualMemGetAccessAttribute(context, base, 4 * page, &access, &same));
  EXPECT_EQ(ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY, access);
  EXPECT_EQ(page, same);
  ZE_OK(zeVirtualMemSetAccessAttribute(context, base + page, page, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
  ZE_OK(zeVirtualMemGetAccessAttribute(context, base, 4 * page, &access, &same));
  EXPECT_EQ(2 * page, same);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeVirtualMemSetAccessAttribute(context, base, 4 * page, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));

  // The range and what is mapped keep the memory.
  ZE_OK(zePhysicalMemDestroy(context, physical));
  EXPECT_EQ(6, *value);
  ZE_OK(zeVirtualMemUnmap(context, base, page));
  ZE_OK(zeVirtualMemUnmap(context, base, page));  // again: as a page that was never mapped
  EXPECT_EQ(6, *value);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeVirtualMemFree(context, base, page));
  ZE_OK(zeVirtualMemFree(context, base, 4 * page));
}

TEST_F(Memory, PhysicalMemoryOfTheHostNeedsNoDevice) {
  if (loaderWrapsHandles())
    GTEST_SKIP() << "loader 1.8.12 follows the null handle of the device";
  size_t page = 0;
  ZE_OK(zeVirtualMemQueryPageSize(context, device, 1, &page));
  constexpr ze_physical_mem_flags_t on_host = ZE_BIT(1);
  ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, nullptr, on_host, page};
  ze_physical_mem_handle_t physical = nullptr;
  ZE_OK(zePhysicalMemCreate(context, nullptr, &desc, &physical));
  void *one = nullptr, *other = nullptr;
  ZE_OK(zeVirtualMemReserve(context, nullptr, page, &one));
  ZE_OK(zeVirtualMemReserve(context, nullptr, page, &other));
  ZE_OK(zeVirtualMemMap(context, one, page, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
  ZE_OK(zeVirtualMemMap(context, other, page, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
  *static_cast<int*>(one) = 42;
  EXPECT_EQ(42, *static_cast<int*>(other));
  ZE_OK(zePhysicalMemDestroy(context, physical));
  ZE_OK(zeVirtualMemFree(context, one, page));
  ZE_OK(zeVirtualMemFree(context, other, page));

  desc.flags = 0;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zePhysicalMemCreate(context, nullptr, &desc, &physical));
  desc.flags = ZE_BIT(2);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ENUMERATION, zePhysicalMemCreate(context, device, &desc, &physical));
}

}  // namespace
}  // namespace zefuse::test
