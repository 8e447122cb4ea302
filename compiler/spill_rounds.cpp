#include "compiler/spill_rounds.h"

namespace zefuse {

std::optional<int64_t> SpillRounds::spilled(std::span<const uint32_t> kernel) {
  if (!survey_)
    return std::nullopt;
  std::vector<uint32_t> words(kernel.begin(), kernel.end());
  auto [answer, fresh] = known_.try_emplace(words);
  if (fresh)
    unknown_.push_back(std::move(words));
  return answer->second;
}

bool SpillRounds::ask() {
  if (unknown_.empty())
    return false;
  const std::vector<std::vector<uint32_t>> kernels = std::exchange(unknown_, {});
  const std::vector<std::optional<int64_t>> answers = survey_(kernels);
  bool spills = false;
  for (size_t i = 0; i < kernels.size(); ++i) {
    known_[kernels[i]] = answers[i];
    spills |= answers[i].value_or(0) > 0;
  }
  return spills;
}

}  // namespace zefuse
