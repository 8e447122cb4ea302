// Kernels: arguments, group sizes, local memory, offsets, and what a recorded launch captures.
#include "tests/unit/driver/ze_test.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace zefuse::test {
namespace {

using Kernels = ZeTest;

TEST_F(Kernels, PropertiesAndNames) {
  auto k = kernel(module(), "fixed_group", 8, 2, 1);
  ze_kernel_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES;
  ZE_OK(zeKernelGetProperties(k, &properties));
  EXPECT_EQ(1u, properties.numKernelArgs);
  EXPECT_EQ(8u, properties.requiredGroupSizeX);
  EXPECT_EQ(2u, properties.requiredGroupSizeY);
  EXPECT_EQ(1u, properties.requiredGroupSizeZ);
  EXPECT_GT(properties.maxSubgroupSize, 0u);
  EXPECT_GT(properties.maxNumSubgroups, 0u);
  size_t size = 0;
  ZE_OK(zeKernelGetName(k, &size, nullptr));
  std::string name(size, '\0');
  ZE_OK(zeKernelGetName(k, &size, name.data()));
  EXPECT_STREQ("fixed_group", name.c_str());
}

TEST_F(Kernels, LocalMemoryIsReported) {
  ze_kernel_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES;
  ZE_OK(zeKernelGetProperties(kernel(module(), "reduce_static", 64), &properties));
  EXPECT_GE(properties.localMemSize, 64 * sizeof(float));
  EXPECT_EQ(0u, properties.requiredGroupSizeX);
}

TEST_F(Kernels, WrongArgumentsAreRefused) {
  auto k = kernel(module(), "take_values");
  int value = 0;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX, setValue(k, 5, value));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, setValue(k, 0, value)) << "a pointer has 8 bytes";
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, setValue(k, 1, value)) << "a char has 1";
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, setValue(k, 4, value)) << "struct Pair has 16";
}

TEST_F(Kernels, ALaunchWithAnArgumentMissingIsRefused) {
  auto list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  auto k = kernel(module(), "vector_add");
  auto* memory = allocate<float>(1);
  ze_group_count_t one = {1, 1, 1};
  for (uint32_t set : {0u, 2u}) {
    setPointer(k, set, memory);
    setPointer(k, set, memory);  // twice is still one argument
    EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
  }
  setPointer(k, 1, memory);
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
}

TEST_F(Kernels, WrongGroupSizesAreRefused) {
  auto m = module();
  auto k = kernel(m, "increment");
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, zeKernelSetGroupSize(k, 0, 1, 1));
  ze_device_compute_properties_t compute = {};
  compute.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES;
  ZE_OK(zeDeviceGetComputeProperties(device, &compute));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, zeKernelSetGroupSize(k, compute.maxTotalGroupSize, 2, 1));
  ZE_OK(zeKernelSetGroupSize(k, compute.maxTotalGroupSize, 1, 1));
  auto fixed = kernel(m, "fixed_group", 8, 2, 1);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, zeKernelSetGroupSize(fixed, 16, 1, 1));
}

TEST_F(Kernels, TheLargestGroupIsTold) {
  struct {
    ze_structure_type_t stype;
    void* pNext;
    uint32_t items;
  } most = {static_cast<ze_structure_type_t>(0x00010013), nullptr, 0};
  auto k = kernel(module(), "increment");
  ze_kernel_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES;
  properties.pNext = &most;
  ZE_OK(zeKernelGetProperties(k, &properties));
  ZE_OK(zeKernelSetGroupSize(k, most.items, 1, 1));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION, zeKernelSetGroupSize(k, most.items + 1, 1, 1));
}

TEST_F(Kernels, SuggestedGroupSizesDivide) {
  auto k = kernel(module(), "increment");
  for (uint32_t global : {1u, 7u, 64u, 1000u, 1024u, 4099u, 1u << 30}) {
    uint32_t x = 0, y = 0, z = 0;
    ZE_OK(zeKernelSuggestGroupSize(k, global, 6, 3, &x, &y, &z));
    ASSERT_TRUE(x && y && z);
    EXPECT_EQ(0u, global % x);
    EXPECT_EQ(0u, 6 % y);
    EXPECT_EQ(0u, 3 % z);
    ZE_OK(zeKernelSetGroupSize(k, x, y, z));
  }
}

TEST_F(Kernels, IndirectAccessIsRemembered) {
  auto k = kernel(module(), "increment");
  ZE_OK(zeKernelSetIndirectAccess(k, ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED));
  ze_kernel_indirect_access_flags_t flags = 0;
  ZE_OK(zeKernelGetIndirectAccess(k, &flags));
  EXPECT_EQ(
      ze_kernel_indirect_access_flags_t{ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST | ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED},
      flags);
  ZE_OK(zeKernelSetCacheConfig(k, ZE_CACHE_CONFIG_FLAG_LARGE_SLM));
}

TEST_F(Kernels, SourceAttributesAreWrittenToTheCallersMemory) {
  auto k = kernel(module(), "subgroup_sums", 32);
  uint32_t size = 0;
  ZE_OK(zeKernelGetSourceAttributes(k, &size, nullptr));
  ASSERT_GT(size, 4u);
  std::string text(size, '?');
  char* pointer = text.data();
  ZE_OK(zeKernelGetSourceAttributes(k, &size, &pointer));
  EXPECT_EQ(text.data(), pointer);
  EXPECT_EQ(size, std::strlen(pointer) + 1);
  EXPECT_NE(std::string::npos, text.find('8')) << text;
  std::string cut(8, '?');
  uint32_t room = 4;
  pointer = cut.data();
  ZE_OK(zeKernelGetSourceAttributes(k, &room, &pointer));
  EXPECT_EQ(size, room);
  EXPECT_EQ(text.substr(0, 3), cut.c_str());
  EXPECT_EQ("????", cut.substr(4));
  auto hinted = kernel(module(), "increment");
  char hint[64] = {};
  room = sizeof hint;
  pointer = hint;
  ZE_OK(zeKernelGetSourceAttributes(hinted, &room, &pointer));
  EXPECT_STREQ("work_group_size_hint(4,1,1)", hint);
  pointer = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeKernelGetSourceAttributes(k, &size, &pointer));
}

TEST_F(Kernels, TooMuchLocalMemoryIsRefused) {
  auto k = kernel(module(), "reduce_argument", 64);
  ze_device_compute_properties_t compute = {};
  compute.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES;
  ZE_OK(zeDeviceGetComputeProperties(device, &compute));
  auto* memory = allocate<int>(64);
  setPointer(k, 0, memory);
  setPointer(k, 1, memory);
  ZE_OK(zeKernelSetArgumentValue(k, 2, compute.maxSharedLocalMemory, nullptr));
  ZE_OK(zeKernelSetArgumentValue(k, 3, compute.maxSharedLocalMemory, nullptr));
  ze_group_count_t one = {1, 1, 1};
  EXPECT_EQ(
      ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
      zeCommandListAppendLaunchKernel(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), k, &one, nullptr, 0, nullptr));
}

using Launches = EveryList;

TEST_P(Launches, EveryItemSeesItsIds) {
  const uint32_t counts[3] = {3, 2, 4}, sizes[3] = {4, 3, 2};
  auto k = kernel(module(), "write_ids", sizes[0], sizes[1], sizes[2]);
  size_t items = 1;
  for (int d = 0; d < 3; ++d)
    items *= counts[d] * sizes[d];
  auto* out = allocate<uint32_t>(items * 12);
  std::memset(out, 0xff, items * 12 * sizeof *out);
  setPointer(k, 0, out);
  ze_group_count_t groups = {counts[0], counts[1], counts[2]};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &groups, nullptr, 0, nullptr));
  finish();
  const uint32_t* item = out;
  uint32_t g[3], l[3];
  for (g[2] = 0; g[2] < counts[2]; ++g[2])
    for (g[1] = 0; g[1] < counts[1]; ++g[1])
      for (g[0] = 0; g[0] < counts[0]; ++g[0])
        for (l[2] = 0; l[2] < sizes[2]; ++l[2])
          for (l[1] = 0; l[1] < sizes[1]; ++l[1])
            for (l[0] = 0; l[0] < sizes[0]; ++l[0], item += 12)
              for (int d = 0; d < 3; ++d) {
                ASSERT_EQ(g[d] * sizes[d] + l[d], item[d]);
                ASSERT_EQ(g[d], item[3 + d]);
                ASSERT_EQ(l[d], item[6 + d]);
                ASSERT_EQ(counts[d] * sizes[d], item[9 + d]);
              }
}

TEST_P(Launches, StaticLocalMemoryAndBarriers) {
  constexpr uint32_t groups = 17;
  auto k = kernel(module(), "reduce_static", 64);
  auto* in = allocate<float>(groups * 64);
  auto* out = allocate<float>(groups);
  std::iota(in, in + groups * 64, 1.0f);
  setPointer(k, 0, in);
  setPointer(k, 1, out);
  ze_group_count_t count = {groups, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &count, nullptr, 0, nullptr));
  finish();
  for (uint32_t g = 0; g < groups; ++g)
    EXPECT_EQ(std::accumulate(in + g * 64, in + (g + 1) * 64, 0.0f), out[g]);
}

TEST_P(Launches, LocalMemoryArguments) {
  auto m = module();
  for (uint32_t size : {1u, 2u, 16u, 256u}) {
    constexpr uint32_t groups = 5;
    auto k = kernel(m, "reduce_argument", size);
    auto* in = allocate<int>(groups * size);
    auto* out = allocate<int>(groups * 2);
    for (uint32_t i = 0; i < groups * size; ++i)
      in[i] = static_cast<int>(i * 7919 % 1000);
    setPointer(k, 0, in);
    setPointer(k, 1, out);
    ZE_OK(zeKernelSetArgumentValue(k, 2, size * sizeof(int), nullptr));
    ZE_OK(zeKernelSetArgumentValue(k, 3, size * sizeof(int), nullptr));
    ze_group_count_t count = {groups, 1, 1};
    ZE_OK(zeCommandListAppendLaunchKernel(list, k, &count, nullptr, 0, nullptr));
    finish();
    for (uint32_t g = 0; g < groups; ++g) {
      const int* first = in + g * size;
      EXPECT_EQ(std::accumulate(first, first + size, 0), out[2 * g]);
      EXPECT_EQ(*std::max_element(first, first + size), out[2 * g + 1]);
    }
  }
}

TEST_P(Launches, AtomicsCountEveryItem) {
  auto k = kernel(module(), "count_atomically", 32);
  auto* counters = allocate<int>(5);
  std::memset(counters, 0, 5 * sizeof(int));
  setPointer(k, 0, counters);
  ZE_OK(setValue(k, 1, 5));
  ze_group_count_t count = {1000, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &count, nullptr, 0, nullptr));
  finish();
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(6400, counters[i]);
}

TEST_P(Launches, AtomicsOfHalvesMissNoItem) {
  ze_device_module_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES;
  ze_float_atomic_ext_properties_t atomics = {};
  atomics.stype = ZE_STRUCTURE_TYPE_FLOAT_ATOMIC_EXT_PROPERTIES;
  properties.pNext = &atomics;
  ZE_OK(zeDeviceGetModuleProperties(device, &properties));
  EXPECT_NE(0u, atomics.fp16Flags & ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_ADD);
  auto k = kernel(module("half_atomics.spv"), "half_atomics", 32);
  auto* values = allocate<_Float16>(4);
  values[0] = 0;
  values[1] = 3000;
  values[2] = -1;
  values[3] = 7;
  setPointer(k, 0, values);
  ze_group_count_t count = {50, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &count, nullptr, 0, nullptr));
  finish();
  const float expected[] = {1600, 0, 1599, 7};
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(expected[i], static_cast<float>(values[i])) << i;
}

TEST_P(Launches, SubgroupsHaveTheRequiredWidth) {
  auto k = kernel(module(), "subgroup_sums", 32);
  ze_kernel_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES;
  ZE_OK(zeKernelGetProperties(k, &properties));
  EXPECT_EQ(8u, properties.requiredSubgroupSize);
  EXPECT_EQ(8u, properties.maxSubgroupSize);
  auto* in = allocate<int>(64);
  auto* out = allocate<int>(64);
  std::iota(in, in + 64, 0);
  setPointer(k, 0, in);
  setPointer(k, 1, out);
  ze_group_count_t two = {2, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &two, nullptr, 0, nullptr));
  finish();
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(std::accumulate(in + i / 8 * 8, in + i / 8 * 8 + 8, 0) * 100 + 8, out[i]);
}

TEST_P(Launches, ValuesOfEveryKind) {
  struct Pair {
    int first;
    long second;
  };
  auto k = kernel(module(), "take_values");
  auto* out = allocate<int64_t>(5);
  setPointer(k, 0, out);
  ZE_OK(setValue(k, 1, static_cast<char>(-3)));
  ZE_OK(setValue(k, 2, 1e10));
  const float vector[4] = {1, 2, 3, 4};
  ZE_OK(setValue(k, 3, vector));
  ZE_OK(setValue(k, 4, Pair{-7, int64_t{1} << 40}));
  ze_group_count_t one = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
  finish();
  EXPECT_EQ(-3, out[0]);
  EXPECT_EQ(10'000'000'000, out[1]);
  EXPECT_EQ(4321, out[2]);
  EXPECT_EQ(-7, out[3]);
  EXPECT_EQ(int64_t{1} << 40, out[4]);
}

TEST_P(Launches, ArgumentsAndGroupSizeAreThoseOfTheTimeOfAppending) {
  auto k = kernel(module(), "increment", 4);
  auto* first = allocate<int>(8);
  auto* second = allocate<int>(8);
  std::memset(first, 0, 8 * sizeof(int));
  std::memset(second, 0, 8 * sizeof(int));
  setPointer(k, 0, first);
  ze_group_count_t one = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
  setPointer(k, 0, second);
  ZE_OK(zeKernelSetGroupSize(k, 8, 1, 1));
  ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
  setPointer(k, 0, nullptr);
  finish();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(i < 4 ? 1 : 0, first[i]);
    EXPECT_EQ(1, second[i]);
  }
}

TEST_P(Launches, CommandsRunInOrder) {
  auto k = kernel(module(), "increment", 1);
  auto* value = allocate<int>(1);
  *value = 0;
  setPointer(k, 0, value);
  ze_group_count_t one = {1, 1, 1};
  for (int i = 0; i < 100; ++i) {
    ZE_OK(zeCommandListAppendLaunchKernel(list, k, &one, nullptr, 0, nullptr));
    ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
  }
  finish();
  EXPECT_EQ(100, *value);
}

TEST_P(Launches, NoGroupsRunNothingButSignal) {
  auto k = kernel(module(), "increment");
  auto* value = allocate<int>(1);
  *value = 3;
  setPointer(k, 0, value);
  auto e = event();
  for (ze_group_count_t none : {ze_group_count_t{0, 1, 1}, {1, 0, 1}, {1, 1, 0}}) {
    ZE_OK(zeEventHostReset(e));
    ZE_OK(zeCommandListAppendLaunchKernel(list, k, &none, e, 0, nullptr));
    finish();
    ZE_OK(zeEventQueryStatus(e));
  }
  EXPECT_EQ(3, *value);
}

TEST_P(Launches, IndirectGroupCountsAreReadWhenRun) {
  auto k = kernel(module(), "increment", 1);
  auto* values = allocate<int>(4);
  std::memset(values, 0, 4 * sizeof(int));
  setPointer(k, 0, values);
  auto* groups = allocate<ze_group_count_t>(2);
  ze_group_count_t late = {3, 1, 1};
  groups[0] = {0, 1, 1};
  auto* source = allocate<ze_group_count_t>(1);
  *source = late;
  ZE_OK(zeCommandListAppendMemoryCopy(list, groups, source, sizeof late, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendLaunchKernelIndirect(list, k, groups, nullptr, 0, nullptr));
  finish();
  EXPECT_EQ(1, values[2]);
  EXPECT_EQ(0, values[3]);

  // Of several, as many as the counter says.
  auto* how_many = allocate<uint32_t>(1);
  *how_many = 1;
  groups[0] = groups[1] = {1, 1, 1};
  ze_kernel_handle_t both[2] = {k, k};
  ZE_OK(zeCommandListAppendLaunchMultipleKernelsIndirect(list, 2, both, how_many, groups, nullptr, 0, nullptr));
  finish();
  EXPECT_EQ(2, values[0]);
}

TEST_P(Launches, CooperativeLaunchesUpToTheSuggestedCount) {
  auto k = kernel(module(), "increment", 1);
  auto* values = allocate<int>(1);
  values[0] = 0;
  setPointer(k, 0, values);
  uint32_t count = 0;
  ZE_OK(zeKernelSuggestMaxCooperativeGroupCount(k, &count));
  ASSERT_GE(count, 1u);
  ze_group_count_t one = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchCooperativeKernel(list, k, &one, nullptr, 0, nullptr));
  finish();
  EXPECT_EQ(1, values[0]);
}

INSTANTIATE_TEST_SUITE_P(Lists, Launches,
                         ::testing::Values(ListKind::synchronous, ListKind::asynchronous, ListKind::default_mode,
                                           ListKind::regular),
                         [](const auto& info) { return nameOf(info.param); });

TEST_F(Kernels, AGlobalOffsetMovesIdsButNotGroups) {
  auto k = kernel(module(), "write_ids", 4);
  ZE_OK(zeKernelSetGlobalOffsetExp(k, 10, 20, 30));
  auto* out = allocate<uint32_t>(8 * 12);
  setPointer(k, 0, out);
  ze_group_count_t two = {2, 1, 1};
  ZE_OK(
      zeCommandListAppendLaunchKernel(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), k, &two, nullptr, 0, nullptr));
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(10 + i, out[i * 12]);
    EXPECT_EQ(20u, out[i * 12 + 1]);
    EXPECT_EQ(30u, out[i * 12 + 2]);
    EXPECT_EQ(i / 4, out[i * 12 + 3]);
  }
}

}  // namespace
}  // namespace zefuse::test
