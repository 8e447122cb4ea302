// Sub-groups of an NVIDIA GPU's warps, whole and partial, against a plain model (simulated_harness.cpp).
#include <gtest/gtest.h>

#include <bit>

#include "tests/unit/codegen/harness.h"

namespace zefuse::cpu::testing {
namespace {

TEST(SimulatedSubgroups, OfEverySize) {
  Program program(loadSpirv("../cuda/subgroups"));
  ASSERT_TRUE(program.ok());
  for (int width : {2, 8, 16, 32})
    for (int items : {width, 64, 48, 33, 7}) {
      SCOPED_TRACE(std::to_string(items) + " items in sub-groups of " + std::to_string(width));
      const std::string kernel = "lanes_" + std::to_string(width);
      EXPECT_EQ(program.info(kernel).required_subgroup_size, uint32_t(width));
      std::vector<int> in(2 * size_t(items)), out(16 * size_t(items));
      for (int i = 0; i < 2 * items; ++i)
        in[size_t(i)] = i * 37 % 101;
      program.run(kernel, {2, 1, 1}, {uint64_t(items), 1, 1}, {Arg::buffer(in), Arg::buffer(out)});
      for (int g = 0; g < 2; ++g)
        for (int i = 0; i < items; ++i) {
          const int lane = i % width, first = i - lane, count = std::min(width, items - first);
          const int* v = in.data() + (g * items + first);
          const int* o = out.data() + 8 * (g * items + i);
          int sum = 0, before = 0;
          uint32_t ballot = 0;
          for (int k = 0; k < count; ++k) {
            before = k == lane ? sum : before;
            sum += v[k];
            ballot |= v[k] > 40 ? 1u << k : 0;
          }
          EXPECT_EQ(o[0], v[(lane * 5 + 1) % count]);
          if ((lane ^ 1) < count)
            EXPECT_EQ(o[1], v[lane ^ 1]);
          EXPECT_EQ(uint32_t(o[2]), ballot);
          EXPECT_EQ(o[3], sum);
          EXPECT_EQ(o[4], before);
          if (count > 1)
            EXPECT_EQ(o[5], v[1]);
          EXPECT_EQ(o[6], i / width * 100 + (items + width - 1) / width);
          EXPECT_EQ(o[7], count * 100 + lane);
        }
    }
}

}  // namespace
}  // namespace zefuse::cpu::testing
