// The parameters and constants of one graph on a GPU: which copies it keeps (the rule of derived_weights.h).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/executor/resident_parameters.h"

namespace zefuse::executor {

// Thread-safe. One copy per input, or several where calls bring different weights (kept_copies.h). A copy that is
// replaced lives on in the calls that use it, and in other graphs that keep it.
class ResidentInputs {
public:
  explicit ResidentInputs(ResidentParameters& parameters) : parameters_(parameters) {}

  // As ResidentParameters::get, kept for input number `input`.
  Result<std::shared_ptr<const ResidentParameter>> get(uint32_t input, const void* data, size_t bytes,
                                                       const WeightStamp& stamp, std::chrono::milliseconds deadline,
                                                       Counters::OfCall& counters);
  // Lets go of copies that nobody else holds, for want of memory. False: there are none.
  bool dropUnused();
  void clear();

private:
  bool dropUnusedLocked();

  ResidentParameters& parameters_;
  mutable std::mutex mutex_;
  std::vector<KeptCopies<ResidentParameter>> inputs_;
};

}  // namespace zefuse::executor
