// Events and the pool they come from. A pool is destroyed after its events.
#pragma once

#include "runtime/ze/context.h"

namespace zefuse::ze {

class EventPool {
public:
  static Result<EventPool> create(const Context& context, uint32_t count);
  const Context& context() const { return *context_; }
  ze_event_pool_handle_t handle() const { return handle_.get(); }

private:
  const Context* context_ = nullptr;
  Owned<ze_event_pool_handle_t, &Api::zeEventPoolDestroy> handle_;
};

class Event {
public:
  static Result<Event> create(const EventPool& pool, uint32_t index);
  // `deadline` when it is not signalled within that time. UINT64_MAX waits for ever.
  Status wait(uint64_t nanoseconds);
  Status reset();
  Result<bool> signalled() const;
  ze_event_handle_t handle() const { return handle_.get(); }

private:
  const Context* context_ = nullptr;
  Owned<ze_event_handle_t, &Api::zeEventDestroy> handle_;
};

}  // namespace zefuse::ze
