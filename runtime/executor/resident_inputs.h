// Parameters and constants on a GPU: copied there once, kept while provably fresh (the rule of derived_weights.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/executor/derived_weights.h"
#include "runtime/ze/command_list.h"
#include "runtime/ze/event.h"
#include "runtime/ze/memory.h"

namespace zefuse::executor {

struct ResidentInput {
  WeightStamp stamp;
  size_t bytes = 0;
  ze::Memory memory;
};

// Thread-safe. One copy per input, or several where calls bring different weights (kept_copies.h). A copy that is
// replaced lives on in the calls that use it.
class ResidentInputs {
public:
  // `lost`: told of a copy that failed or did not end, after which the device counts as lost.
  ResidentInputs(const ze::Context& context, std::function<void(const Status&)> lost)
      : context_(context), lost_(std::move(lost)) {}

  // The first `bytes` of `data` on the device, copied now if the copy there is not of `stamp`. Waits for that copy.
  Result<std::shared_ptr<const ResidentInput>> get(uint32_t input, const void* data, size_t bytes,
                                                   const WeightStamp& stamp, std::chrono::milliseconds deadline,
                                                   Counters::OfCall& counters);
  uint64_t bytes() const;  // held now
  // Lets go of copies that no call holds, for want of memory. False: there are none.
  bool dropUnused();
  // Forgets all copies, and makes stamps of before stale.
  void invalidate();
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

private:
  bool dropUnusedLocked();
  Result<ze::Memory> upload(const void* data, size_t bytes, std::chrono::milliseconds deadline);

  const ze::Context& context_;
  const std::function<void(const Status&)> lost_;
  std::atomic<uint64_t> generation_{0};
  mutable std::mutex mutex_;
  std::vector<KeptCopies<ResidentInput>> inputs_;
};

}  // namespace zefuse::executor
