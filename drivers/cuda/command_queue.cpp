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

ze_result_t makeQueue(Context& context, Device& device, const ze_command_queue_desc_t& desc, CommandQueue*& out) {
  Ref<CommandQueue> queue(new CommandQueue(context, device, desc));
  queue->release();  // the application's reference is taken below
  if (ze_result_t result = queue->stream.create("zeCommandQueueCreate", desc.pNext))
    return result;
  queue->retain();
  out = queue.get();
  return ZE_RESULT_SUCCESS;
}

ze_result_t executeLists(CommandQueue& queue, uint32_t count, ze_command_list_handle_t* lists, Fence* fence) {
  const char* call = "zeCommandQueueExecuteCommandLists";
  for (uint32_t i = 0; i < count; ++i)
    if (ze_result_t result = execute(call, queue.stream, *fromHandle<CommandList>(lists[i])))
      return result;
  if (fence)
    if (ze_result_t result = queue.stream.signalFence(call, fence->word))
      return result;
  return queue.desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS ? queue.stream.wait(call, UINT64_MAX) : ZE_RESULT_SUCCESS;
}

ze_result_t commandQueueSynchronize(ze_command_queue_handle_t hCommandQueue, uint64_t timeout) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  return guarded("zeCommandQueueSynchronize", [&] { return queue->stream.wait("zeCommandQueueSynchronize", timeout); });
}

}  // namespace zefuse::cuda
