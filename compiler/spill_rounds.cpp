#include "compiler/spill_rounds.h"

namespace zefuse {

std::optional<int64_t> SpillRounds::spilled(std::span<const uint32_t> kernel) const {
  auto known = known_.find(std::vector<uint32_t>(kernel.begin(), kernel.end()));
  return known == known_.end() ? std::nullopt : known->second;
}

bool SpillRounds::asked(std::span<const uint32_t> kernel) const {
  return known_.contains(std::vector<uint32_t>(kernel.begin(), kernel.end()));
}

bool SpillRounds::ask(std::span<const std::vector<uint32_t>> met) {
  std::vector<std::vector<uint32_t>> kernels;
  for (const std::vector<uint32_t>& words : met)
    if (known_.try_emplace(words).second)
      kernels.push_back(words);
  if (!survey_ || kernels.empty())
    return false;
  const std::vector<std::optional<int64_t>> answers = survey_(kernels);
  bool spills = false;
  for (size_t i = 0; i < kernels.size(); ++i) {
    known_[kernels[i]] = answers[i];
    spills |= answers[i].value_or(0) > 0;
  }
  return spills;
}

}  // namespace zefuse
