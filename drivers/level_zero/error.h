// How an entry point refuses: a Level Zero code plus a sentence that says what, where and what to do.
#pragma once

#include <level_zero/ze_api.h>

#include <exception>
#include <new>

#include "drivers/level_zero/handle.h"

namespace zefuse::level_zero {

// Keeps the sentence for zeDriverGetLastErrorDescription (per thread, until the thread's next refusal), writes it to
// stderr where traits() says so, and returns `code`.
[[gnu::cold, gnu::format(printf, 2, 3)]] ze_result_t refuse(ze_result_t code, const char* format, ...);
const char* lastRefusal();  // "" when this thread was never refused

// The Level Zero name of an entry point's function here: "memAllocHost" is zeMemAllocHost. A name with "ze" stays.
struct CallName {
  explicit CallName(const char* function);
  char text[96];
};

// Runs an entry point's body. No exception crosses the C boundary.
template <typename Body> ze_result_t guarded(const char* call, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return refuse(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "%s: out of host memory", CallName(call).text);
  } catch (const std::exception& error) {
    return refuse(ZE_RESULT_ERROR_UNKNOWN, "%s: %s", CallName(call).text, error.what());
  }
}

// The checks every entry point starts with; each returns from the function that contains it. `handle` is an lvalue.
#define ZEFUSE_CHECK(Type, handle)                                                                                     \
  if (!::zefuse::level_zero::fromHandle<Type>(handle)) [[unlikely]]                                                    \
  return ::zefuse::level_zero::refuse(ZE_RESULT_ERROR_INVALID_NULL_HANDLE,                                             \
                                      "%s: " #handle " (%p) is not a live " #Type,                                     \
                                      ::zefuse::level_zero::CallName(__func__).text, static_cast<const void*>(handle))

#define ZEFUSE_OBJECT(Type, name, handle)                                                                              \
  ZEFUSE_CHECK(Type, handle);                                                                                          \
  Type* name = reinterpret_cast<Type*>(handle)

#define ZEFUSE_NOT_NULL(pointer)                                                                                       \
  if (!(pointer)) [[unlikely]]                                                                                         \
  return ::zefuse::level_zero::refuse(ZE_RESULT_ERROR_INVALID_NULL_POINTER, "%s: " #pointer " is NULL",                \
                                      ::zefuse::level_zero::CallName(__func__).text)

}  // namespace zefuse::level_zero
