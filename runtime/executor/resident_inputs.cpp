#include "runtime/executor/resident_inputs.h"

namespace zefuse::executor {

Result<std::shared_ptr<const ResidentParameter>> ResidentInputs::get(uint32_t input, const void* data, size_t bytes,
                                                                     const WeightStamp& stamp,
                                                                     std::chrono::milliseconds deadline,
                                                                     Counters::OfCall& counters) {
  std::lock_guard lock(mutex_);
  if (inputs_.size() <= input)
    inputs_.resize(input + 1);
  KeptCopies<ResidentParameter>& kept = inputs_[input];
  if (auto fresh = kept.use(stamp); fresh && fresh->bytes >= bytes)
    return fresh;
  kept.makeRoom().reset();  // its memory may be what the new copy needs
  auto copy = parameters_.get(data, bytes, stamp, deadline, counters);
  if (copy.status().code() == Code::out_of_memory && dropUnusedLocked())
    copy = parameters_.get(data, bytes, stamp, deadline, counters);
  if (copy.ok())
    kept.add(*copy);
  return copy;
}

bool ResidentInputs::dropUnused() {
  std::lock_guard lock(mutex_);
  return dropUnusedLocked();
}

bool ResidentInputs::dropUnusedLocked() {
  bool any = false;
  for (KeptCopies<ResidentParameter>& kept : inputs_)
    any |= kept.dropUnused();
  return any;
}

void ResidentInputs::clear() {
  std::lock_guard lock(mutex_);
  inputs_.clear();
}

}  // namespace zefuse::executor
