// Command queues: run closed lists, on the calling thread (synchronous) or on a worker.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <mutex>

#include "common/base/fork.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

class Worker;

// Thread-safe.
struct CommandQueue : Object<CommandQueue> {
  static constexpr uint32_t kMagic = magicOf("ZQUE");
  const Ref<Context> context;
  const Device& device;
  const ze_command_queue_desc_t desc;
  // SYNCHRONOUS has none. DEFAULT uses it only for lists that may have to wait for an event.
  std::unique_ptr<Worker> worker;
  LongForkMutex inline_order;  // one caller's lists at a time

  CommandQueue(Context& context, const Device& device, const ze_command_queue_desc_t& desc);
  ~CommandQueue();
};

// Whether some command of theirs waits for events.
bool mayWait(uint32_t count, ze_command_list_handle_t* lists);

decltype(::zeCommandQueueCreate) commandQueueCreate;
decltype(::zeCommandQueueDestroy) commandQueueDestroy;
decltype(::zeCommandQueueExecuteCommandLists) commandQueueExecuteCommandLists;
decltype(::zeCommandQueueSynchronize) commandQueueSynchronize;
ze_result_t commandQueueGetOrdinal(ze_command_queue_handle_t hCommandQueue, uint32_t* pOrdinal);
ze_result_t commandQueueGetIndex(ze_command_queue_handle_t hCommandQueue, uint32_t* pIndex);

}  // namespace zefuse::cpu
