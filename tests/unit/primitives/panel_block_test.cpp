#include "runtime/primitives/simd/panel_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace zefuse::primitives::testing {
namespace {

struct Block {
  int64_t m, n, k;
};

// Rows that fill no group, one, some; columns of parts of vectors and panels.
constexpr Block blocks[] = {{1, 1, 1},     {5, 8, 7},     {12, 32, 64}, {13, 33, 9},
                            {37, 64, 256}, {256, 40, 30}, {250, 256, 3}};

std::vector<float> randomNumbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers)
    number = uniform(random);
  return numbers;
}

// Lines lie `gap` numbers further apart than they are long. Nothing beside the result is written.
TEST(PanelBlock, IsTheProduct) {
  const PanelBlockLevel* level = panelBlockLevel();
  if (!level)
    GTEST_SKIP() << "this processor has no AVX2";
  constexpr int64_t gap = 3;
  for (const auto& [m, n, k] : blocks)
    for (bool transposed : {false, true})
      for (bool lines : {false, true})
        for (bool add : {false, true}) {
          const std::vector<float> a = randomNumbers(m * (k + gap), 1);
          // Its columns as lines, or its rows.
          const int64_t right_row = (lines ? k : n) + gap;
          const std::vector<float> b = randomNumbers((lines ? n : k) * right_row, 2);
          std::vector<float> left(size_t(block_line * std::max(m, k)));
          if (transposed)
            level->transpose(a.data(), k + gap, m, k, left.data());
          else
            for (int64_t i = 0; i < m; ++i)
              std::copy_n(a.data() + i * (k + gap), k, left.data() + i * block_line);
          std::vector<float> panels(size_t(level->padded(n) * k));
          (lines ? level->packLines : level->packRows)(b.data(), right_row, lines ? n : k, lines ? k : n,
                                                       panels.data());
          const std::vector<float> before = randomNumbers(m * (n + gap), 3);
          std::vector<float> out = before;
          level->multiply(transposed, m, n, k, left.data(), panels.data(), k * level->columns,
                          {out.data(), n + gap, 0.5f, add, false});
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n + gap; ++j) {
              const float old = before[size_t(i * (n + gap) + j)], made = out[size_t(i * (n + gap) + j)];
              double sum = 0;
              for (int64_t l = 0; j < n && l < k; ++l)
                sum += double(a[size_t(i * (k + gap) + l)]) *
                       double(b[size_t(lines ? j * right_row + l : l * right_row + j)]);
              if (j < n)
                ASSERT_NEAR(made, 0.5 * sum + (add ? double(old) : 0), 1e-5) << m << " " << n << " " << k;
              else
                ASSERT_EQ(made, old) << "beside the result";
            }
        }
}

}  // namespace
}  // namespace zefuse::primitives::testing
