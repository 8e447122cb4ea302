// What a GPU's own compiler spills of the kernels of a plan, asked in rounds: all are lowered as if nothing unknown
// did, then all that is unknown is asked at once, which lets the asker compile in parallel; what spills is lowered
// again with what is known by then. Few plans take a second round, none more than lowerWithoutSpills has tries.
#pragma once

#include <map>

#include "lowering/lower.h"

namespace zefuse {

// Thread-safe between two calls of ask.
class SpillRounds {
public:
  // `survey`: null: nobody is asked, nothing spills.
  explicit SpillRounds(const SpillSurvey& survey) : survey_(survey) {}

  // None: not known yet, or nobody can tell.
  std::optional<int64_t> spilled(std::span<const uint32_t> kernel) const;
  // Whether the survey was asked about it.
  bool asked(std::span<const uint32_t> kernel) const;
  // Ends a round, in which these kernels were met and not known, in the order of the plan; may hold equal ones. Whether
  // one of them spills.
  bool ask(std::span<const std::vector<uint32_t>> kernels);

private:
  const SpillSurvey& survey_;
  std::map<std::vector<uint32_t>, std::optional<int64_t>> known_;
};

}  // namespace zefuse
