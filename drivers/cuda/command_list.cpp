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

ze_result_t commandListCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                              const ze_command_list_desc_t* desc, ze_command_list_handle_t* phCommandList) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phCommandList);
  *phCommandList = nullptr;
  if (ze_result_t result =
          checkQueueGroup("zeCommandListCreate", device->queueGroups(), desc->commandQueueGroupOrdinal))
    return result;
  return guarded(__func__, [&]() -> ze_result_t {
    if (ze_result_t result = device->open("zeCommandListCreate"))
      return result;
    *phCommandList = toHandle<ze_command_list_handle_t>(
        new CommandList(*context, *device, CommandList::Kind::regular, desc->commandQueueGroupOrdinal, 0));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t commandListCreateImmediate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                                       const ze_command_queue_desc_t* altdesc,
                                       ze_command_list_handle_t* phCommandList) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(altdesc);
  ZEFUSE_NOT_NULL(phCommandList);
  *phCommandList = nullptr;
  if (ze_result_t result = checkQueueDesc("zeCommandListCreateImmediate", device->queueGroups(), *altdesc))
    return result;
  return guarded(__func__, [&]() -> ze_result_t {
    const bool synchronous = altdesc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    Ref<CommandList> list(new CommandList(
        *context, *device, synchronous ? CommandList::Kind::synchronous : CommandList::Kind::asynchronous,
        altdesc->ordinal, altdesc->index));
    list->release();  // the application's reference is taken below
    list->stream = std::make_unique<Stream>(*device);
    if (ze_result_t result = list->stream->create("zeCommandListCreateImmediate"))
      return result;
    list->retain();
    *phCommandList = toHandle<ze_command_list_handle_t>(list.get());
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t commandListDestroy(ze_command_list_handle_t hCommandList) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  list->destroy();
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandListClose(ze_command_list_handle_t hCommandList) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  list->closed = !list->immediate();  // which needs neither to be closed nor reset, and takes it well
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

ze_result_t commandListGetDeviceHandle(ze_command_list_handle_t hCommandList, ze_device_handle_t* phDevice) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(phDevice);
  *phDevice = toHandle<ze_device_handle_t>(&list->device);
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandListGetContextHandle(ze_command_list_handle_t hCommandList, ze_context_handle_t* phContext) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(phContext);
  *phContext = toHandle<ze_context_handle_t>(list->context.get());
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandListGetOrdinal(ze_command_list_handle_t hCommandList, uint32_t* pOrdinal) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(pOrdinal);
  *pOrdinal = list->ordinal;
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandListImmediateGetIndex(ze_command_list_handle_t hCommandListImmediate, uint32_t* pIndex) {
  ZEFUSE_OBJECT(CommandList, list, hCommandListImmediate);
  ZEFUSE_NOT_NULL(pIndex);
  if (!list->immediate())
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeCommandListImmediateGetIndex: not an immediate list");
  *pIndex = list->queue_index;
  return ZE_RESULT_SUCCESS;
}

ze_result_t commandListIsImmediate(ze_command_list_handle_t hCommandList, ze_bool_t* pIsImmediate) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(pIsImmediate);
  *pIsImmediate = list->immediate();
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
