#include "runtime/ze/event.h"

namespace zefuse::ze {

Result<EventPool> EventPool::create(const Context& context, uint32_t count) {
  auto desc = make<ze_event_pool_desc_t>();
  desc.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
  desc.count = count;
  ze_device_handle_t device = context.device().handle;
  ze_event_pool_handle_t handle = nullptr;
  ZEFUSE_ZE(context.api(), context.device().name, zeEventPoolCreate, context.handle(), &desc, 1, &device, &handle);
  EventPool pool;
  pool.context_ = &context;
  pool.handle_ = {&context.api(), handle};
  return pool;
}

Result<Event> Event::create(const EventPool& pool, uint32_t index) {
  auto desc = make<ze_event_desc_t>();
  desc.index = index;
  desc.signal = ZE_EVENT_SCOPE_FLAG_HOST;
  desc.wait = ZE_EVENT_SCOPE_FLAG_HOST;
  ze_event_handle_t handle = nullptr;
  ZEFUSE_ZE(pool.context().api(), pool.context().device().name, zeEventCreate, pool.handle(), &desc, &handle);
  Event event;
  event.context_ = &pool.context();
  event.handle_ = {&pool.context().api(), handle};
  return event;
}

Status Event::wait(uint64_t nanoseconds) {
  return waited(*context_, "zeEventHostSynchronize", context_->api().zeEventHostSynchronize(handle(), nanoseconds),
                "an event was not signalled", nanoseconds);
}

Status Event::reset() {
  ZEFUSE_ZE(context_->api(), context_->device().name, zeEventHostReset, handle());
  return {};
}

Result<bool> Event::signalled() const {
  const Api& api = context_->api();
  const ze_result_t result = api.zeEventQueryStatus(handle());
  if (result == ZE_RESULT_SUCCESS || result == ZE_RESULT_NOT_READY)
    return result == ZE_RESULT_SUCCESS;
  return callError(api, "zeEventQueryStatus", result, context_->device().name);
}

}  // namespace zefuse::ze
