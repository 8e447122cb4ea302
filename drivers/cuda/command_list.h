// Command lists: regular ones record, immediate ones have a stream of their own.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>

#include "drivers/cuda/command.h"
#include "drivers/cuda/context.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/level_zero.h"
#include "drivers/cuda/stream.h"

namespace zefuse::cuda {

// Not thread-safe, as the Level Zero calls on one list.
struct CommandList : Object<CommandList> {
  static constexpr uint32_t kMagic = magicOf("ZLST");
  enum class Kind { regular, synchronous, asynchronous };

  const Ref<Context> context;
  Device& device;
  const Kind kind;
  const uint32_t ordinal;      // of its queue group
  const uint32_t queue_index;  // of an immediate list

  CommandSequence recorded;  // regular
  bool closed = false;
  bool capturable = true;       // none of the commands touches memory that CUDA would have to stage
  CUgraphExec graph = nullptr;  // of `recorded`, once it was executed

  std::unique_ptr<Stream> stream;  // immediate

  CommandList(Context& context, Device& device, Kind kind, uint32_t ordinal, uint32_t queue_index)
      : context(&context), device(device), kind(kind), ordinal(ordinal), queue_index(queue_index) {}
  ~CommandList();

  bool immediate() const { return kind != Kind::regular; }
  void forget();  // the graph and the recording
};

decltype(::zeCommandListCreate) commandListCreate;
decltype(::zeCommandListCreateImmediate) commandListCreateImmediate;
decltype(::zeCommandListDestroy) commandListDestroy;
decltype(::zeCommandListClose) commandListClose;
decltype(::zeCommandListReset) commandListReset;
ze_result_t commandListHostSynchronize(ze_command_list_handle_t hCommandList, uint64_t timeout);
ze_result_t commandListGetDeviceHandle(ze_command_list_handle_t hCommandList, ze_device_handle_t* phDevice);
ze_result_t commandListGetContextHandle(ze_command_list_handle_t hCommandList, ze_context_handle_t* phContext);
ze_result_t commandListGetOrdinal(ze_command_list_handle_t hCommandList, uint32_t* pOrdinal);
ze_result_t commandListImmediateGetIndex(ze_command_list_handle_t hCommandListImmediate, uint32_t* pIndex);
ze_result_t commandListIsImmediate(ze_command_list_handle_t hCommandList, ze_bool_t* pIsImmediate);

// append.cpp
decltype(::zeCommandListAppendWriteGlobalTimestamp) commandListAppendWriteGlobalTimestamp;
decltype(::zeCommandListAppendBarrier) commandListAppendBarrier;
decltype(::zeCommandListAppendMemoryRangesBarrier) commandListAppendMemoryRangesBarrier;
decltype(::zeCommandListAppendMemoryCopy) commandListAppendMemoryCopy;
decltype(::zeCommandListAppendMemoryFill) commandListAppendMemoryFill;
decltype(::zeCommandListAppendMemoryCopyRegion) commandListAppendMemoryCopyRegion;
decltype(::zeCommandListAppendMemoryCopyFromContext) commandListAppendMemoryCopyFromContext;
decltype(::zeCommandListAppendMemoryPrefetch) commandListAppendMemoryPrefetch;
decltype(::zeCommandListAppendMemAdvise) commandListAppendMemAdvise;
decltype(::zeCommandListAppendSignalEvent) commandListAppendSignalEvent;
decltype(::zeCommandListAppendWaitOnEvents) commandListAppendWaitOnEvents;
decltype(::zeCommandListAppendEventReset) commandListAppendEventReset;
decltype(::zeCommandListAppendQueryKernelTimestamps) commandListAppendQueryKernelTimestamps;
decltype(::zeCommandListAppendLaunchKernel) commandListAppendLaunchKernel;
decltype(::zeCommandListAppendLaunchCooperativeKernel) commandListAppendLaunchCooperativeKernel;
ze_result_t commandListImmediateAppendCommandListsExp(ze_command_list_handle_t hCommandListImmediate,
                                                      uint32_t numCommandLists,
                                                      ze_command_list_handle_t* phCommandLists,
                                                      ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                                      ze_event_handle_t* phWaitEvents);

}  // namespace zefuse::cuda
