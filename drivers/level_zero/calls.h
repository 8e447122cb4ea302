// Entries that are the same in every driver, over the driver's own types.
//
// Each of the *_calls.h has one class template of static functions, named as Level Zero names them without "ze", and a
// fill() that puts them into the table. Its parameter is a struct with a driver's types: Context, Device, CommandQueue,
// CommandList, Fence, EventPool, Event, Module, Kernel and the commands. They are Objects (handle.h) and have the
// members that the functions here read. What such a function needs done, a function of the driver's namespace does,
// which each page lists; it is found by its arguments, so the driver's headers must declare it before the table is
// filled.
#pragma once

#include "drivers/level_zero/counted.h"
#include "drivers/level_zero/entries.h"
#include "drivers/level_zero/error.h"
#include "drivers/level_zero/extensions.h"
#include "drivers/level_zero/handle.h"

namespace zefuse::level_zero {

// `make(T*& out)` says whether it made the T, whose handle the application then gets. May throw.
template <typename T, typename Handle, typename Make>
ze_result_t createAs(const char* call, Handle* handle, Make&& make) {
  return guarded(call, [&]() -> ze_result_t {
    T* made = nullptr;
    if (ze_result_t result = make(made))
      return result;
    *handle = toHandle<Handle>(made);
    return ZE_RESULT_SUCCESS;
  });
}

}  // namespace zefuse::level_zero
