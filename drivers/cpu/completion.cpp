#include "drivers/cpu/completion.h"

#include <cstdio>
#include <new>
#include <utility>

#include "drivers/cpu/level_zero.h"

namespace zefuse::cpu {

void Failure::take(ze_result_t result) {
  std::snprintf(text, sizeof text, "%s", lastRefusal());
  code.store(result, std::memory_order_release);
}

ze_result_t Failure::tell(const char* call) {
  told.store(true, std::memory_order_release);
  return refuse(code, "%s: %s", CallName(call).text, text);
}

std::shared_ptr<Failure> makeFailure(ze_result_t result) noexcept {
  try {
    auto failure = std::make_shared<Failure>();
    failure->take(result);
    return failure;
  } catch (const std::bad_alloc&) {
    // The control block of a static object would be allocated, too: this pointer owns nothing.
    static Failure nameless;
    static const bool filled = [] {
      nameless.code = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
      std::snprintf(nameless.text, sizeof nameless.text,
                    "a command failed, and there was no memory to keep the reason");
      return true;
    }();
    (void)filled;
    return {std::shared_ptr<Failure>(), &nameless};
  }
}

void Completion::fail(std::shared_ptr<Failure> why) {
  {
    std::lock_guard lock(mutex_);
    failure_ = std::move(why);
    failed_.store(true, std::memory_order_relaxed);
    if (shared_ && failure_)
      shared_->code.store(static_cast<uint32_t>(failure_->code.load()), std::memory_order_relaxed);
  }
  flag_.set();
}

void Completion::forget() {
  std::lock_guard lock(mutex_);
  failure_.reset();
  failed_.store(false, std::memory_order_relaxed);
  if (shared_)
    shared_->code.store(0, std::memory_order_relaxed);
}

std::shared_ptr<Failure> Completion::failure() const {
  if (shared_)
    return sharedFailure();
  if (!failed_.load(std::memory_order_relaxed))
    return nullptr;
  std::lock_guard lock(mutex_);
  return failure_;
}

// What another process did last counts: it may have reset the event, or signalled it in its turn.
std::shared_ptr<Failure> Completion::sharedFailure() const {
  const uint32_t code = shared_->code.load(std::memory_order_relaxed);
  if (code == 0)
    return nullptr;
  {
    std::lock_guard lock(mutex_);
    if (failure_ && static_cast<uint32_t>(failure_->code.load()) == code)
      return failure_;
  }
  // The number is whatever the other process wrote.
  const bool known = code == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY || code == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY ||
                     code == ZE_RESULT_ERROR_DEVICE_LOST || code == ZE_RESULT_ERROR_INVALID_SIZE;
  return makeFailure(refuse(known ? static_cast<ze_result_t>(code) : ZE_RESULT_ERROR_UNKNOWN,
                            "a command of another process failed (0x%x)", code));
}

ze_result_t Completion::answer(const char* call, bool is_set) const {
  if (!is_set)
    return ZE_RESULT_NOT_READY;
  const std::shared_ptr<Failure> why = failure();
  return why ? why->tell(call) : ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
