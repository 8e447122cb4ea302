// Numbers that a schedule chooses among several right ones, which a measurement may choose in place of the cost model
// (`zefuse tune`). A schedule asks at the place where it needs the number, so that what there is to try is known from
// having lowered the kernel, and no list of it stands elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zefuse {

using Tuning = std::map<std::string, int64_t>;  // a decision's name -> the number

struct Decision {
  std::string name;              // "vectors of a work-item"
  int64_t taken = 0;             // what the code has
  int64_t modelled = 0;          // what the cost model would have taken
  std::vector<int64_t> choices;  // ascending, all of them right; `taken` and `modelled` among them
  std::string taken_words, modelled_words;
};

// Of one kernel that is being lowered. Deterministic. Not thread-safe.
class Decisions {
public:
  explicit Decisions(Tuning tuning = {}) : tuning_(std::move(tuning)) {}

  // `modelled`, or what was measured if it is one of `others`: an entry from elsewhere never makes wrong code. A name
  // that was asked for before in this part of the kernel gets the same answer. `words`: of a number that says nothing
  // itself.
  int64_t take(std::string_view name, int64_t modelled, std::span<const int64_t> others,
               const std::function<std::string(int64_t)>& words = {});
  int64_t take(std::string_view name, int64_t modelled, std::initializer_list<int64_t> others) {
    return take(name, modelled, std::span(others.begin(), others.size()));
  }
  // `number`, which is modelled, becomes what was measured if it is one of those of `all` with which `fits()` holds.
  void choose(std::string_view name, int64_t& number, std::initializer_list<int64_t> all,
              const std::function<bool()>& fits);
  bool take(std::string_view name, bool modelled) { return take(name, int64_t(modelled), {0, 1}) != 0; }

  // Decisions from here on are of this part of a kernel with several, whose names begin with its number.
  void beginPart(unsigned number) { part_ = number == 0 ? "" : std::to_string(number + 1) + ": "; }

  const std::vector<Decision>& made() const { return made_; }

private:
  Tuning tuning_;
  std::string part_;
  std::vector<Decision> made_;
};

}  // namespace zefuse
