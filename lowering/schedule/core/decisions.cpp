#include "lowering/schedule/core/decisions.h"

#include <algorithm>

namespace zefuse {

int64_t Decisions::take(std::string_view name, int64_t modelled, std::span<const int64_t> others,
                        const std::function<std::string(int64_t)>& words) {
  Decision decision{part_ + std::string(name), modelled, modelled, {others.begin(), others.end()}, "", ""};
  auto same = std::ranges::find(made_, decision.name, &Decision::name);
  if (same != made_.end())
    return same->taken;
  decision.choices.push_back(modelled);
  std::ranges::sort(decision.choices);
  decision.choices.erase(std::ranges::unique(decision.choices).begin(), decision.choices.end());
  if (auto measured = tuning_.find(decision.name);
      measured != tuning_.end() && std::ranges::find(decision.choices, measured->second) != decision.choices.end())
    decision.taken = measured->second;
  auto said = [&](int64_t number) { return words ? words(number) : std::to_string(number); };
  decision.taken_words = said(decision.taken);
  decision.modelled_words = said(decision.modelled);
  made_.push_back(decision);
  return decision.taken;
}

void Decisions::choose(std::string_view name, int64_t& number, std::initializer_list<int64_t> all,
                       const std::function<bool()>& fits) {
  std::vector<int64_t> others;
  const int64_t modelled = number;
  for (int64_t other : all) {
    number = other;
    if (fits())
      others.push_back(other);
  }
  number = take(name, modelled, others);
}

}  // namespace zefuse
