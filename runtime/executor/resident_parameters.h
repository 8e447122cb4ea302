// Parameters and constants on one device, shared by all graphs of the process: forward and backward, prefill and
// decoding, the parts between graph breaks upload a weight once.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/executor/counters.h"
#include "runtime/executor/kept_copies.h"
#include "runtime/ze/command_list.h"
#include "runtime/ze/event.h"
#include "runtime/ze/memory.h"

namespace zefuse::executor {

struct ResidentParameter {
  WeightStamp stamp;
  uint64_t id = 0;  // of this copy: no two of a process have the same
  size_t bytes = 0;
  ze::Memory memory;
};

// Thread-safe. Keeps nothing alive itself: a copy lives as long as a graph or a call holds it (resident_inputs.h).
class ResidentParameters {
public:
  // `lost`: told of a copy that failed or did not end, after which the device counts as lost.
  ResidentParameters(const ze::Context& context, std::function<void(const Status&)> lost)
      : context_(context), lost_(std::move(lost)) {}

  // The first `bytes` of `data` on the device, copied now if no copy there is of `stamp`. Waits for that copy, at most
  // for `deadline`.
  Result<std::shared_ptr<const ResidentParameter>> get(const void* data, size_t bytes, const WeightStamp& stamp,
                                                       std::chrono::milliseconds deadline, Counters::OfCall& counters);
  uint64_t bytes() const;  // held now
  // Forgets all copies, and makes stamps of before stale.
  void invalidate();
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

private:
  // What copies them, one at a time.
  struct Upload {
    ze::CommandList list;
    ze::EventPool pool;
    std::optional<ze::Event> done;
  };
  Result<ze::Memory> upload(const void* data, size_t bytes, std::chrono::milliseconds deadline);
  Status prepareUpload();

  const ze::Context& context_;
  const std::function<void(const Status&)> lost_;
  std::atomic<uint64_t> generation_{0};
  mutable std::mutex mutex_;  // guards what follows; held while copying: threads that meet here want the same copy
  std::unordered_map<const void*, std::weak_ptr<const ResidentParameter>> copies_;  // by the address on the host
  std::unique_ptr<Upload> upload_;
};

}  // namespace zefuse::executor
