// GPUs that SYCL's runtime has, as torch.xpu does: its context, and order among the work of its queues. By
// libzefuse_sycl, which is linked to SYCL and stands beside this code where it was built (docs/gpu.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ze_extension/sycl_queue.h"
#include "runtime/ze/command_list.h"

namespace zefuse::ze {

inline constexpr const char* kSyclVariable = "ZEFUSE_SYCL";

// The library's functions.
struct Sycl : ze_extension::SyclFunctions {
  // Once per process. not_found: which file is missing, and for which SYCL. Thread-safe.
  static Result<const Sycl*> load();
};

// From now on `name` ("xpu:0") is the device of this sycl::queue, with the queue's context. Again it costs a look.
// Thread-safe.
ZEFUSE_API Status adoptSyclQueue(const std::string& name, void* address);
std::optional<Device> adoptedDevice(const std::string& name);

// The kept queue of a sycl::queue; invalid_argument where it is of another context or device than `context`.
Result<void*> syclQueueOf(const Context& context, void* address);
// Until all that a kept queue holds now has run.
Status awaitSyclQueue(const Context& context, void* queue, uint64_t nanoseconds);

// Puts what an immediate list of ours is given between enter() and leave() in order with a kept queue of SYCL's: behind
// what that held at enter(), before what it gets after leave(). One thread at a time.
class SyclOrder {
public:
  SyclOrder(const Context& context, void* queue)
      : context_(&context), queue_(static_cast<ze_extension::SyclQueue*>(queue)) {}
  ~SyclOrder();
  SyclOrder(const SyclOrder&) = delete;

  Status enter(CommandList& list);
  Status leave(CommandList& list);
  // Until all that the list was given has run.
  Status wait(CommandList& list, uint64_t nanoseconds);

private:
  struct Turn {
    EventPool pool;
    Event done;
    ze_extension::SyclMark *before = nullptr, *after = nullptr;
  };

  const Sycl& sycl() const { return *context_->device().sycl; }
  Result<Turn*> freeTurn();
  bool isFree(Turn& turn);

  const Context* context_;
  ze_extension::SyclQueue* queue_;
  std::vector<std::unique_ptr<Turn>> turns_;  // a ring, the oldest at next_
  size_t next_ = 0;
  Turn* entered_ = nullptr;  // and not left
};

}  // namespace zefuse::ze
