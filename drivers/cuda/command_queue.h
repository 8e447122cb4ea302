// Command queues: a stream each. Execution is always in order.
#pragma once

#include <level_zero/ze_api.h>

#include "drivers/cuda/context.h"
#include "drivers/cuda/level_zero.h"
#include "drivers/cuda/stream.h"

namespace zefuse::cuda {

struct CommandList;
struct Fence;

struct CommandQueue : Object<CommandQueue> {
  static constexpr uint32_t kMagic = magicOf("ZQUE");
  const Ref<Context> context;
  const ze_command_queue_desc_t desc;
  Device& device;
  Stream stream;

  CommandQueue(Context& context, Device& device, const ze_command_queue_desc_t& desc)
      : context(&context), desc(desc), device(device), stream(device) {}
};

// One launch of a graph instead of many calls, from the first time on where CUDA can capture the list.
ze_result_t execute(const char* call, Stream& stream, CommandList& list);

// Of level_zero/list_calls.h.
ze_result_t makeQueue(Context& context, Device& device, const ze_command_queue_desc_t& desc, CommandQueue*& out);
ze_result_t executeLists(CommandQueue& queue, uint32_t count, ze_command_list_handle_t* lists, Fence* fence);

decltype(::zeCommandQueueSynchronize) commandQueueSynchronize;

}  // namespace zefuse::cuda
