// Contexts for listed devices, and queues of every priority.
#include <algorithm>

#include "tests/unit/driver/ze_test.h"

namespace zefuse::test {
namespace {

class Contexts : public ZeTest {
protected:
  // A context for some devices, with which one of them fills memory.
  ze_context_handle_t make(const std::vector<ze_device_handle_t>& devices) {
    std::vector<ze_device_handle_t> listed = devices;
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, nullptr, 0};
    ze_context_handle_t made = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeContextCreateEx(driver, &desc, static_cast<uint32_t>(listed.size()),
                                                   listed.empty() ? nullptr : listed.data(), &made));
    std::fill(listed.begin(), listed.end(), nullptr);  // the array is the caller's
    return made;
  }
  std::vector<ze_device_handle_t> devices() {
    uint32_t count = 0;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeDeviceGet(driver, &count, nullptr));
    std::vector<ze_device_handle_t> all(count);
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeDeviceGet(driver, &count, all.data()));
    return all;
  }
  void use(ze_context_handle_t made, ze_device_handle_t with) {
    ze_host_mem_alloc_desc_t on_host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, nullptr, 0};
    void* pointer = nullptr;
    ZE_OK(zeMemAllocHost(made, &on_host, 64, 0, &pointer));
    ze_command_list_desc_t list_desc = {};
    list_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
    ze_command_queue_desc_t queue_desc = {};
    queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    ze_command_list_handle_t list = nullptr;
    ze_command_queue_handle_t queue = nullptr;
    ZE_OK(zeCommandListCreate(made, with, &list_desc, &list));
    ZE_OK(zeCommandQueueCreate(made, with, &queue_desc, &queue));
    const uint8_t pattern = 0x55;
    ZE_OK(zeCommandListAppendMemoryFill(list, pointer, &pattern, 1, 64, nullptr, 0, nullptr));
    ZE_OK(zeCommandListClose(list));
    ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
    ZE_OK(zeCommandQueueSynchronize(queue, UINT64_MAX));
    auto* bytes = static_cast<uint8_t*>(pointer);
    EXPECT_EQ(64, std::count(bytes, bytes + 64, pattern));
    ZE_OK(zeCommandListDestroy(list));
    ZE_OK(zeCommandQueueDestroy(queue));
    ZE_OK(zeMemFree(made, pointer));
  }
};

TEST_F(Contexts, AreForTheDevicesThatAreListed) {
  const auto all = devices();
  for (const auto& listed : {std::vector<ze_device_handle_t>{}, all, {all.front()}, {all.back()}}) {
    ze_context_handle_t made = make(listed);
    for (ze_device_handle_t each : listed.empty() ? all : listed)
      use(made, each);
    ZE_OK(zeContextDestroy(made));
  }
}

TEST_F(Contexts, AreForNoOtherDevice) {
  const auto all = devices();
  if (all.size() < 2)
    GTEST_SKIP() << "there is one device";
  ze_context_handle_t made = make({all.front()});
  ze_device_handle_t other = all.back();
  ze_device_mem_alloc_desc_t on_device = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, nullptr, 0, 0};
  void* pointer = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemAllocDevice(made, &on_device, 64, 0, other, &pointer));
  ze_command_queue_desc_t queue_desc = {};
  queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  ze_command_queue_handle_t queue = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandQueueCreate(made, other, &queue_desc, &queue));
  ze_command_list_handle_t list = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListCreateImmediate(made, other, &queue_desc, &list));
  ze_command_list_desc_t list_desc = {};
  list_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListCreate(made, other, &list_desc, &list));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT,
            createModule(made, other, ZE_MODULE_FORMAT_IL_SPIRV, readKernelFile("basic.spv")).result);
  ze_event_pool_desc_t pool_desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, nullptr, 0, 1};
  ze_event_pool_handle_t pool = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventPoolCreate(made, &pool_desc, 1, &other, &pool));
  ze_sampler_desc_t sampler_desc = {ZE_STRUCTURE_TYPE_SAMPLER_DESC, nullptr, ZE_SAMPLER_ADDRESS_MODE_CLAMP,
                                    ZE_SAMPLER_FILTER_MODE_NEAREST, 0};
  ze_sampler_handle_t sampler = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeSamplerCreate(made, other, &sampler_desc, &sampler));
  ZE_OK(zeContextDestroy(made));
}

TEST_F(Contexts, QueuesTakeEveryPriority) {
  for (ze_command_queue_priority_t priority : {ZE_COMMAND_QUEUE_PRIORITY_NORMAL, ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW,
                                               ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH}) {
    ze_command_queue_desc_t desc = {};
    desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
    desc.priority = priority;
    ze_command_queue_handle_t queue = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandQueueCreate(context, device, &desc, &queue));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandQueueDestroy(queue));
    ze_command_list_handle_t list = nullptr;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListCreateImmediate(context, device, &desc, &list));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListDestroy(list));
  }
}

}  // namespace
}  // namespace zefuse::test
