#include "drivers/cpu/command_queue.h"

#include <algorithm>
#include <list>

#include "drivers/cpu/command_list.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/fence.h"
#include "drivers/cpu/worker.h"

namespace zefuse::cpu {

CommandQueue::CommandQueue(Context& owner, const Device& device, const ze_command_queue_desc_t& description)
    : context(&owner), device(device), desc(description) {
  if (desc.mode != ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS)
    worker = std::make_unique<Worker>(owner);
}

CommandQueue::~CommandQueue() = default;

bool mayWait(uint32_t count, ze_command_list_handle_t* lists) {
  return std::any_of(lists, lists + count,
                     [](ze_command_list_handle_t list) { return fromHandle<CommandList>(list)->has_waits; });
}

ze_result_t commandQueueCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                               const ze_command_queue_desc_t* desc, ze_command_queue_handle_t* phCommandQueue) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phCommandQueue);
  *phCommandQueue = nullptr;
  if (ze_result_t result = checkInContext("zeCommandQueueCreate", *context, *device))
    return result;
  if (ze_result_t result = checkQueueDesc("zeCommandQueueCreate", device->queueGroups(), *desc))
    return result;
  return guarded(__func__, [&] {
    *phCommandQueue = toHandle<ze_command_queue_handle_t>(new CommandQueue(*context, *device, *desc));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t commandQueueDestroy(ze_command_queue_handle_t hCommandQueue) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  queue->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandQueueExecuteCommandLists(ze_command_queue_handle_t hCommandQueue, uint32_t numCommandLists,
                                            ze_command_list_handle_t* phCommandLists, ze_fence_handle_t hFence) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  ZEFUSE_NOT_NULL(phCommandLists);
  if (numCommandLists == 0)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "zeCommandQueueExecuteCommandLists: 0 lists");
  Fence* fence = nullptr;
  if (hFence) {
    ZEFUSE_OBJECT(Fence, given, hFence);
    if (given->queue != queue)
      return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
                    "zeCommandQueueExecuteCommandLists: the fence belongs to another queue");
    fence = given;
  }
  const char* call = "zeCommandQueueExecuteCommandLists";
  if (ze_result_t result =
          checkExecutable<CommandList>(call, numCommandLists, phCommandLists, queue->desc.ordinal, queue->device))
    return result;  // before the first one runs
  const bool may_wait = mayWait(numCommandLists, phCommandLists);
  return guarded(call, [&]() -> ze_result_t {
    bool default_mode = queue->desc.mode == ZE_COMMAND_QUEUE_MODE_DEFAULT;
    if (!queue->worker || (default_mode && !may_wait && queue->worker->ready())) {
      std::lock_guard lock(queue->inline_order);
      const Site site = {Team::callers};
      Progress progress(site);
      for (uint32_t i = 0; i < numCommandLists; ++i) {
        auto commands = fromHandle<CommandList>(phCommandLists[i])->recorded;
        progress.run(*commands);
      }
      Ref<Fence> alive(fence);  // a waiter may destroy it as soon as it sees the signal
      if (fence && progress.failure())
        fence->state.fail(progress.failure());
      else if (fence)
        fence->state.set();
      return progress.failure() ? progress.failure()->tell(call) : ZE_RESULT_SUCCESS;
    }
    std::list<Submission> submissions;
    for (uint32_t i = 0; i < numCommandLists; ++i)
      submissions.push_back({fromHandle<CommandList>(phCommandLists[i])->recorded, Ref<Fence>()});
    submissions.back().fence = Ref<Fence>(fence);
    queue->worker->submit(std::move(submissions));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t commandQueueSynchronize(ze_command_queue_handle_t hCommandQueue, uint64_t timeout) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  return queue->worker ? queue->worker->wait(__func__, timeout) : ZE_RESULT_SUCCESS;
}

ze_result_t commandQueueGetOrdinal(ze_command_queue_handle_t hCommandQueue, uint32_t* pOrdinal) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  ZEFUSE_NOT_NULL(pOrdinal);
  *pOrdinal = queue->desc.ordinal;
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandQueueGetIndex(ze_command_queue_handle_t hCommandQueue, uint32_t* pIndex) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  ZEFUSE_NOT_NULL(pIndex);
  *pIndex = queue->desc.index;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
