#include "drivers/cuda/append.h"

#include "drivers/cuda/command_queue.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/kernel.h"
#include "drivers/cuda/memory.h"

namespace zefuse::cuda {
namespace {

// Memory that CUDA's copies reach without staging it on the host.
bool isUsm(const void* pointer) { return AllocationTable::instance().findAny(pointer).has_value(); }

// Memory that the host reaches as well: pinned.
bool isHostUsm(const void* pointer) {
  const auto allocation = AllocationTable::instance().findAny(pointer);
  return allocation && allocation->type != ZE_MEMORY_TYPE_DEVICE;
}

bool runsOnHost(const Operation& operation) {
  if (const auto* copy = std::get_if<CopyCommand>(&operation))
    return isHostUsm(copy->destination) && isHostUsm(copy->source);
  if (const auto* copy = std::get_if<CopyRegionCommand>(&operation))
    return isHostUsm(copy->destination) && isHostUsm(copy->source);
  if (const auto* query = std::get_if<QueryTimestampsCommand>(&operation))
    return isHostUsm(query->destination);  // events lie in pinned memory
  return false;
}

// USM, or device memory of the application's own (torch's tensors): what a graph may copy. Other memory of the host is
// not, pinned or not: its owner may free it while the list lives.
bool isDevices(const Device& device, const void* pointer) {
  if (isUsm(pointer))
    return true;
  const Current current(device);
  unsigned type = 0;
  return cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      reinterpret_cast<CUdeviceptr>(pointer)) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

// A function of the host takes what it needs with it, once: no graph can call it again.
bool canBeCaptured(const Device& device, const Command& command) {
  if (command.on_host)
    return false;
  if (const auto* copy = std::get_if<CopyCommand>(&command.operation))
    return isDevices(device, copy->destination) && isDevices(device, copy->source);
  if (const auto* copy = std::get_if<CopyRegionCommand>(&command.operation))
    return isDevices(device, copy->destination) && isDevices(device, copy->source);
  if (const auto* query = std::get_if<QueryTimestampsCommand>(&command.operation))
    return isUsm(query->destination);
  return true;
}

ze_result_t appendLaunch(CommandList& list, Kernel& kernel, const ze_group_count_t& groups, bool cooperative,
                         const EventHandles& events) {
  if (ze_result_t result = checkTakesKernels(events.call, list.ordinal))
    return result;
  if (&kernel.module->device != &list.device)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: kernel '%s' is of another device than the list", events.call,
                  kernel.name().c_str());
  if (ze_result_t result = kernel.prepare(events.call))
    return result;
  constexpr uint32_t most = 65535;
  if (groups.groupCountX > INT32_MAX || groups.groupCountY > most || groups.groupCountZ > most)
    return refuse(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION,
                  "%s: kernel '%s': %u x %u x %u groups; 2147483647 x 65535 x 65535 are possible", events.call,
                  kernel.name().c_str(), groups.groupCountX, groups.groupCountY, groups.groupCountZ);
  const LaunchShape shape = {{groups.groupCountX, groups.groupCountY, groups.groupCountZ},
                             {kernel.group_size[0], kernel.group_size[1], kernel.group_size[2]},
                             kernel.parameters().local_bytes,
                             cooperative};
  if (list.kind == CommandList::Kind::asynchronous && events.none()) [[likely]]  // nothing is kept: CUDA copies all
    return list.device.lost() ? list.device.refuseLost(events.call) : guarded(events.call, [&] {
      return list.stream->launch(events.call, kernel.function, kernel.kept_name, shape, kernel.pointers());
    });
  return append(list, events, [&] {
    return LaunchCommand{kernel.module, kernel.function, kernel.kept_name, shape, kernel.parameters()};
  });
}

}  // namespace

ze_result_t checkReach(const CommandList&, const char* call, const char* argument, const void* pointer, size_t bytes) {
  const auto allocation = AllocationTable::instance().findAny(pointer);
  if (!allocation)
    return ZE_RESULT_SUCCESS;
  const size_t left = size_t(allocation->base + allocation->size - static_cast<const std::byte*>(pointer));
  if (bytes <= left)
    return ZE_RESULT_SUCCESS;
  return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: %s: %zu bytes at %p, whose allocation ends after %zu", call,
                argument, bytes, pointer, left);
}

ze_result_t submit(CommandList& list, Operation&& operation, const EventHandles& events) {
  Command command = {std::move(operation), {}, {}};
  command.on_host = runsOnHost(command.operation);
  addEvents<Event>(command, events);
  if (!list.immediate()) {
    list.capturable &= canBeCaptured(list.device, command);
    list.recorded.push_back(std::move(command));
    return ZE_RESULT_SUCCESS;
  }
  if (ze_result_t result = list.stream->submit(events.call, command))
    return result;
  return list.kind == CommandList::Kind::synchronous ? list.stream->wait(events.call, UINT64_MAX) : ZE_RESULT_SUCCESS;
}

ze_result_t commandListAppendLaunchKernel(ze_command_list_handle_t hCommandList, ze_kernel_handle_t hKernel,
                                          const ze_group_count_t* pLaunchFuncArgs, ze_event_handle_t hSignalEvent,
                                          uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pLaunchFuncArgs);
  return appendLaunch(*list, *kernel, *pLaunchFuncArgs, false,
                      {"zeCommandListAppendLaunchKernel", hSignalEvent, numWaitEvents, phWaitEvents});
}

ze_result_t commandListAppendLaunchCooperativeKernel(ze_command_list_handle_t hCommandList, ze_kernel_handle_t hKernel,
                                                     const ze_group_count_t* pLaunchFuncArgs,
                                                     ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                     ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pLaunchFuncArgs);
  return appendLaunch(*list, *kernel, *pLaunchFuncArgs, true,
                      {"zeCommandListAppendLaunchCooperativeKernel", hSignalEvent, numWaitEvents, phWaitEvents});
}

ze_result_t commandListAppendWriteGlobalTimestamp(ze_command_list_handle_t hCommandList, uint64_t* dstptr,
                                                  ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                  ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(dstptr);
  if (!isUsm(dstptr))
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                  "zeCommandListAppendWriteGlobalTimestamp: %p is no USM: the device cannot write there",
                  static_cast<void*>(dstptr));
  return append(*list, {"zeCommandListAppendWriteGlobalTimestamp", hSignalEvent, numWaitEvents, phWaitEvents},
                [&] { return WriteTimestampCommand{dstptr}; });
}

// Waits and signals go with barriers of their own; the stream keeps the order.
ze_result_t appendLists(CommandList& list, uint32_t count, ze_command_list_handle_t* lists,
                        const EventHandles& events) {
  auto barrier = [] { return BarrierCommand(); };
  if (ze_result_t result = append(list, {events.call, nullptr, events.wait_count, events.waits}, barrier))
    return result;
  for (uint32_t i = 0; i < count; ++i)
    if (ze_result_t result = execute(events.call, *list.stream, *fromHandle<CommandList>(lists[i])))
      return result;
  return append(list, {events.call, events.signal, 0, nullptr}, barrier);
}

ze_result_t commandListAppendProduct(ze_command_list_handle_t hCommandList, ze_extension::ProductHandle* hProduct,
                                     const ze_extension::ProductOperands* pOperands, ze_event_handle_t hSignalEvent,
                                     uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Product, product, hProduct);
  ZEFUSE_NOT_NULL(pOperands);
  constexpr const char* call = ze_extension::append_product_name;
  if (&product->device != &list->device)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: the product is of another device than the list", call);
  if (ze_result_t result = checkTakesKernels(call, list->ordinal))
    return result;
  const ze_extension::ProductOperands& given = *pOperands;
  if (!given.a || !given.b || !given.out || (product->desc.bias && !given.bias) ||
      (product->workspaceBytes() && !given.workspace))
    return refuse(ZE_RESULT_ERROR_INVALID_NULL_POINTER, "%s: an operand or the workspace is NULL", call);
  return append(*list, {call, hSignalEvent, numWaitEvents, phWaitEvents},
                [&] { return ProductCommand{Ref<Product>(product), given}; });
}

ze_result_t commandListAppendConvolution(ze_command_list_handle_t hCommandList,
                                         ze_extension::ConvolutionHandle* hConvolution,
                                         const ze_extension::ConvolutionOperands* pOperands,
                                         ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                         ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Convolution, convolution, hConvolution);
  ZEFUSE_NOT_NULL(pOperands);
  constexpr const char* call = ze_extension::append_convolution_name;
  if (&convolution->device != &list->device)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: the convolution is of another device than the list", call);
  if (ze_result_t result = checkTakesKernels(call, list->ordinal))
    return result;
  const ze_extension::ConvolutionOperands& given = *pOperands;
  const ze_extension::ConvolutionDesc& desc = convolution->desc;
  if (!given.image || !given.weight || !given.result || (desc.bias && !given.bias) ||
      (desc.residual && !given.residual) || (convolution->workspaceBytes() && !given.workspace))
    return refuse(ZE_RESULT_ERROR_INVALID_NULL_POINTER, "%s: an operand or the workspace is NULL", call);
  return append(*list, {call, hSignalEvent, numWaitEvents, phWaitEvents},
                [&] { return ConvolutionCommand{Ref<Convolution>(convolution), given}; });
}

}  // namespace zefuse::cuda
