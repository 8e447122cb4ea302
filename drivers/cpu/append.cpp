#include "drivers/cpu/append.h"

#include <algorithm>
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
  addEvents<Event>(command, events);
  return command;
}

bool allSignalled(const EventHandles& events) {
  return std::all_of(events.waits, events.waits + events.wait_count,
                     [](ze_event_handle_t handle) { return fromHandle<Event>(handle)->isSignalled(); });
}

}  // namespace

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
  if (ze_result_t result = checkEvents<Event>(events))
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

ze_result_t appendLists(CommandList& list, uint32_t count, ze_command_list_handle_t* lists,
                        const EventHandles& events) {
  if (deviceLost() && list.device.is_gpu)
    return refuse(ZE_RESULT_ERROR_DEVICE_LOST, "%s: the device is lost", events.call);
  const bool blocks = list.kind != CommandList::Kind::synchronous && mayWait(count, lists);
  if (runsNow(list, events) && !blocks)
    return runNow(events, [&] {
      const Site site = {Team::callers};
      Progress progress(site);
      for (uint32_t i = 0; i < count; ++i)
        progress.run(*fromHandle<CommandList>(lists[i])->recorded);
      return progress.failure() ? progress.failure()->tell(events.call) : ZE_RESULT_SUCCESS;
    });
  // A barrier before each, as what is submitted between two barriers may run in any order.
  std::list<Submission> submissions;
  auto barrier = [&](const EventHandles& some) {
    auto sequence = std::make_shared<CommandSequence>();
    sequence->push_back(withEvents(BarrierCommand(), some));
    submissions.push_back({std::move(sequence), {}});
  };
  barrier({events.call, nullptr, events.wait_count, events.waits});
  for (uint32_t i = 0; i < count; ++i) {
    submissions.push_back({fromHandle<CommandList>(lists[i])->recorded, {}});
    barrier({events.call, i + 1 == count ? events.signal : nullptr, 0, nullptr});
  }
  list.worker->submit(std::move(submissions));
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
