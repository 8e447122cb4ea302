// Command lists: immediate ones run what is appended at once; recorded ones are closed and then run by a queue, as
// often as wanted. One thread at a time.
#pragma once

#include <optional>

#include "runtime/ze/convolution.h"
#include "runtime/ze/event.h"
#include "runtime/ze/kernel.h"
#include "runtime/ze/product.h"

namespace zefuse::ze {

enum class Execution { synchronous, asynchronous };

// A stream of the application's (common/ze_extension/stream.h), which may be null; nothing: one of the driver's.
using Stream = std::optional<void*>;

class CommandList {
public:
  // synchronous: each append returns when its work is done.
  static Result<CommandList> createImmediate(const Context& context, Execution execution, Stream stream = {});
  // Takes commands, with the kernels' arguments of that moment, until close().
  static Result<CommandList> createRecorded(const Context& context);
  Status close();

  Status launch(const Kernel& kernel, uint32_t groups, Event* signal = nullptr) {
    const ze_group_count_t count{groups, 1, 1};
    ZEFUSE_ZE(context_->api(), context_->device().name, zeCommandListAppendLaunchKernel, handle_.get(), kernel.handle(),
              &count, signal ? signal->handle() : nullptr, 0, nullptr);
    return {};
  }
  Status multiply(const Product& product, const ze_extension::ProductOperands& operands, Event* signal = nullptr);
  Status convolve(const Convolution& convolution, const ze_extension::ConvolutionOperands& operands,
                  Event* signal = nullptr);
  Status copy(void* destination, const void* source, size_t bytes, Event* signal = nullptr);
  // Repeats `pattern_size` bytes (a power of two) over `bytes`.
  Status fill(void* destination, const void* pattern, size_t pattern_size, size_t bytes, Event* signal = nullptr);
  // `awaited`: an event that it waits for besides.
  Status barrier(Event* signal = nullptr, ze_event_handle_t awaited = nullptr);
  // On an immediate list: runs a closed one, which must not be destroyed, nor run again, before it has ended. Where the
  // driver can (Driver::appendsLists).
  Status append(const CommandList& closed);
  ze_command_list_handle_t handle() const { return handle_.get(); }

private:
  const Context* context_ = nullptr;
  Owned<ze_command_list_handle_t, &Api::zeCommandListDestroy> handle_;
};

// Where recorded lists run, one after the other. One thread at a time.
class CommandQueue {
public:
  static Result<CommandQueue> create(const Context& context, Stream stream = {});
  // Returns when the list is queued. It must not be destroyed, nor run again, before it has ended.
  Status execute(const CommandList& list);
  // Until nothing of it runs. `deadline` when that takes longer than `nanoseconds`.
  Status synchronize(uint64_t nanoseconds);

private:
  const Context* context_ = nullptr;
  Owned<ze_command_queue_handle_t, &Api::zeCommandQueueDestroy> handle_;
};

}  // namespace zefuse::ze
