// Appending to lists, but for launches, images and global timestamps. The driver's own:
//   ze_result_t append(CommandList&, const EventHandles&, make)  // make() returns the command; is called once, may
//   throw ze_result_t appendLists(CommandList& immediate, uint32_t count, ze_command_list_handle_t*, const
//   EventHandles&) ze_result_t checkReach(const CommandList&, const char* call, const char* argument, const void*,
//   size_t bytes)
//     whether a command may read or write so many bytes there: behind an allocation lies somebody else's memory
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "drivers/level_zero/calls.h"
#include "drivers/level_zero/commands.h"
#include "drivers/level_zero/queue_groups.h"

namespace zefuse::level_zero {

// The events of one append, as the application gave them.
struct EventHandles {
  const char* call;
  ze_event_handle_t signal;
  uint32_t wait_count;
  ze_event_handle_t* waits;

  bool none() const { return !signal && wait_count == 0; }
};

template <typename CommandList> ze_result_t checkOpen(const char* call, const CommandList& list) {
  if (list.closed)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "%s: the list is closed", call);
  return ZE_RESULT_SUCCESS;
}

template <typename Event> ze_result_t checkEvents(const EventHandles& events) {
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

// Gives the command the events, which were checked.
template <typename Event, typename Command> void addEvents(Command& command, const EventHandles& events) {
  for (uint32_t i = 0; i < events.wait_count; ++i)
    command.waits.emplace_back(fromHandle<Event>(events.waits[i]));
  if (events.signal)
    command.signal = Ref<Event>(fromHandle<Event>(events.signal));
}

// A region copy's addresses and pitches, or INVALID_SIZE where the regions differ in size. A pitch of 0 means without
// gaps; a 2D region may say depth 0.
ze_result_t makeCopyRegion(const char* call, void* destination, const ze_copy_region_t& destination_region,
                           uint32_t destination_pitch, uint32_t destination_slice_pitch, const void* source,
                           const ze_copy_region_t& source_region, uint32_t source_pitch, uint32_t source_slice_pitch,
                           CopyRegionCommand& out);

template <typename D> struct AppendCalls {
  using Context = typename D::Context;
  using Device = typename D::Device;
  using CommandList = typename D::CommandList;
  using Event = typename D::Event;

  static ze_result_t commandListAppendBarrier(ze_command_list_handle_t hCommandList, ze_event_handle_t hSignalEvent,
                                              uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    return append(*list, EventHandles{"zeCommandListAppendBarrier", hSignalEvent, numWaitEvents, phWaitEvents},
                  [] { return BarrierCommand(); });
  }

  static ze_result_t commandListAppendMemoryRangesBarrier(ze_command_list_handle_t hCommandList, uint32_t,
                                                          const size_t* pRangeSizes, const void** pRanges,
                                                          ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                          ze_event_handle_t* phWaitEvents) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(pRangeSizes);
    ZEFUSE_NOT_NULL(pRanges);
    return append(*list,
                  EventHandles{"zeCommandListAppendMemoryRangesBarrier", hSignalEvent, numWaitEvents, phWaitEvents},
                  [] { return BarrierCommand(); });
  }

  static ze_result_t commandListAppendMemoryCopy(ze_command_list_handle_t hCommandList, void* dstptr,
                                                 const void* srcptr, size_t size, ze_event_handle_t hSignalEvent,
                                                 uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(dstptr);
    ZEFUSE_NOT_NULL(srcptr);
    const char* call = "zeCommandListAppendMemoryCopy";
    if (ze_result_t result = checkReach(*list, call, "dstptr", dstptr, size))
      return result;
    if (ze_result_t result = checkReach(*list, call, "srcptr", srcptr, size))
      return result;
    return append(*list, EventHandles{call, hSignalEvent, numWaitEvents, phWaitEvents},
                  [&] { return CopyCommand{dstptr, srcptr, size}; });
  }

  static ze_result_t commandListAppendMemoryCopyFromContext(ze_command_list_handle_t hCommandList, void* dstptr,
                                                            ze_context_handle_t hContextSrc, const void* srcptr,
                                                            size_t size, ze_event_handle_t hSignalEvent,
                                                            uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
    if (hContextSrc)
      ZEFUSE_CHECK(Context, hContextSrc);
    // The process has one address space, whatever the context.
    return commandListAppendMemoryCopy(hCommandList, dstptr, srcptr, size, hSignalEvent, numWaitEvents, phWaitEvents);
  }

  static ze_result_t commandListAppendMemoryFill(ze_command_list_handle_t hCommandList, void* ptr, const void* pattern,
                                                 size_t pattern_size, size_t size, ze_event_handle_t hSignalEvent,
                                                 uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(ptr);
    ZEFUSE_NOT_NULL(pattern);
    const char* call = "zeCommandListAppendMemoryFill";
    if (!std::has_single_bit(pattern_size) || pattern_size > kMaxFillPatternBytes)
      return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: a pattern of %zu bytes; a power of two up to %zu is possible",
                    call, pattern_size, kMaxFillPatternBytes);
    if (ze_result_t result = checkReach(*list, call, "ptr", ptr, size))
      return result;
    return append(*list, EventHandles{call, hSignalEvent, numWaitEvents, phWaitEvents}, [&] {
      FillCommand command = {ptr, size, pattern_size, {}};
      std::memcpy(command.pattern, pattern, pattern_size);
      return command;
    });
  }

  static ze_result_t commandListAppendMemoryCopyRegion(ze_command_list_handle_t hCommandList, void* dstptr,
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
    const char* call = "zeCommandListAppendMemoryCopyRegion";
    CopyRegionCommand command;
    if (ze_result_t result = makeCopyRegion(call, dstptr, *dstRegion, dstPitch, dstSlicePitch, srcptr, *srcRegion,
                                            srcPitch, srcSlicePitch, command))
      return result;
    if (ze_result_t result = checkReach(*list, call, "dstptr", command.destination, command.destinationBytes()))
      return result;
    if (ze_result_t result = checkReach(*list, call, "srcptr", command.source, command.sourceBytes()))
      return result;
    return append(*list, EventHandles{call, hSignalEvent, numWaitEvents, phWaitEvents}, [&] { return command; });
  }

  // Hints about placement: memory stays where it was allocated.
  static ze_result_t commandListAppendMemoryPrefetch(ze_command_list_handle_t hCommandList, const void* ptr, size_t) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(ptr);
    return checkOpen("zeCommandListAppendMemoryPrefetch", *list);
  }

  static ze_result_t commandListAppendMemAdvise(ze_command_list_handle_t hCommandList, ze_device_handle_t hDevice,
                                                const void* ptr, size_t, ze_memory_advice_t) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_CHECK(Device, hDevice);
    ZEFUSE_NOT_NULL(ptr);
    return checkOpen("zeCommandListAppendMemAdvise", *list);
  }

  static ze_result_t commandListAppendSignalEvent(ze_command_list_handle_t hCommandList, ze_event_handle_t hEvent) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_CHECK(Event, hEvent);
    return append(*list, EventHandles{"zeCommandListAppendSignalEvent", hEvent, 0, nullptr},
                  [] { return BarrierCommand(); });
  }

  static ze_result_t commandListAppendWaitOnEvents(ze_command_list_handle_t hCommandList, uint32_t numEvents,
                                                   ze_event_handle_t* phEvents) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(phEvents);
    return append(*list, EventHandles{"zeCommandListAppendWaitOnEvents", nullptr, numEvents, phEvents},
                  [] { return BarrierCommand(); });
  }

  static ze_result_t commandListAppendEventReset(ze_command_list_handle_t hCommandList, ze_event_handle_t hEvent) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_OBJECT(Event, event, hEvent);
    return append(*list, EventHandles{"zeCommandListAppendEventReset", nullptr, 0, nullptr},
                  [&] { return ResetEvent<Event>{Ref<Event>(event)}; });
  }

  static ze_result_t commandListAppendQueryKernelTimestamps(ze_command_list_handle_t hCommandList, uint32_t numEvents,
                                                            ze_event_handle_t* phEvents, void* dstptr,
                                                            const size_t* pOffsets, ze_event_handle_t hSignalEvent,
                                                            uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents) {
    ZEFUSE_OBJECT(CommandList, list, hCommandList);
    ZEFUSE_NOT_NULL(phEvents);
    ZEFUSE_NOT_NULL(dstptr);
    const char* call = "zeCommandListAppendQueryKernelTimestamps";
    for (uint32_t i = 0; i < numEvents; ++i) {
      ZEFUSE_OBJECT(Event, event, phEvents[i]);
      if (!event->timestamped)
        return refuse(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
                      "%s: event %u's pool was created without ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP", call, i);
    }
    return append(*list, EventHandles{call, hSignalEvent, numWaitEvents, phWaitEvents}, [&] {
      QueryTimestamps<Event> command;
      command.destination = static_cast<std::byte*>(dstptr);
      for (uint32_t i = 0; i < numEvents; ++i) {
        command.events.emplace_back(fromHandle<Event>(phEvents[i]));
        command.offsets.push_back(pOffsets ? pOffsets[i] : i * sizeof(ze_kernel_timestamp_result_t));
      }
      return command;
    });
  }

  // What the lists recorded runs between the waits and the signal, one list after the other.
  static ze_result_t commandListImmediateAppendCommandListsExp(ze_command_list_handle_t hCommandListImmediate,
                                                               uint32_t numCommandLists,
                                                               ze_command_list_handle_t* phCommandLists,
                                                               ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                               ze_event_handle_t* phWaitEvents) {
    ZEFUSE_OBJECT(CommandList, list, hCommandListImmediate);
    ZEFUSE_NOT_NULL(phCommandLists);
    const EventHandles events = {"zeCommandListImmediateAppendCommandListsExp", hSignalEvent, numWaitEvents,
                                 phWaitEvents};
    if (!list->immediate())
      return refuse(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, "%s: not an immediate list", events.call);
    if (ze_result_t result =
            checkExecutable<CommandList>(events.call, numCommandLists, phCommandLists, list->ordinal, list->device))
      return result;
    if (ze_result_t result = checkEvents<Event>(events))
      return result;
    return guarded(events.call, [&] { return appendLists(*list, numCommandLists, phCommandLists, events); });
  }

  static void fill(Entries& made) {
    made.command_list.pfnAppendBarrier = commandListAppendBarrier;
    made.command_list.pfnAppendMemoryRangesBarrier = commandListAppendMemoryRangesBarrier;
    made.command_list.pfnAppendMemoryCopy = commandListAppendMemoryCopy;
    made.command_list.pfnAppendMemoryCopyFromContext = commandListAppendMemoryCopyFromContext;
    made.command_list.pfnAppendMemoryFill = commandListAppendMemoryFill;
    made.command_list.pfnAppendMemoryCopyRegion = commandListAppendMemoryCopyRegion;
    made.command_list.pfnAppendMemoryPrefetch = commandListAppendMemoryPrefetch;
    made.command_list.pfnAppendMemAdvise = commandListAppendMemAdvise;
    made.command_list.pfnAppendSignalEvent = commandListAppendSignalEvent;
    made.command_list.pfnAppendWaitOnEvents = commandListAppendWaitOnEvents;
    made.command_list.pfnAppendEventReset = commandListAppendEventReset;
    made.command_list.pfnAppendQueryKernelTimestamps = commandListAppendQueryKernelTimestamps;
    made.newer.commandListImmediateAppendCommandListsExp = commandListImmediateAppendCommandListsExp;
  }
};

}  // namespace zefuse::level_zero
