#include "runtime/ze/command_list.h"

namespace zefuse::ze {

Result<CommandList> CommandList::createImmediate(const Context& context, Execution execution) {
  auto desc = make<ze_command_queue_desc_t>();
  desc.mode =
      execution == Execution::synchronous ? ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS : ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_list_handle_t handle = nullptr;
  ZEFUSE_ZE(context.api(), context.device().name, zeCommandListCreateImmediate, context.handle(),
            context.device().handle, &desc, &handle);
  CommandList list;
  list.context_ = &context;
  list.handle_ = {&context.api(), handle};
  return list;
}

Status CommandList::copy(void* destination, const void* source, size_t bytes, Event* signal) {
  ZEFUSE_ZE(context_->api(), context_->device().name, zeCommandListAppendMemoryCopy, handle_.get(), destination, source,
            bytes, signal ? signal->handle() : nullptr, 0, nullptr);
  return {};
}

Status CommandList::fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, Event* signal) {
  ZEFUSE_ZE(context_->api(), context_->device().name, zeCommandListAppendMemoryFill, handle_.get(), destination,
            pattern, pattern_size, bytes, signal ? signal->handle() : nullptr, 0, nullptr);
  return {};
}

Status CommandList::barrier(Event* signal) {
  ZEFUSE_ZE(context_->api(), context_->device().name, zeCommandListAppendBarrier, handle_.get(),
            signal ? signal->handle() : nullptr, 0, nullptr);
  return {};
}

}  // namespace zefuse::ze
