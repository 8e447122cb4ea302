#include "runtime/executor/arena.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace zefuse::executor {
namespace {

size_t aligned(size_t bytes) { return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment; }

// The free memory below the end of a block.
class Gaps {
public:
  size_t take(size_t bytes) {
    auto fitting = by_size_.lower_bound({bytes, 0});
    if (fitting == by_size_.end())
      return std::exchange(end_, end_ + bytes);
    const auto [size, offset] = *fitting;
    remove(offset, size);
    if (size > bytes)
      add(offset + bytes, size - bytes);
    return offset;
  }

  void giveBack(size_t offset, size_t bytes) {
    auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.end() && after->first == offset + bytes) {
      bytes += after->second;
      remove(after->first, after->second);
    }
    auto before = by_offset_.lower_bound(offset);
    if (before != by_offset_.begin() && (--before)->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      remove(before->first, before->second);
    }
    add(offset, bytes);
  }

  size_t end() const { return end_; }

private:
  void add(size_t offset, size_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void remove(size_t offset, size_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }
  std::map<size_t, size_t> by_offset_;
  std::set<std::pair<size_t, size_t>> by_size_;
  size_t end_ = 0;
};

ArenaLayout placeByTime(std::span<const ArenaBuffer> buffers) {
  std::vector<size_t> starts(buffers.size());
  std::iota(starts.begin(), starts.end(), size_t(0));
  std::vector<size_t> ends = starts;
  std::ranges::stable_sort(starts, {}, [&](size_t i) { return buffers[i].first_step; });
  std::ranges::stable_sort(ends, {}, [&](size_t i) { return buffers[i].last_step; });
  ArenaLayout layout;
  layout.offsets.assign(buffers.size(), 0);
  Gaps gaps;
  size_t ended = 0;
  for (size_t index : starts) {
    for (; buffers[ends[ended]].last_step < buffers[index].first_step; ++ended)
      if (buffers[ends[ended]].bytes > 0)
        gaps.giveBack(layout.offsets[ends[ended]], aligned(buffers[ends[ended]].bytes));
    if (buffers[index].bytes > 0)
      layout.offsets[index] = gaps.take(aligned(buffers[index].bytes));
  }
  layout.bytes = gaps.end();
  return layout;
}

}  // namespace

ArenaLayout placeBuffers(std::span<const ArenaBuffer> buffers) {
  if (buffers.size() > first_fit_most)
    return placeByTime(buffers);
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return buffers[a].bytes != buffers[b].bytes ? buffers[a].bytes > buffers[b].bytes : a < b;
  });

  ArenaLayout layout;
  layout.offsets.assign(buffers.size(), 0);
  std::vector<size_t> placed;  // by offset
  for (size_t index : order) {
    const ArenaBuffer& buffer = buffers[index];
    size_t offset = 0;  // and of an empty one stays so
    for (size_t other : placed) {
      const ArenaBuffer& neighbour = buffers[other];
      if (neighbour.last_step < buffer.first_step || buffer.last_step < neighbour.first_step)
        continue;
      if (layout.offsets[other] >= offset + aligned(buffer.bytes))
        break;
      offset = std::max(offset, layout.offsets[other] + aligned(neighbour.bytes));
    }
    layout.offsets[index] = offset;
    layout.bytes = std::max(layout.bytes, offset + aligned(buffer.bytes));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](size_t value, size_t at) { return value < layout.offsets[at]; }),
                  index);
  }
  return layout;
}

}  // namespace zefuse::executor
