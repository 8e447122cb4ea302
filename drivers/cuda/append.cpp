// Appending commands: checks, then recorded, or handed to the list's stream.
#include <algorithm>
#include <bit>
#include <cstring>

#include "drivers/cuda/command_list.h"
#include "drivers/cuda/command_queue.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/kernel.h"
#include "drivers/cuda/memory.h"

namespace zefuse::cuda {
namespace {

// The events of one append, as the application gave them.
struct EventHandles {
  const char* call;
  ze_event_handle_t signal;
  uint32_t wait_count;
  ze_event_handle_t* waits;
};

ze_result_t checkOpen(const char* call, const CommandList& list) {
  if (list.closed)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: the list is closed", call);
  return ZE_RESULT_SUCCESS;
}

ze_result_t checkEvents(const EventHandles& events) {
  if (events.signal && !fromHandle<Event>(events.signal))
    return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "%s: hSignalEvent is not a live event", events.call);
  if (events.wait_count != 0 && !events.waits)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: numWaitEvents is %u but phWaitEvents is NULL", events.call,
                  events.wait_count);
  for (uint32_t i = 0; i < events.wait_count; ++i)
    if (!fromHandle<Event>(events.waits[i]))
      return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, "%s: phWaitEvents[%u] is not a live event",
                    events.call, i);
  return ZE_RESULT_SUCCESS;
}

// Memory that CUDA's copies reach without staging it on the host.
bool isUsm(const void* pointer) { return AllocationTable::instance().find(nullptr, pointer).has_value(); }

// Behind an allocation lies somebody else's memory. What no allocation of ours holds is the caller's business.
ze_result_t checkWithin(const char* call, const char* what, const void* pointer, size_t bytes) {
  const auto allocation = AllocationTable::instance().find(nullptr, pointer);
  if (!allocation)
    return ZE_RESULT_SUCCESS;
  const size_t left = size_t(allocation->base + allocation->size - static_cast<const std::byte*>(pointer));
  if (bytes <= left)
    return ZE_RESULT_SUCCESS;
  return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: %s: %zu bytes at %p, whose allocation ends after %zu", call, what,
                bytes, pointer, left);
}

// Memory that the host reaches as well: pinned.
bool isHostUsm(const void* pointer) {
  const auto allocation = AllocationTable::instance().find(nullptr, pointer);
  return allocation && allocation->type != ZE_MEMORY_TYPE_DEVICE;
}

void findWhatRunsOnHost(Operation& operation) {
  if (auto* copy = std::get_if<CopyCommand>(&operation))
    copy->on_host = isHostUsm(copy->destination) && isHostUsm(copy->source);
  else if (auto* region = std::get_if<CopyRegionCommand>(&operation))
    region->on_host = isHostUsm(region->destination) && isHostUsm(region->source);
  else if (auto* query = std::get_if<QueryTimestampsCommand>(&operation))
    query->on_host = isHostUsm(query->destination);  // events lie in pinned memory
}

// A function of the host takes what it needs with it, once: no graph can call it again.
bool canBeCaptured(const Operation& operation) {
  if (runsOnHost(operation))
    return false;
  if (const auto* copy = std::get_if<CopyCommand>(&operation))
    return isUsm(copy->destination) && isUsm(copy->source);
  if (const auto* copy = std::get_if<CopyRegionCommand>(&operation))
    return isUsm(copy->destination) && isUsm(copy->source);
  if (const auto* query = std::get_if<QueryTimestampsCommand>(&operation))
    return isUsm(query->destination);
  return true;
}

// `make` returns the operation; it is called once, and may throw.
template <typename Make> ze_result_t append(CommandList& list, const EventHandles& events, Make&& make) {
  if (ze_result_t result = checkOpen(events.call, list))
    return result;
  if (ze_result_t result = checkEvents(events))
    return result;
  if (list.device.lost())
    return list.device.refuseLost(events.call);
  return guarded(events.call, [&]() -> ze_result_t {
    Command command = {make(), {}, {}};
    findWhatRunsOnHost(command.operation);
    for (uint32_t i = 0; i < events.wait_count; ++i)
      command.waits.emplace_back(fromHandle<Event>(events.waits[i]));
    if (events.signal)
      command.signal = Ref<Event>(fromHandle<Event>(events.signal));
    if (!list.immediate()) {
      list.capturable &= canBeCaptured(command.operation);
      list.recorded.push_back(std::move(command));
      return ZE_RESULT_SUCCESS;
    }
    if (ze_result_t result = list.stream->submit(events.call, command))
      return result;
    return list.kind == CommandList::Kind::synchronous ? list.stream->wait(events.call, UINT64_MAX) : ZE_RESULT_SUCCESS;
  });
}

ze_result_t appendLaunch(CommandList& list, Kernel& kernel, const ze_group_count_t& groups, bool cooperative,
                         const EventHandles& events) {
  if (ze_result_t result = checkTakesKernels(events.call, list.ordinal))
    return result;
  if (&kernel.module->device != &list.device)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: kernel '%s' is of another device than the list", events.call,
                  kernel.name().c_str());
  Parameters parameters;
  if (ze_result_t result = kernel.parameters(events.call, parameters))
    return result;
  constexpr uint32_t most = 65535;
  if (groups.groupCountX > INT32_MAX || groups.groupCountY > most || groups.groupCountZ > most)
    return refuse(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION,
                  "%s: kernel '%s': %u x %u x %u groups; 2147483647 x 65535 x 65535 are possible", events.call,
                  kernel.name().c_str(), groups.groupCountX, groups.groupCountY, groups.groupCountZ);
  return append(list, events, [&] {
    return LaunchCommand{kernel.module,
                         kernel.function,
                         &kernel.name(),
                         {groups.groupCountX, groups.groupCountY, groups.groupCountZ},
                         {kernel.group_size[0], kernel.group_size[1], kernel.group_size[2]},
                         std::move(parameters),
                         cooperative};
  });
}

}  // namespace

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

ze_result_t commandListAppendBarrier(ze_command_list_handle_t hCommandList, ze_event_handle_t hSignalEvent,
                                     uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  return append(*list, {"zeCommandListAppendBarrier", hSignalEvent, numWaitEvents, phWaitEvents},
                [] { return BarrierCommand(); });
}

ze_result_t commandListAppendMemoryRangesBarrier(ze_command_list_handle_t hCommandList, uint32_t numRanges,
                                                 const size_t* pRangeSizes, const void** pRanges,
                                                 ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                 ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(pRangeSizes);
  ZEFUSE_NOT_NULL(pRanges);
  return append(*list, {"zeCommandListAppendMemoryRangesBarrier", hSignalEvent, numWaitEvents, phWaitEvents},
                [] { return BarrierCommand(); });
}

ze_result_t commandListAppendMemoryCopy(ze_command_list_handle_t hCommandList, void* dstptr, const void* srcptr,
                                        size_t size, ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                        ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(dstptr);
  ZEFUSE_NOT_NULL(srcptr);
  if (ze_result_t result = checkWithin("zeCommandListAppendMemoryCopy", "dstptr", dstptr, size))
    return result;
  if (ze_result_t result = checkWithin("zeCommandListAppendMemoryCopy", "srcptr", srcptr, size))
    return result;
  return append(*list, {"zeCommandListAppendMemoryCopy", hSignalEvent, numWaitEvents, phWaitEvents},
                [&] { return CopyCommand{dstptr, srcptr, size}; });
}

ze_result_t commandListAppendMemoryCopyFromContext(ze_command_list_handle_t hCommandList, void* dstptr,
                                                   ze_context_handle_t hContextSrc, const void* srcptr, size_t size,
                                                   ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                   ze_event_handle_t* phWaitEvents) {
  if (hContextSrc)
    ZEFUSE_CHECK(Context, hContextSrc);
  // Addresses are unified: the process has one address space.
  return commandListAppendMemoryCopy(hCommandList, dstptr, srcptr, size, hSignalEvent, numWaitEvents, phWaitEvents);
}

ze_result_t commandListAppendMemoryFill(ze_command_list_handle_t hCommandList, void* ptr, const void* pattern,
                                        size_t pattern_size, size_t size, ze_event_handle_t hSignalEvent,
                                        uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(ptr);
  ZEFUSE_NOT_NULL(pattern);
  if (!std::has_single_bit(pattern_size) || pattern_size > kMaxFillPatternBytes)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE,
                  "zeCommandListAppendMemoryFill: a pattern of %zu bytes; a power of two up to %zu "
                  "is possible",
                  pattern_size, kMaxFillPatternBytes);
  if (ze_result_t result = checkWithin("zeCommandListAppendMemoryFill", "ptr", ptr, size))
    return result;
  return append(*list, {"zeCommandListAppendMemoryFill", hSignalEvent, numWaitEvents, phWaitEvents}, [&] {
    FillCommand command = {ptr, size, pattern_size, {}};
    static_assert(sizeof command.pattern == kMaxFillPatternBytes);
    std::memcpy(command.pattern, pattern, pattern_size);
    return command;
  });
}

ze_result_t commandListAppendMemoryCopyRegion(ze_command_list_handle_t hCommandList, void* dstptr,
                                              const ze_copy_region_t* dstRegion, uint32_t dstPitch,
                                              uint32_t dstSlicePitch, const void* srcptr,
                                              const ze_copy_region_t* srcRegion, uint32_t srcPitch,
                                              uint32_t srcSlicePitch, ze_event_handle_t hSignalEvent,
                                              uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(dstptr);
  ZEFUSE_NOT_NULL(dstRegion);
  ZEFUSE_NOT_NULL(srcptr);
  ZEFUSE_NOT_NULL(srcRegion);
  if (dstRegion->width != srcRegion->width || dstRegion->height != srcRegion->height ||
      dstRegion->depth != srcRegion->depth)
    return refuse(ZE_RESULT_ERROR_INVALID_SIZE,
                  "zeCommandListAppendMemoryCopyRegion: regions of %u x %u x %u and %u x %u x %u", dstRegion->width,
                  dstRegion->height, dstRegion->depth, srcRegion->width, srcRegion->height, srcRegion->depth);
  // A pitch of 0 means tightly packed; a 2D region may say depth 0.
  auto pitchOf = [](uint32_t pitch, const ze_copy_region_t& region) -> size_t { return pitch ? pitch : region.width; };
  auto slicePitchOf = [](uint32_t slice_pitch, size_t pitch, const ze_copy_region_t& region) {
    return slice_pitch ? size_t{slice_pitch} : pitch * region.height;
  };
  auto originOf = [](const ze_copy_region_t& region, size_t pitch, size_t slice_pitch) {
    return region.originX + region.originY * pitch + region.originZ * slice_pitch;
  };
  CopyRegionCommand command;
  command.width = srcRegion->width;
  command.height = srcRegion->height;
  command.depth = std::max(srcRegion->depth, 1u);
  command.destination_pitch = pitchOf(dstPitch, *dstRegion);
  command.source_pitch = pitchOf(srcPitch, *srcRegion);
  command.destination_slice_pitch = slicePitchOf(dstSlicePitch, command.destination_pitch, *dstRegion);
  command.source_slice_pitch = slicePitchOf(srcSlicePitch, command.source_pitch, *srcRegion);
  command.destination = static_cast<std::byte*>(dstptr) +
                        originOf(*dstRegion, command.destination_pitch, command.destination_slice_pitch);
  command.source =
      static_cast<const std::byte*>(srcptr) + originOf(*srcRegion, command.source_pitch, command.source_slice_pitch);
  if (command.width != 0 && command.height != 0) {
    auto bytesOf = [&](size_t pitch, size_t slice_pitch) {
      return (command.depth - 1) * slice_pitch + (command.height - 1) * pitch + command.width;
    };
    if (ze_result_t result = checkWithin("zeCommandListAppendMemoryCopyRegion", "dstptr", command.destination,
                                         bytesOf(command.destination_pitch, command.destination_slice_pitch)))
      return result;
    if (ze_result_t result = checkWithin("zeCommandListAppendMemoryCopyRegion", "srcptr", command.source,
                                         bytesOf(command.source_pitch, command.source_slice_pitch)))
      return result;
  }
  return append(*list, {"zeCommandListAppendMemoryCopyRegion", hSignalEvent, numWaitEvents, phWaitEvents},
                [&] { return command; });
}

// Hints about placement: device memory stays on the device, other USM on the host.
ze_result_t commandListAppendMemoryPrefetch(ze_command_list_handle_t hCommandList, const void* ptr, size_t size) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(ptr);
  return checkOpen("zeCommandListAppendMemoryPrefetch", *list);
}

ze_result_t commandListAppendMemAdvise(ze_command_list_handle_t hCommandList, ze_device_handle_t hDevice,
                                       const void* ptr, size_t size, ze_memory_advice_t advice) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_CHECK(Device, hDevice);
  ZEFUSE_NOT_NULL(ptr);
  return checkOpen("zeCommandListAppendMemAdvise", *list);
}

ze_result_t commandListAppendSignalEvent(ze_command_list_handle_t hCommandList, ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_CHECK(Event, hEvent);
  return append(*list, {"zeCommandListAppendSignalEvent", hEvent, 0, nullptr}, [] { return BarrierCommand(); });
}

ze_result_t commandListAppendWaitOnEvents(ze_command_list_handle_t hCommandList, uint32_t numEvents,
                                          ze_event_handle_t* phEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(phEvents);
  return append(*list, {"zeCommandListAppendWaitOnEvents", nullptr, numEvents, phEvents},
                [] { return BarrierCommand(); });
}

ze_result_t commandListAppendEventReset(ze_command_list_handle_t hCommandList, ze_event_handle_t hEvent) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Event, event, hEvent);
  return append(*list, {"zeCommandListAppendEventReset", nullptr, 0, nullptr},
                [&] { return ResetEventCommand{Ref<Event>(event)}; });
}

ze_result_t commandListAppendQueryKernelTimestamps(ze_command_list_handle_t hCommandList, uint32_t numEvents,
                                                   ze_event_handle_t* phEvents, void* dstptr, const size_t* pOffsets,
                                                   ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                   ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(phEvents);
  ZEFUSE_NOT_NULL(dstptr);
  for (uint32_t i = 0; i < numEvents; ++i) {
    ZEFUSE_OBJECT(Event, event, phEvents[i]);
    if (!event->timestamped)
      return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
                    "zeCommandListAppendQueryKernelTimestamps: event %u's pool was created without "
                    "ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP",
                    i);
  }
  return append(*list, {"zeCommandListAppendQueryKernelTimestamps", hSignalEvent, numWaitEvents, phWaitEvents}, [&] {
    QueryTimestampsCommand command;
    command.destination = static_cast<std::byte*>(dstptr);
    for (uint32_t i = 0; i < numEvents; ++i) {
      command.events.emplace_back(fromHandle<Event>(phEvents[i]));
      command.offsets.push_back(pOffsets ? pOffsets[i] : i * sizeof(ze_kernel_timestamp_result_t));
    }
    return command;
  });
}

// What the lists recorded runs between the waits and the signal, one list after the other.
ze_result_t commandListImmediateAppendCommandListsExp(ze_command_list_handle_t hCommandListImmediate,
                                                      uint32_t numCommandLists,
                                                      ze_command_list_handle_t* phCommandLists,
                                                      ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                      ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandListImmediate);
  ZEFUSE_NOT_NULL(phCommandLists);
  const char* call = "zeCommandListImmediateAppendCommandListsExp";
  if (!list->immediate())
    return refuse(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "%s: not an immediate list", call);
  if (ze_result_t result =
          checkExecutable<CommandList>(call, numCommandLists, phCommandLists, list->ordinal, list->device))
    return result;
  if (ze_result_t result = checkEvents({call, hSignalEvent, numWaitEvents, phWaitEvents}))
    return result;
  // Waits and signals go with barriers of their own; the stream keeps the order.
  if (ze_result_t result = append(*list, {call, nullptr, numWaitEvents, phWaitEvents}, [] { return BarrierCommand(); }))
    return result;
  const ze_result_t result = guarded(call, [&]() -> ze_result_t {
    for (uint32_t i = 0; i < numCommandLists; ++i)
      if (ze_result_t result = execute(call, *list->stream, *fromHandle<CommandList>(phCommandLists[i])))
        return result;
    return ZE_RESULT_SUCCESS;
  });
  return result ? result : append(*list, {call, hSignalEvent, 0, nullptr}, [] { return BarrierCommand(); });
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

}  // namespace zefuse::cuda
