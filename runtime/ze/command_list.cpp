#include "runtime/ze/command_list.h"

#include "common/ze_extension/stream.h"

namespace zefuse::ze {
namespace {

// What a descriptor's chain is for `stream`; null: nothing. `room` outlives it.
const void* chain(const Stream& stream, ze_extension::AdoptedStream& room) {
  if (!stream)
    return nullptr;
  room = {ze_extension::AdoptedStream::kType, nullptr, *stream};
  return &room;
}

}  // namespace

Result<CommandList> CommandList::createImmediate(const Context& context, Execution execution, Stream stream) {
  ze_extension::AdoptedStream adopted;
  auto desc = make<ze_command_queue_desc_t>();
  desc.pNext = chain(stream, adopted);
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

Result<CommandList> CommandList::createRecorded(const Context& context) {
  auto desc = make<ze_command_list_desc_t>();
  ze_command_list_handle_t handle = nullptr;
  ZEFUSE_ZE(context.api(), context.device().name, zeCommandListCreate, context.handle(), context.device().handle, &desc,
            &handle);
  CommandList list;
  list.context_ = &context;
  list.handle_ = {&context.api(), handle};
  return list;
}

Status CommandList::close() {
  ZEFUSE_ZE(context_->api(), context_->device().name, zeCommandListClose, handle_.get());
  return {};
}

Status CommandList::multiply(const Product& product, const ze_extension::ProductOperands& operands, Event* signal) {
  ZEFUSE_ZE(context_->api(), context_->device().name, appendProduct, handle_.get(), product.handle(), &operands,
            signal ? signal->handle() : nullptr, 0, nullptr);
  return {};
}

Status CommandList::convolve(const Convolution& convolution, const ze_extension::ConvolutionOperands& operands,
                             Event* signal) {
  ZEFUSE_ZE(context_->api(), context_->device().name, appendConvolution, handle_.get(), convolution.handle(), &operands,
            signal ? signal->handle() : nullptr, 0, nullptr);
  return {};
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

Status CommandList::barrier(Event* signal, ze_event_handle_t awaited) {
  ZEFUSE_ZE(context_->api(), context_->device().name, zeCommandListAppendBarrier, handle_.get(),
            signal ? signal->handle() : nullptr, awaited ? 1 : 0, awaited ? &awaited : nullptr);
  return {};
}

Status CommandList::append(const CommandList& closed) {
  ze_command_list_handle_t handle = closed.handle();
  ZEFUSE_ZE(context_->api(), context_->device().name, immediateAppendLists, handle_.get(), 1, &handle, nullptr, 0,
            nullptr);
  return {};
}

Result<CommandQueue> CommandQueue::create(const Context& context, Stream stream) {
  ze_extension::AdoptedStream adopted;
  auto desc = make<ze_command_queue_desc_t>();
  desc.pNext = chain(stream, adopted);
  desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_queue_handle_t handle = nullptr;
  ZEFUSE_ZE(context.api(), context.device().name, zeCommandQueueCreate, context.handle(), context.device().handle,
            &desc, &handle);
  CommandQueue queue;
  queue.context_ = &context;
  queue.handle_ = {&context.api(), handle};
  return queue;
}

Status CommandQueue::execute(const CommandList& list) {
  ze_command_list_handle_t handle = list.handle();
  ZEFUSE_ZE(context_->api(), context_->device().name, zeCommandQueueExecuteCommandLists, handle_.get(), 1, &handle,
            nullptr);
  return {};
}

Status CommandQueue::synchronize(uint64_t nanoseconds) {
  return waited(*context_, "zeCommandQueueSynchronize",
                context_->api().zeCommandQueueSynchronize(handle_.get(), nanoseconds), "a queue did not end its work",
                nanoseconds);
}

}  // namespace zefuse::ze
