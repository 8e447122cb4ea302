// Command queues: a stream each. Execution is always in order.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cuda/context.h"
#include "drivers/cuda/level_zero.h"
#include "drivers/cuda/stream.h"

namespace zefuse::cuda {

struct CommandList;

struct CommandQueue : Object<CommandQueue> {
  static constexpr uint32_t kMagic = magicOf("ZQUE");
  const Ref<Context> context;
  const ze_command_queue_desc_t desc;
  Stream stream;

  CommandQueue(Context& context, Device& device, const ze_command_queue_desc_t& desc)
      : context(&context), desc(desc), stream(device) {}
};

// One launch of a graph instead of many calls, from the first time on where CUDA can capture the list.
ze_result_t execute(const char* call, Stream& stream, CommandList& list);

decltype(::zeCommandQueueCreate) commandQueueCreate;
decltype(::zeCommandQueueDestroy) commandQueueDestroy;
decltype(::zeCommandQueueExecuteCommandLists) commandQueueExecuteCommandLists;
decltype(::zeCommandQueueSynchronize) commandQueueSynchronize;
ze_result_t commandQueueGetOrdinal(ze_command_queue_handle_t hCommandQueue, uint32_t* pOrdinal);
ze_result_t commandQueueGetIndex(ze_command_queue_handle_t hCommandQueue, uint32_t* pIndex);

}  // namespace zefuse::cuda
