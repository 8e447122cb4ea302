// Command queues: run closed lists, on the calling thread (synchronous) or on a worker.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <mutex>

#include "common/base/fork.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

struct Device;
struct Fence;
class Worker;

// Thread-safe.
struct CommandQueue : Object<CommandQueue> {
  static constexpr uint32_t kMagic = magicOf("ZQUE");
  const Ref<Context> context;
  const Device& device;
  const ze_command_queue_desc_t desc;
  // SYNCHRONOUS has none. DEFAULT uses it only for lists that may have to wait for an event.
  std::shared_ptr<Worker> worker;
  LongForkMutex inline_order;  // one caller's lists at a time

  CommandQueue(Context& context, const Device& device, const ze_command_queue_desc_t& desc);
  ~CommandQueue();
};

// Whether some command of theirs waits for events.
bool mayWait(uint32_t count, ze_command_list_handle_t* lists);

// Of level_zero/list_calls.h.
ze_result_t makeQueue(Context& context, Device& device, const ze_command_queue_desc_t& desc, CommandQueue*& out);
ze_result_t executeLists(CommandQueue& queue, uint32_t count, ze_command_list_handle_t* lists, Fence* fence);

decltype(::zeCommandQueueSynchronize) commandQueueSynchronize;

}  // namespace zefuse::cpu
