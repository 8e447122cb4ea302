// What a GPU's own compiler spills of the kernels of a plan, asked in rounds: a plan is built as if nothing unknown
// did, then all that is unknown is asked at once, which lets the asker compile in parallel; where something spills, the
// plan is built again with what is known by then. Few plans take a second round, none more than lowerWithoutSpills has
// tries.
#pragma once

#include <map>

#include "lowering/lower.h"

namespace zefuse {

// Not thread-safe.
class SpillRounds {
public:
  // `survey`: null: nobody is asked, nothing spills.
  explicit SpillRounds(const SpillSurvey& survey) : survey_(survey) {}

  // None: not known yet, or nobody can tell.
  std::optional<int64_t> spilled(std::span<const uint32_t> kernel);
  // Ends a round. Whether something that was asked about in it spills, so that the plan must be built again.
  bool ask();

private:
  const SpillSurvey& survey_;
  std::map<std::vector<uint32_t>, std::optional<int64_t>> known_;
  std::vector<std::vector<uint32_t>> unknown_;  // in the order of the plan
};

}  // namespace zefuse
