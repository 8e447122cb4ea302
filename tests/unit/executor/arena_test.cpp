#include "runtime/executor/arena.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>

namespace zefuse::executor {
namespace {

TEST(Arena, ReusesMemoryOfTheDead) {
  const ArenaBuffer buffers[] = {{1024, 0, 1}, {1024, 1, 2}, {1024, 2, 3}};
  const ArenaLayout layout = placeBuffers(buffers);
  EXPECT_EQ(layout.bytes, 2048u);
  EXPECT_EQ(layout.offsets[0], layout.offsets[2]);
  EXPECT_NE(layout.offsets[0], layout.offsets[1]);
}

TEST(Arena, FillsGapsBetweenTheLiving) {
  // The two small ones fit under the big one that starts later.
  const ArenaBuffer buffers[] = {{4096, 2, 3}, {1000, 0, 1}, {1000, 0, 1}};
  EXPECT_EQ(placeBuffers(buffers).bytes, 4096u);
}

TEST(Arena, LivingBuffersNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<ArenaBuffer> buffers;
    for (size_t i = 0; i < 40; ++i) {
      const uint32_t first = random() % 30;
      buffers.push_back({random() % 5000, first, first + uint32_t(random() % 8)});
    }
    const ArenaLayout layout = placeBuffers(buffers);
    size_t sum = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      sum += (buffers[i].bytes + 63) / 64 * 64;
      EXPECT_EQ(layout.offsets[i] % arena_alignment, 0u);
      EXPECT_LE(layout.offsets[i] + buffers[i].bytes, layout.bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool meet =
            buffers[i].first_step <= buffers[j].last_step && buffers[j].first_step <= buffers[i].last_step;
        const bool overlap = layout.offsets[i] < layout.offsets[j] + buffers[j].bytes &&
                             layout.offsets[j] < layout.offsets[i] + buffers[i].bytes;
        ASSERT_FALSE(meet && overlap) << i << " and " << j << " in round " << round;
      }
    }
    EXPECT_LT(layout.bytes, sum);  // something was reused
  }
}

TEST(Arena, EmptyBuffersLieInTheBlock) {
  const ArenaBuffer buffers[] = {{1024, 0, 3}, {0, 1, 2}, {512, 2, 3}, {0, 2, 4}};
  const ArenaLayout layout = placeBuffers(buffers);
  EXPECT_EQ(layout.bytes, 1536u);
  EXPECT_LT(layout.offsets[1], layout.bytes);
  EXPECT_LT(layout.offsets[3], layout.bytes);
}

// By a sweep over offsets at each step that a buffer begins in: what lives there must not overlap.
bool livingOverlap(const std::vector<ArenaBuffer>& buffers, const ArenaLayout& layout, uint32_t steps) {
  std::vector<std::vector<size_t>> begin(steps), end(steps);
  for (size_t i = 0; i < buffers.size(); ++i) {
    begin[buffers[i].first_step].push_back(i);
    end[buffers[i].last_step].push_back(i);
  }
  std::map<size_t, size_t> living;  // offset to its end
  for (uint32_t step = 0; step < steps; ++step) {
    for (size_t i : begin[step]) {
      if (buffers[i].bytes == 0)
        continue;
      const size_t from = layout.offsets[i], to = from + buffers[i].bytes;
      auto after = living.lower_bound(from);
      if ((after != living.end() && after->first < to) ||
          (after != living.begin() && std::prev(after)->second > from) || to > layout.bytes)
        return true;
      living.emplace(from, to);
    }
    for (size_t i : end[step])
      if (buffers[i].bytes > 0)
        living.erase(layout.offsets[i]);
  }
  return false;
}

// As many as a hostile plan of some megabytes has: first fit took minutes.
TEST(Arena, ManyBuffersArePlacedQuickly) {
  constexpr uint32_t steps = 200000;
  std::mt19937 random(2);
  std::vector<ArenaBuffer> buffers;
  size_t least = 0;
  std::vector<size_t> at(steps + 1);
  for (size_t i = 0; i < 300000; ++i) {
    const uint32_t first = random() % steps, last = std::min(steps - 1, first + uint32_t(random() % 1000));
    buffers.push_back({random() % 5000, first, last});
    at[first] += (buffers.back().bytes + 63) / 64 * 64;
    at[last + 1] -= (buffers.back().bytes + 63) / 64 * 64;
  }
  for (size_t step = 0, living = 0; step < steps; ++step)
    least = std::max(least, living += at[step]);
  const auto start = std::chrono::steady_clock::now();
  const ArenaLayout layout = placeBuffers(buffers);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_FALSE(livingOverlap(buffers, layout, steps));
  EXPECT_LT(layout.bytes, least * 2);
  for (ArenaBuffer& buffer : buffers)
    buffer.first_step = 0, buffer.last_step = steps - 1;
  EXPECT_FALSE(livingOverlap(buffers, placeBuffers(buffers), steps));
}

TEST(Arena, NothingNeedsNothing) {
  EXPECT_EQ(placeBuffers({}).bytes, 0u);
  const ArenaBuffer empty[] = {{0, 0, 5}};
  EXPECT_EQ(placeBuffers(empty).bytes, 0u);
}

}  // namespace
}  // namespace zefuse::executor
