#include "drivers/cpu/command_list.h"

#include "drivers/cpu/command_queue.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/worker.h"

namespace zefuse::cpu {
namespace {

CommandList::Kind kindFor(ze_command_queue_mode_t mode) {
  switch (mode) {
  case ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS: return CommandList::Kind::synchronous;
  case ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS: return CommandList::Kind::asynchronous;
  default: return CommandList::Kind::adaptive;
  }
}

}  // namespace

CommandList::CommandList(Context& owner, const Device& device, Kind kind, uint32_t ordinal, uint32_t queue_index,
                         bool in_order)
    : context(&owner), device(device), kind(kind), ordinal(ordinal), queue_index(queue_index) {
  if (kind == Kind::regular)
    recorded = std::make_shared<CommandSequence>();
  else if (kind != Kind::synchronous)
    worker = std::make_unique<Worker>(owner, device.is_gpu && !in_order ? Worker::Order::between_barriers
                                                                        : Worker::Order::submitted);
}

CommandList::~CommandList() = default;

ze_result_t commandListCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                              const ze_command_list_desc_t* desc, ze_command_list_handle_t* phCommandList) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phCommandList);
  *phCommandList = nullptr;
  if (ze_result_t result = checkInContext("zeCommandListCreate", *context, *device))
    return result;
  if (ze_result_t result =
          checkQueueGroup("zeCommandListCreate", device->queueGroups(), desc->commandQueueGroupOrdinal))
    return result;
  return guarded(__func__, [&] {
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
  if (ze_result_t result = checkInContext("zeCommandListCreateImmediate", *context, *device))
    return result;
  if (ze_result_t result = checkQueueDesc("zeCommandListCreateImmediate", device->queueGroups(), *altdesc))
    return result;
  constexpr ze_command_queue_flags_t kInOrder = ZE_BIT(1);  // ZE_COMMAND_QUEUE_FLAG_IN_ORDER of newer headers
  return guarded(__func__, [&] {
    *phCommandList = toHandle<ze_command_list_handle_t>(new CommandList(
        *context, *device, kindFor(altdesc->mode), altdesc->ordinal, altdesc->index, (altdesc->flags & kInOrder) != 0));
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
  return guarded(__func__, [&] {
    list->recorded = std::make_shared<CommandSequence>();
    list->closed = false;
    list->has_waits = false;
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t commandListHostSynchronize(ze_command_list_handle_t hCommandList, uint64_t timeout) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  if (!list->immediate())
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeCommandListHostSynchronize: not an immediate list");
  return list->worker ? list->worker->wait(__func__, timeout) : ZE_RESULT_SUCCESS;
}

ze_result_t commandListGetDeviceHandle(ze_command_list_handle_t hCommandList, ze_device_handle_t* phDevice) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(phDevice);
  *phDevice = toHandle<ze_device_handle_t>(const_cast<Device*>(&list->device));
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

}  // namespace zefuse::cpu
