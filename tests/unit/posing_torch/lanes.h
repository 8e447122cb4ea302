// Where the work of torch's streams on a posing device goes (posing_device.cpp): a file for each kind of device, which
// says how zefuse finds the stream.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include "runtime/ze/command_list.h"
#include "runtime/ze/context.h"

namespace zefuse::posing {

template <typename T> T ok(Result<T> result) {
  TORCH_CHECK(result.ok(), result.status().message());
  return std::move(*result);
}
inline void ok(const Status& status) { TORCH_CHECK(status.ok(), status.message()); }

// What torch calls the stream's native handle.
void* handleOf(c10::DeviceIndex device, c10::StreamId stream);
// The context that all of torch's memory is in.
ze::Context makeContext();

// One stream's. Thread-safe.
class Lane {
public:
  virtual ~Lane() = default;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;  // in order with the stream
  virtual void wait() = 0;
};
std::unique_ptr<Lane> makeLane(const ze::Context& context, void* handle);

}  // namespace zefuse::posing
