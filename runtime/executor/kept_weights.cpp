#include "runtime/executor/kept_weights.h"

#include <algorithm>
#include <atomic>

#include "runtime/executor/derived_weights.h"

namespace zefuse::executor {

KeptWeights::KeptWeights(const plan::Program& program) {
  for (size_t step = 0; step < program.derived.size(); ++step)
    if (program.derived[step])
      for (const plan::Program::Touch& touch : program.touches[step])
        if (const plan::BufferT& buffer = *program.plan.buffers[touch.buffer]; buffer.storage == plan::Storage::input)
          parameters_.push_back(buffer.index);
  std::ranges::sort(parameters_);
  parameters_.erase(std::ranges::unique(parameters_).begin(), parameters_.end());
}

KeptWeights::Use KeptWeights::begin(std::span<const CallInput> inputs, const Binding& binding, uint64_t generation) {
  if (binding.kept.bytes == 0)
    return Use::none;
  now_.clear();
  for (uint32_t number : parameters_)
    now_.push_back(stampOf(inputs[number].tensor, binding.inputs[number], generation));
  if (is_made_ && now_ == made_of_)
    return Use::reuse;
  const bool again = now_ == last_;
  std::swap(last_, now_);
  if (!again)
    return Use::none;
  is_made_ = false;
  if (!memory_.reserve(binding.kept.bytes).ok())
    return Use::none;
  static std::atomic<uint64_t> last_number{0};
  number_ = ++last_number;
  return Use::make;
}

void KeptWeights::made() {
  made_of_ = last_;
  is_made_ = true;
}

void KeptWeights::forget() {
  is_made_ = false;
  last_.clear();
  memory_ = {};
}

}  // namespace zefuse::executor
