#include "drivers/cuda/command_list.h"

#include "drivers/cuda/command_queue.h"

namespace zefuse::cuda {

CommandList::~CommandList() { forget(); }

void CommandList::forget() {
  if (graph) {
    const Current current(device);
    cuda().cuGraphExecDestroy(graph);  // one that runs still ends
  }
  graph = nullptr;
  recorded.clear();
  capturable = true;
}

ze_result_t makeList(Context& context, Device& device, uint32_t ordinal, CommandList*& out) {
  if (ze_result_t result = device.open("zeCommandListCreate"))
    return result;
  out = new CommandList(context, device, CommandList::Kind::regular, ordinal, 0);
  return ZE_RESULT_SUCCESS;
}

ze_result_t makeImmediateList(Context& context, Device& device, const ze_command_queue_desc_t& desc,
                              CommandList*& out) {
  const bool synchronous = desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
  Ref<CommandList> list(new CommandList(context, device,
                                        synchronous ? CommandList::Kind::synchronous : CommandList::Kind::asynchronous,
                                        desc.ordinal, desc.index));
  list->release();  // the application's reference is taken below
  list->stream = std::make_unique<Stream>(device);
  if (ze_result_t result = list->stream->create("zeCommandListCreateImmediate", desc.pNext))
    return result;
  list->retain();
  out = list.get();
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandListReset(ze_command_list_handle_t hCommandList) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  if (list->immediate())
    return ZE_RESULT_SUCCESS;  // nothing is recorded
  list->forget();
  list->closed = false;
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandListHostSynchronize(ze_command_list_handle_t hCommandList, uint64_t timeout) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  if (!list->immediate())
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeCommandListHostSynchronize: not an immediate list");
  return guarded("zeCommandListHostSynchronize",
                 [&] { return list->stream->wait("zeCommandListHostSynchronize", timeout); });
}

}  // namespace zefuse::cuda
