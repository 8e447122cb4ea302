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

// Of level_zero/list_calls.h.
ze_result_t makeList(Context& context, Device& device, uint32_t ordinal, CommandList*& out);
ze_result_t makeImmediateList(Context& context, Device& device, const ze_command_queue_desc_t& desc, CommandList*& out);

decltype(::zeCommandListReset) commandListReset;
ze_result_t commandListHostSynchronize(ze_command_list_handle_t hCommandList, uint64_t timeout);

// append.cpp
decltype(::zeCommandListAppendWriteGlobalTimestamp) commandListAppendWriteGlobalTimestamp;
decltype(::zeCommandListAppendLaunchKernel) commandListAppendLaunchKernel;
decltype(::zeCommandListAppendLaunchCooperativeKernel) commandListAppendLaunchCooperativeKernel;

}  // namespace zefuse::cuda
