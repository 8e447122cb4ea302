// Command lists: regular ones record, immediate ones run (at once, or on a worker).
#pragma once

#include <level_zero/ze_api.h>

#include <memory>

#include "drivers/cpu/command.h"
#include "drivers/cpu/context.h"
#include "drivers/cpu/device.h"
#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

class Worker;

// Not thread-safe, as the Level Zero calls on one list. Execution is in order, whatever the flags ask for, but on the
// posing GPU (Worker::Order), where an immediate list must ask for it.
struct CommandList : Object<CommandList> {
  static constexpr uint32_t kMagic = magicOf("ZLST");
  enum class Kind { regular, synchronous, asynchronous, adaptive };

  const Ref<Context> context;
  const Device& device;
  const Kind kind;
  const uint32_t ordinal;      // of its queue group
  const uint32_t queue_index;  // of an immediate list

  // Regular: what was appended. A queue that still runs it shares it, so reset starts a new one.
  std::shared_ptr<CommandSequence> recorded;
  bool closed = false;
  bool has_waits = false;  // some command waits for events

  // Asynchronous and adaptive. Adaptive (ZE_COMMAND_QUEUE_MODE_DEFAULT) runs a command at once when nothing is pending
  // and its events are signalled, so that it neither blocks nor pays for a thread.
  std::shared_ptr<Worker> worker;

  CommandList(Context& context, const Device& device, Kind kind, uint32_t ordinal, uint32_t queue_index);
  ~CommandList();

  bool immediate() const { return kind != Kind::regular; }
};

// Of level_zero/list_calls.h.
ze_result_t makeList(Context& context, Device& device, uint32_t ordinal, CommandList*& out);
ze_result_t makeImmediateList(Context& context, Device& device, const ze_command_queue_desc_t& desc, CommandList*& out);

decltype(::zeCommandListReset) commandListReset;
ze_result_t commandListHostSynchronize(ze_command_list_handle_t hCommandList, uint64_t timeout);

// append.cpp
decltype(::zeCommandListAppendWriteGlobalTimestamp) commandListAppendWriteGlobalTimestamp;
decltype(::zeCommandListAppendLaunchKernel) commandListAppendLaunchKernel;
decltype(::zeCommandListAppendLaunchCooperativeKernel) commandListAppendLaunchCooperativeKernel;
decltype(::zeCommandListAppendLaunchKernelIndirect) commandListAppendLaunchKernelIndirect;
decltype(::zeCommandListAppendLaunchMultipleKernelsIndirect) commandListAppendLaunchMultipleKernelsIndirect;

}  // namespace zefuse::cpu
