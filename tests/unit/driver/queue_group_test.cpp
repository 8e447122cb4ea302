// The queue group that only copies, where the device has one: as most GPUs, and the CPU that poses as one.
#include "tests/unit/driver/ze_test.h"

namespace zefuse::test {
namespace {

constexpr uint32_t kCopies = 1;  // the group's ordinal in our drivers

std::vector<ze_command_queue_group_properties_t> groupsOf(ze_device_handle_t device) {
  uint32_t count = 0;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeDeviceGetCommandQueueGroupProperties(device, &count, nullptr));
  std::vector<ze_command_queue_group_properties_t> groups(count);
  for (auto& group : groups)
    group.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
  EXPECT_EQ(ZE_RESULT_SUCCESS, zeDeviceGetCommandQueueGroupProperties(device, &count, groups.data()));
  return groups;
}

class CopyQueues : public ZeTest {
protected:
  void SetUp() override {
    ZeTest::SetUp();
    if (!IsSkipped() && groupsOf(device).size() == 1)
      GTEST_SKIP() << "the device has one group of queues, which does everything";
  }
};

TEST_F(CopyQueues, AreAGroupThatSaysSo) {
  const auto groups = groupsOf(device);
  ASSERT_EQ(2u, groups.size());
  EXPECT_TRUE(groups[0].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
  EXPECT_EQ(ze_command_queue_group_property_flags_t{ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY}, groups[kCopies].flags);
  EXPECT_GT(groups[kCopies].numQueues, 0u);
  EXPECT_EQ(groups[0].maxMemoryFillPatternSize, groups[kCopies].maxMemoryFillPatternSize);
}

TEST_F(CopyQueues, CopyAndFill) {
  auto* value = allocate<int>(4);
  value[0] = 3;
  const int pattern = 5;
  auto immediate = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, kCopies);
  ZE_OK(zeCommandListAppendMemoryCopy(immediate, value + 1, value, sizeof(int), nullptr, 0, nullptr));
  EXPECT_EQ(3, value[1]);

  auto list = regularList(kCopies);
  auto done = event();
  ZE_OK(zeCommandListAppendMemoryFill(list, value + 2, &pattern, sizeof pattern, sizeof(int), nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendBarrier(list, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendMemoryCopy(list, value + 3, value + 2, sizeof(int), done, 0, nullptr));
  ZE_OK(zeCommandListClose(list));
  auto copies = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, kCopies);
  ZE_OK(zeCommandQueueExecuteCommandLists(copies, 1, &list, nullptr));
  ZE_OK(zeCommandQueueSynchronize(copies, UINT64_MAX));
  ZE_OK(zeEventQueryStatus(done));
  EXPECT_EQ(5, value[3]);
}

TEST_F(CopyQueues, TakeNoKernel) {
  auto increment = kernel(module(), "increment");
  setPointer(increment, 0, allocate<int>(1));
  const ze_group_count_t one = {1, 1, 1};
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
            zeCommandListAppendLaunchKernel(regularList(kCopies), increment, &one, nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
            zeCommandListAppendLaunchKernel(immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, kCopies), increment, &one,
                                            nullptr, 0, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
            zeCommandListAppendLaunchCooperativeKernel(regularList(kCopies), increment, &one, nullptr, 0, nullptr));
}

TEST_F(CopyQueues, TakeListsOfTheirGroupAlone) {
  auto copying = regularList(kCopies), computing = regularList();
  ZE_OK(zeCommandListClose(copying));
  ZE_OK(zeCommandListClose(computing));
  auto copies = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, kCopies),
       computes = queue(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
            zeCommandQueueExecuteCommandLists(computes, 1, &copying, nullptr));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
            zeCommandQueueExecuteCommandLists(copies, 1, &computing, nullptr));
}

TEST_F(ZeTest, AQueueGroupThatIsNotThereIsRefused) {
  ze_command_list_desc_t list_desc = {};
  list_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
  list_desc.commandQueueGroupOrdinal = uint32_t(groupsOf(device).size());
  ze_command_list_handle_t list = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListCreate(context, device, &list_desc, &list));
  ze_command_queue_desc_t queue_desc = {};
  queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  queue_desc.ordinal = list_desc.commandQueueGroupOrdinal;
  ze_command_queue_handle_t queue = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandQueueCreate(context, device, &queue_desc, &queue));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListCreateImmediate(context, device, &queue_desc, &list));
  queue_desc.ordinal = 0;
  queue_desc.index = groupsOf(device)[0].numQueues;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandQueueCreate(context, device, &queue_desc, &queue));
}

}  // namespace
}  // namespace zefuse::test
