#include "drivers/cuda/command_queue.h"

#include "drivers/cuda/command_list.h"
#include "drivers/cuda/fence.h"

namespace zefuse::cuda {
ze_result_t execute(const char* call, Stream& stream, CommandList& list) {
  if (list.capturable && list.recorded.size() > 1) {
    const ze_result_t result = stream.replay(call, list.recorded, list.graph);
    if (result != ZE_RESULT_NOT_READY)
      return result;
    list.capturable = false;
  }
  for (Command& command : list.recorded)
    if (ze_result_t result = stream.submit(call, command))
      return result;
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandQueueCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                               const ze_command_queue_desc_t* desc, ze_command_queue_handle_t* phCommandQueue) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phCommandQueue);
  *phCommandQueue = nullptr;
  if (ze_result_t result = checkQueueDesc("zeCommandQueueCreate", device->queueGroups(), *desc))
    return result;
  return guarded(__func__, [&]() -> ze_result_t {
    Ref<CommandQueue> queue(new CommandQueue(*context, *device, *desc));
    queue->release();  // the application's reference is taken below
    if (ze_result_t result = queue->stream.create("zeCommandQueueCreate"))
      return result;
    queue->retain();
    *phCommandQueue = toHandle<ze_command_queue_handle_t>(queue.get());
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
  const char* call = "zeCommandQueueExecuteCommandLists";
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  ZEFUSE_NOT_NULL(phCommandLists);
  if (numCommandLists == 0)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: 0 lists", call);
  Fence* fence = nullptr;
  if (hFence) {
    ZEFUSE_OBJECT(Fence, given, hFence);
    if (given->queue.get() != queue)
      return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "%s: the fence belongs to another queue", call);
    fence = given;
  }
  if (ze_result_t result = checkExecutable<CommandList>(call, numCommandLists, phCommandLists, queue->desc.ordinal,
                                                        queue->stream.device()))
    return result;  // before the first one runs
  return guarded(call, [&]() -> ze_result_t {
    for (uint32_t i = 0; i < numCommandLists; ++i)
      if (ze_result_t result = execute(call, queue->stream, *fromHandle<CommandList>(phCommandLists[i])))
        return result;
    if (fence)
      if (ze_result_t result = queue->stream.signalFence(call, fence->word))
        return result;
    return queue->desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS ? queue->stream.wait(call, UINT64_MAX)
                                                                 : ZE_RESULT_SUCCESS;
  });
}

ze_result_t commandQueueSynchronize(ze_command_queue_handle_t hCommandQueue, uint64_t timeout) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  return guarded("zeCommandQueueSynchronize", [&] { return queue->stream.wait("zeCommandQueueSynchronize", timeout); });
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

}  // namespace zefuse::cuda
