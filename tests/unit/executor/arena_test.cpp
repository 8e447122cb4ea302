#include "runtime/executor/arena.h"

#include <gtest/gtest.h>

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

TEST(Arena, NothingNeedsNothing) {
  EXPECT_EQ(placeBuffers({}).bytes, 0u);
  const ArenaBuffer empty[] = {{0, 0, 5}};
  EXPECT_EQ(placeBuffers(empty).bytes, 0u);
}

}  // namespace
}  // namespace zefuse::executor
