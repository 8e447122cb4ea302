#include "drivers/cpu/append.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <list>

#include "drivers/cpu/command_queue.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/kernel.h"
#include "drivers/cpu/worker.h"

namespace zefuse::cpu {
namespace {

Command withEvents(Operation&& operation, const EventHandles& events) {
  Command command = {std::move(operation), {}, {}};
  for (uint32_t i = 0; i < events.wait_count; ++i)
    command.waits.emplace_back(fromHandle<Event>(events.waits[i]));
  if (events.signal)
    command.signal = Ref<Event>(fromHandle<Event>(events.signal));
  return command;
}

bool allSignalled(const EventHandles& events) {
  return std::all_of(events.waits, events.waits + events.wait_count,
                     [](ze_event_handle_t handle) { return fromHandle<Event>(handle)->isSignalled(); });
}

}  // namespace

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

bool runsNow(const CommandList& list, const EventHandles& events) {
  if (list.kind == CommandList::Kind::synchronous)
    return true;
  return list.kind == CommandList::Kind::adaptive && list.worker->ready() && allSignalled(events);
}

ze_result_t awaitAll(const EventHandles& events) {
  for (uint32_t i = 0; i < events.wait_count; ++i) {
    Event* event = fromHandle<Event>(events.waits[i]);
    event->wait(std::numeric_limits<uint64_t>::max());
    if (ze_result_t result = checkAwaited(events.call, *event))
      return result;
  }
  return ZE_RESULT_SUCCESS;
}

void keep(CommandList& list, Operation&& operation, const EventHandles& events) {
  Command command = withEvents(std::move(operation), events);
  if (!list.immediate()) {
    list.has_waits |= events.wait_count != 0;
    list.recorded->push_back(std::move(command));
    return;
  }
  auto sequence = std::make_shared<CommandSequence>();
  sequence->push_back(std::move(command));
  list.worker->submit(std::move(sequence));
}

// The hot path of the whole product: on a synchronous immediate list without events, checks and the groups, nothing
// else.
ze_result_t commandListAppendLaunchKernel(ze_command_list_handle_t hCommandList, ze_kernel_handle_t hKernel,
                                          const ze_group_count_t* pLaunchFuncArgs, ze_event_handle_t hSignalEvent,
                                          uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pLaunchFuncArgs);
  const EventHandles events = {"zeCommandListAppendLaunchKernel", hSignalEvent, numWaitEvents, phWaitEvents};
  if (ze_result_t result = checkTakesKernels(events.call, list->ordinal))
    return result;
  if (ze_result_t result = kernel->checkLaunch())
    return result;
  if (ze_result_t result = checkGroupCount(*pLaunchFuncArgs))
    return result;
  if (ze_result_t result = checkEvents(events))
    return result;
  if (runsNow(*list, events) && !isolatesMemory(kernel->module->device)) {
    KernelCall call = kernel->call(*pLaunchFuncArgs);
    return runNow(events, [&] { return runGroups(call, Team::callers); });
  }
  return append(*list, events, [&] { return LaunchCommand(*kernel, *pLaunchFuncArgs); });
}

ze_result_t commandListAppendLaunchCooperativeKernel(ze_command_list_handle_t hCommandList, ze_kernel_handle_t hKernel,
                                                     const ze_group_count_t* pLaunchFuncArgs,
                                                     ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                     ze_event_handle_t* phWaitEvents) {
  ZEFUSE_NOT_NULL(pLaunchFuncArgs);
  if (pLaunchFuncArgs->groupCountX > 1 || pLaunchFuncArgs->groupCountY > 1 || pLaunchFuncArgs->groupCountZ > 1)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                  "zeCommandListAppendLaunchCooperativeKernel: %u x %u x %u groups; "
                  "zeKernelSuggestMaxCooperativeGroupCount says 1",
                  pLaunchFuncArgs->groupCountX, pLaunchFuncArgs->groupCountY, pLaunchFuncArgs->groupCountZ);
  return commandListAppendLaunchKernel(hCommandList, hKernel, pLaunchFuncArgs, hSignalEvent, numWaitEvents,
                                       phWaitEvents);
}

ze_result_t commandListAppendLaunchKernelIndirect(ze_command_list_handle_t hCommandList, ze_kernel_handle_t hKernel,
                                                  const ze_group_count_t* pLaunchArgumentsBuffer,
                                                  ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                  ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_OBJECT(Kernel, kernel, hKernel);
  ZEFUSE_NOT_NULL(pLaunchArgumentsBuffer);
  if (ze_result_t result = checkTakesKernels("zeCommandListAppendLaunchKernelIndirect", list->ordinal))
    return result;
  if (ze_result_t result = kernel->checkLaunch())
    return result;
  return append(*list, {"zeCommandListAppendLaunchKernelIndirect", hSignalEvent, numWaitEvents, phWaitEvents}, [&] {
    LaunchCommand command(*kernel, {1, 1, 1});
    command.indirect_groups = pLaunchArgumentsBuffer;
    return command;
  });
}

ze_result_t commandListAppendLaunchMultipleKernelsIndirect(ze_command_list_handle_t hCommandList, uint32_t numKernels,
                                                           ze_kernel_handle_t* phKernels, const uint32_t* pCountBuffer,
                                                           const ze_group_count_t* pLaunchArgumentsBuffer,
                                                           ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                           ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(phKernels);
  ZEFUSE_NOT_NULL(pCountBuffer);
  ZEFUSE_NOT_NULL(pLaunchArgumentsBuffer);
  const char* call = "zeCommandListAppendLaunchMultipleKernelsIndirect";
  for (uint32_t i = 0; i < numKernels; ++i) {
    ZEFUSE_OBJECT(Kernel, kernel, phKernels[i]);
    if (ze_result_t result = kernel->checkLaunch())
      return result;
  }
  // One command per kernel between two that wait and signal: the list runs in order.
  if (ze_result_t result = append(*list, {call, nullptr, numWaitEvents, phWaitEvents}, [] { return BarrierCommand(); }))
    return result;
  for (uint32_t i = 0; i < numKernels; ++i) {
    ze_result_t result = append(*list, {call, nullptr, 0, nullptr}, [&] {
      LaunchCommand command(*fromHandle<Kernel>(phKernels[i]), {1, 1, 1});
      command.indirect_groups = &pLaunchArgumentsBuffer[i];
      command.indirect_count = pCountBuffer;
      command.index = i;
      return command;
    });
    if (result)
      return result;
  }
  return append(*list, {call, hSignalEvent, 0, nullptr}, [] { return BarrierCommand(); });
}

ze_result_t commandListAppendWriteGlobalTimestamp(ze_command_list_handle_t hCommandList, uint64_t* dstptr,
                                                  ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                  ze_event_handle_t* phWaitEvents) {
  ZEFUSE_OBJECT(CommandList, list, hCommandList);
  ZEFUSE_NOT_NULL(dstptr);
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
  return append(*list, {"zeCommandListAppendMemoryCopy", hSignalEvent, numWaitEvents, phWaitEvents},
                [&] { return CopyCommand{dstptr, srcptr, size}; });
}

ze_result_t commandListAppendMemoryCopyFromContext(ze_command_list_handle_t hCommandList, void* dstptr,
                                                   ze_context_handle_t hContextSrc, const void* srcptr, size_t size,
                                                   ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                   ze_event_handle_t* phWaitEvents) {
  if (hContextSrc)
    ZEFUSE_CHECK(Context, hContextSrc);
  // Every context's memory is the host's.
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
  return append(*list, {"zeCommandListAppendMemoryCopyRegion", hSignalEvent, numWaitEvents, phWaitEvents},
                [&] { return command; });
}

// Hints about placement: there is one place.
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
  const EventHandles events = {call, hSignalEvent, numWaitEvents, phWaitEvents};
  if (ze_result_t result =
          checkExecutable<CommandList>(call, numCommandLists, phCommandLists, list->ordinal, list->device))
    return result;
  if (ze_result_t result = checkEvents(events))
    return result;
  if (deviceLost() && list->device.is_gpu)
    return refuse(ZE_RESULT_ERROR_DEVICE_LOST, "%s: the device is lost", call);
  return guarded(call, [&]() -> ze_result_t {
    const bool blocks = list->kind != CommandList::Kind::synchronous && mayWait(numCommandLists, phCommandLists);
    if (runsNow(*list, events) && !blocks)
      return runNow(events, [&] {
        const Site site = {Team::callers};
        Progress progress(site);
        for (uint32_t i = 0; i < numCommandLists; ++i)
          progress.run(*fromHandle<CommandList>(phCommandLists[i])->recorded);
        return progress.failure() ? progress.failure()->tell(call) : ZE_RESULT_SUCCESS;
      });
    // A barrier before each, as what is submitted between two barriers may run in any order.
    std::list<Submission> submissions;
    auto barrier = [&](const EventHandles& some) {
      auto sequence = std::make_shared<CommandSequence>();
      sequence->push_back(withEvents(BarrierCommand(), some));
      submissions.push_back({std::move(sequence), {}});
    };
    barrier({call, nullptr, numWaitEvents, phWaitEvents});
    for (uint32_t i = 0; i < numCommandLists; ++i) {
      submissions.push_back({fromHandle<CommandList>(phCommandLists[i])->recorded, {}});
      barrier({call, i + 1 == numCommandLists ? hSignalEvent : nullptr, 0, nullptr});
    }
    list->worker->submit(std::move(submissions));
    return ZE_RESULT_SUCCESS;
  });
}

}  // namespace zefuse::cpu
