// Which copies of an input to keep, packed or on a device, where calls bring different weights for it: layers that are
// compiled one by one share one graph, and every call is another layer's.
//
// One, until weights without a copy are used again, which a larger room would have kept: then as many as were used in
// between. So R layers in turn are copied twice each and then no more, and weights that are replaced by new ones (never
// used again) take the room of one. Like the ghost lists of ARC (Megiddo, Modha: FAST 2003).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace zefuse::executor {

// By what a copy is known to be fresh (derived_weights.h).
struct WeightStamp {
  const void* data = nullptr;
  uint64_t version = 0;
  uint64_t fingerprint = 0;
  uint64_t generation = 0;
  bool operator==(const WeightStamp&) const = default;
};

// `Copy` has a `stamp`. Not thread-safe.
template <class Copy> class KeptCopies {
public:
  using Pointer = std::shared_ptr<const Copy>;
  struct Use {
    WeightStamp stamp;
    Pointer copy;  // null: let go of, or never made
  };

  // Notes a use of `stamp`. Its copy, or null; `again`: it was used before, lately.
  Pointer use(const WeightStamp& stamp, bool* again = nullptr) {
    auto found = std::ranges::find(uses_, stamp, &Use::stamp);
    if (again)
      *again = found != uses_.end();
    if (found != uses_.end()) {
      if (!found->copy)
        room_ = std::max(room_, size_t(found - uses_.begin()) + 1);
      std::rotate(uses_.begin(), found, found + 1);
    } else {
      std::erase_if(uses_, [&](const Use& use) { return !use.copy && use.stamp.data == stamp.data; });
      uses_.resize(std::min(uses_.size(), most - 1));
      uses_.insert(uses_.begin(), {stamp, nullptr});
    }
    return uses_.front().copy;
  }

  // Before a copy is made for the use() just noted, which has none: lets go of one for it, if it must, and gives it to
  // the caller, who may use its memory again if nobody else does.
  Pointer makeRoom() {
    const auto others = std::ranges::subrange(uses_.begin() + 1, uses_.end());
    auto stale = std::ranges::find_if(
        others, [&](const Use& use) { return use.copy && use.stamp.data == uses_.front().stamp.data; });
    if (stale != uses_.end()) {
      Pointer copy = std::move(stale->copy);
      uses_.erase(stale);
      return copy;
    }
    auto holds = [](const Use& use) { return use.copy != nullptr; };
    if (size_t(std::ranges::count_if(others, holds)) < room_)
      return nullptr;
    return std::move(std::find_if(uses_.rbegin(), uses_.rend(), holds)->copy);
  }
  void add(Pointer copy) { uses_.front().copy = std::move(copy); }  // of the use() just noted

  // Lets go of what only this object holds. True: there was something.
  bool dropUnused() {
    bool any = false;
    for (Use& use : uses_)
      if (use.copy.use_count() == 1) {
        use.copy.reset();
        any = true;
      }
    return any;
  }
  const std::vector<Use>& uses() const { return uses_; }  // the latest first

private:
  static constexpr size_t most = 256;  // layers of one model; a search of so many stamps is quicker than any copy
  std::vector<Use> uses_;
  size_t room_ = 1;  // for so many copies
};

}  // namespace zefuse::executor
