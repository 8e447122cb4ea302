// Command lists, queues and fences, but for appending (append_calls.h). CommandList: `context`, `device`, `ordinal`,
// `queue_index`, `closed`, immediate(). CommandQueue: `desc`, `device`. Fence: `queue`. Device: queueGroups(). The
// driver's own:
//   ze_result_t makeList(Context&, Device&, uint32_t ordinal, CommandList*& out)
//   ze_result_t makeImmediateList(Context&, Device&, const ze_command_queue_desc_t&, CommandList*& out)
//   ze_result_t makeQueue(Context&, Device&, const ze_command_queue_desc_t&, CommandQueue*& out)
//   ze_result_t executeLists(CommandQueue&, uint32_t count, ze_command_list_handle_t*, Fence* or null)
#pragma once

#include "drivers/level_zero/calls.h"
#include "drivers/level_zero/context_calls.h"
#include "drivers/level_zero/queue_groups.h"

namespace zefuse::level_zero {

template <typename D> struct ListCalls {
  using Context = typename D::Context;
  using Device = typename D::Device;
  using CommandList = typename D::CommandList;
  using CommandQueue = typename D::CommandQueue;
  using Fence = typename D::Fence;

  static ze_result_t commandListCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                                       const ze_command_list_desc_t* desc, ze_command_list_handle_t* phCommandList) {
    ZEFUSE_OBJECT(Context, context, hContext);
    ZEFUSE_OBJECT(Device, device, hDevice);
    ZEFUSE_NOT_NULL(desc);
    ZEFUSE_NOT_NULL(phCommandList);
    *phCommandList = nullptr;
    const uint32_t ordinal = desc->commandQueueGroupOrdinal;
    if (ze_result_t result = checkInContext("zeCommandListCreate", *context, *device))
      return result;
    if (ze_result_t result = checkQueueGroup("zeCommandListCreate", device->queueGroups(), ordinal))
      return result;
    return createAs<CommandList>(__func__, phCommandList,
                                 [&](CommandList*& out) { return makeList(*context, *device, ordinal, out); });
  }

  static ze_result_t commandListCreateImmediate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
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
    return createAs<CommandList>(__func__, phCommandList, [&](CommandList*& out) {
      return makeImmediateList(*context, *device, *altdesc, out);
    });
  }

  static ze_result_t commandListDestroy(ze_command_list_handle_t hCommandList) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    list->destroy();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandListClose(ze_command_list_handle_t hCommandList) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    list->closed = !list->immediate();  // which needs neither to be closed nor reset, and takes it well
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandListGetDeviceHandle(ze_command_list_handle_t hCommandList, ze_device_handle_t* phDevice) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(phDevice);
    *phDevice = toHandle<ze_device_handle_t>(const_cast<Device*>(&list->device));
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandListGetContextHandle(ze_command_list_handle_t hCommandList,
                                                 ze_context_handle_t* phContext) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(phContext);
    *phContext = toHandle<ze_context_handle_t>(list->context.get());
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandListGetOrdinal(ze_command_list_handle_t hCommandList, uint32_t* pOrdinal) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(pOrdinal);
    *pOrdinal = list->ordinal;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandListImmediateGetIndex(ze_command_list_handle_t hCommandListImmediate, uint32_t* pIndex) {
    ZEFUSE_OBJECT(CommandList, list, hCommandListImmediate);
    ZEFUSE_NOT_NULL(pIndex);
    if (!list->immediate())
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "zeCommandListImmediateGetIndex: not an immediate list");
    *pIndex = list->queue_index;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandListIsImmediate(ze_command_list_handle_t hCommandList, ze_bool_t* pIsImmediate) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(pIsImmediate);
    *pIsImmediate = list->immediate();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandQueueCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice,
                                        const ze_command_queue_desc_t* desc,
                                        ze_command_queue_handle_t* phCommandQueue) {
    ZEFUSE_OBJECT(Context, context, hContext);
    ZEFUSE_OBJECT(Device, device, hDevice);
    ZEFUSE_NOT_NULL(desc);
    ZEFUSE_NOT_NULL(phCommandQueue);
    *phCommandQueue = nullptr;
    if (ze_result_t result = checkInContext("zeCommandQueueCreate", *context, *device))
      return result;
    if (ze_result_t result = checkQueueDesc("zeCommandQueueCreate", device->queueGroups(), *desc))
      return result;
    return createAs<CommandQueue>(__func__, phCommandQueue,
                                  [&](CommandQueue*& out) { return makeQueue(*context, *device, *desc, out); });
  }

  static ze_result_t commandQueueDestroy(ze_command_queue_handle_t hCommandQueue) {
    ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
    queue->destroy();
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandQueueExecuteCommandLists(ze_command_queue_handle_t hCommandQueue, uint32_t numCommandLists,
                                                     ze_command_list_handle_t* phCommandLists,
                                                     ze_fence_handle_t hFence) {
    const char* call = "zeCommandQueueExecuteCommandLists";
    ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
    ZEFUSE_NOT_NULL(phCommandLists);
    if (numCommandLists == 0)
      return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: 0 lists", call);
    Fence* fence = nullptr;
    if (hFence) {
      ZEFUSE_OBJECT(Fence, given, hFence);
      if (&*given->queue != queue)
        return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "%s: the fence belongs to another queue", call);
      fence = given;
    }
    if (ze_result_t result =
            checkExecutable<CommandList>(call, numCommandLists, phCommandLists, queue->desc.ordinal, queue->device))
      return result;  // before the first one runs
    return guarded(call, [&] { return executeLists(*queue, numCommandLists, phCommandLists, fence); });
  }

  static ze_result_t commandQueueGetOrdinal(ze_command_queue_handle_t hCommandQueue, uint32_t* pOrdinal) {
    ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
    ZEFUSE_NOT_NULL(pOrdinal);
    *pOrdinal = queue->desc.ordinal;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t commandQueueGetIndex(ze_command_queue_handle_t hCommandQueue, uint32_t* pIndex) {
    ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
    ZEFUSE_NOT_NULL(pIndex);
    *pIndex = queue->desc.index;
    return ZE_RESULT_SUCCESS;
  }

  static ze_result_t fenceDestroy(ze_fence_handle_t hFence) {
    ZEFUSE_OBJECT(Fence, fence, hFence);
    fence->destroy();
    return ZE_RESULT_SUCCESS;
  }

  static void fill(Entries& made) {
    made.command_list.pfnCreate = commandListCreate;
    made.command_list.pfnCreateImmediate = commandListCreateImmediate;
    made.command_list.pfnDestroy = commandListDestroy;
    made.command_list.pfnClose = commandListClose;
    made.command_queue.pfnCreate = commandQueueCreate;
    made.command_queue.pfnDestroy = commandQueueDestroy;
    made.command_queue.pfnExecuteCommandLists = commandQueueExecuteCommandLists;
    made.fence.pfnDestroy = fenceDestroy;
    made.newer.commandListGetDeviceHandle = commandListGetDeviceHandle;
    made.newer.commandListGetContextHandle = commandListGetContextHandle;
    made.newer.commandListGetOrdinal = commandListGetOrdinal;
    made.newer.commandListImmediateGetIndex = commandListImmediateGetIndex;
    made.newer.commandListIsImmediate = commandListIsImmediate;
    made.newer.commandQueueGetOrdinal = commandQueueGetOrdinal;
    made.newer.commandQueueGetIndex = commandQueueGetIndex;
  }
};

}  // namespace zefuse::level_zero
