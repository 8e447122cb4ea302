#include "drivers/cpu/context.h"

#include <algorithm>

#include "drivers/cpu/device.h"
#include "drivers/cpu/memory.h"
#include "drivers/cpu/worker.h"

namespace zefuse::cpu {

Context::~Context() { AllocationTable::instance().freeAll(*this); }

void Context::add(std::shared_ptr<Backlog> backlog) {
  std::lock_guard lock(mutex_);
  backlogs_.push_back(std::move(backlog));
}

void Context::remove(const Backlog& backlog) {
  std::lock_guard lock(mutex_);
  std::erase_if(backlogs_, [&](const auto& each) { return each.get() == &backlog; });
}

void Context::waitForWorkers() {
  // Waits without the lock: the work may need what another thread does meanwhile, an allocation or the end of a queue.
  std::vector<std::shared_ptr<Backlog>> backlogs;
  {
    std::lock_guard lock(mutex_);
    backlogs = backlogs_;
  }
  for (const auto& backlog : backlogs)
    waitFor(*backlog);
}

void Context::deferFree(void* pointer) {
  std::lock_guard lock(mutex_);
  deferred_.push_back(pointer);
  any_deferred_.store(true, std::memory_order_relaxed);
}

void Context::freeDeferred() {
  if (!any_deferred_.load(std::memory_order_relaxed))
    return;
  std::vector<void*> ready;
  {
    std::lock_guard lock(mutex_);
    if (!std::all_of(backlogs_.begin(), backlogs_.end(), [](const auto& backlog) { return idle(*backlog); }))
      return;
    ready.swap(deferred_);
    any_deferred_.store(false, std::memory_order_relaxed);
  }
  for (void* pointer : ready)
    AllocationTable::instance().free(*this, pointer);
}

ze_result_t contextGetStatus(ze_context_handle_t hContext) {
  ZEFUSE_CHECK(Context, hContext);
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
