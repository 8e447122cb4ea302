// Attention by blocks of rows against loops in double precision.
#include "runtime/primitives/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "attention_memory.h"
#include "runtime/primitives/attention/attention_operands.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::primitives {
namespace {

void expectAttention(plan::DType dtype, const AttentionCase& c, int threads) {
  SCOPED_TRACE(::testing::Message() << c.rows << " rows, " << c.keys << " keys, depth " << c.depth << ", width "
                                    << c.width << (c.causal ? ", causal" : "") << ", " << threads << " threads");
  std::mt19937 generator(1);
  Memory query(dtype, {c.batch, c.heads, c.rows, c.depth}), key(dtype, {c.batch, c.key_heads, c.keys, c.depth}),
      value(dtype, {c.batch, c.key_heads, c.keys, c.width}), out(dtype, {c.batch, c.heads, c.rows, c.width});
  for (Memory* operand : {&query, &key, &value})
    operand->fill(generator);
  const int before = maxThreads();
  setMaxThreads(threads);
  const float scale = 0.3f;
  const TensorDesc sums{plan::DType::f32, {c.batch, c.heads, c.rows}, {c.heads * c.rows, 1, c.heads}};
  std::vector<float> log_sums(size_t(c.batch * c.heads * c.rows));
  auto made = Attention::get({query.desc, key.desc, value.desc, out.desc, scale, c.causal, sums});
  ASSERT_TRUE(made.ok()) << made.status().message();
  Scratch scratch((*made)->scratchBytes());
  const void* values[] = {value.data()};
  void* results[] = {log_sums.data()};
  const Status status =
      (*made)->run({query.data(), key.data(), nullptr, out.data(), values, scratch.data(), {}, results});
  setMaxThreads(before);
  ASSERT_TRUE(status.ok()) << status.message();

  const double tolerance = dtype == plan::DType::f32 ? 1e-5 : 1e-2;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t row = 0; row < c.rows; ++row) {
        const int64_t of = h / (c.heads / c.key_heads), seen = c.causal ? std::min(c.keys, row + 1) : c.keys;
        std::vector<double> weights(static_cast<size_t>(seen));
        double sum = 0, most = -INFINITY;
        for (int64_t k = 0; k < seen; ++k) {
          for (int64_t i = 0; i < c.depth; ++i)
            weights[size_t(k)] += double(scale) * query.get(query.at(b, h, row, i)) * key.get(key.at(b, of, k, i));
          most = std::max(most, weights[size_t(k)]);
        }
        for (double& weight : weights)
          sum += weight = std::exp(weight - most);
        ASSERT_NEAR(log_sums[size_t((b * c.rows + row) * c.heads + h)], most + std::log(sum), 1e-3);
        for (int64_t i = 0; i < c.width; ++i) {
          double wanted = 0;
          for (int64_t k = 0; k < seen; ++k)
            wanted += weights[size_t(k)] / sum * value.get(value.at(b, of, k, i));
          ASSERT_NEAR(out.get(out.at(b, h, row, i)), wanted, tolerance * (1 + std::abs(wanted))) << row << ", " << i;
        }
        const float behind = out.get(out.at(b, h, row, 0) + size_t(c.width));  // the gap
        ASSERT_TRUE(std::isnan(behind));
      }
}

TEST(Attention, IsTheFormula) {
  for (plan::DType dtype : {plan::DType::f32, plan::DType::bf16})
    for (const AttentionCase& c :
         {AttentionCase{1, 1, 1, 1, 1, 1, 1}, AttentionCase{2, 3, 3, 33, 17, 8, 5},
          AttentionCase{1, 2, 2, 64, 64, 64, 64}, AttentionCase{1, 4, 2, 5, 130, 40, 72},
          AttentionCase{2, 2, 1, 70, 70, 32, 16, true}, AttentionCase{1, 1, 1, 300, 2000, 16, 48},
          AttentionCase{1, 2, 1, 300, 300, 16, 24, true}, AttentionCase{1, 1, 1, 300, 140, 8, 8, true},
          AttentionCase{1, 1, 1, 150, 300, 8, 8, true}, AttentionCase{1, 2, 1, 0, 0, 8, 8, true},
          AttentionCase{0, 2, 1, 5, 5, 8, 8, true}, AttentionCase{1, 2, 1, 0, 9, 8, 8},
          AttentionCase{1, 2, 2, 129, 505, 40, 72}, AttentionCase{2, 2, 1, 65, 253, 64, 7},
          AttentionCase{1, 3, 3, 33, 600, 24, 13, true}, AttentionCase{1, 1, 1, 600, 33, 9, 3, true},
          AttentionCase{1, 1, 1, 16, 1, 3, 1}, AttentionCase{1, 1, 1, 48, 11, 1, 1}})
      for (int threads : {1, 3})
        expectAttention(dtype, c, threads);
}

TEST(Attention, KeepsNaN) {
  for (plan::DType dtype : {plan::DType::f32, plan::DType::bf16})
    for (int64_t rows : {2, 20, 40}) {
      Memory query(dtype, {1, 1, rows, 4}), key(dtype, {1, 1, 300, 4}), value(dtype, {1, 1, 300, 4}),
          out(dtype, {1, 1, rows, 4});
      std::mt19937 generator(1);
      for (Memory* operand : {&query, &key, &value})
        operand->fill(generator);
      query.set(query.at(0, 0, 1, 2), NAN);
      auto made = Attention::get({query.desc, key.desc, value.desc, out.desc, 1, false});
      ASSERT_TRUE(made.ok());
      Scratch scratch((*made)->scratchBytes());
      const void* values[] = {value.data()};
      ASSERT_TRUE((*made)->run({query.data(), key.data(), nullptr, out.data(), values, scratch.data(), {}, {}}).ok());
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < 4; ++i)
          EXPECT_EQ(std::isnan(out.get(out.at(0, 0, row, i))), row == 1) << row;
    }
}

// Row 3 keeps no key, and what is added to row 5 is the lowest number: all its keys weigh the same then, as in torch.
TEST(Attention, AddsAMask) {
  constexpr int64_t batch = 2, heads = 2, keys = 300, depth = 8, width = 9;
  for (int64_t rows : {7, 20, 70})
    for (plan::DType dtype : {plan::DType::f32, plan::DType::b8})
      for (const std::vector<int64_t>& sizes :
           {std::vector<int64_t>{batch, heads, rows, keys}, {rows, keys}, {batch, 1, 1, keys}, {heads, rows, 1}})
        for (bool transposed : {false, true}) {
          const size_t rank = sizes.size();
          TensorDesc desc{dtype, sizes, std::vector<int64_t>(rank)};
          int64_t count = 1;
          for (size_t i = 0; i < rank; ++i) {
            const size_t at = transposed ? i : rank - 1 - i;
            desc.strides[at] = count;
            count *= sizes[at];
          }
          const MaskStrides strides(desc);
          std::mt19937 generator(1);
          std::vector<float> wide(static_cast<size_t>(count));
          std::vector<uint8_t> kept(static_cast<size_t>(count));
          for (size_t i = 0; i < kept.size(); ++i) {
            kept[i] = generator() % 4 > 0;
            wide[i] = kept[i] ? float(generator() % 8) - 4 : -INFINITY;
          }
          for (int64_t key = 0; strides.row > 0 && key < keys; ++key) {
            const auto third = size_t(3 * strides.row + key * strides.key),
                       fifth = size_t(5 * strides.row + key * strides.key);
            kept[third] = 0;
            wide[third] = -INFINITY;
            wide[fifth] = std::numeric_limits<float>::lowest();
          }
          Memory query(plan::DType::f32, {batch, heads, rows, depth}),
              key(plan::DType::f32, {batch, heads, keys, depth}), value(plan::DType::f32, {batch, heads, keys, width}),
              out(plan::DType::f32, {batch, heads, rows, width});
          for (Memory* operand : {&query, &key, &value})
            operand->fill(generator);
          const float scale = 0.3f;
          const TensorDesc sums{plan::DType::f32, {batch, heads, rows}, {heads * rows, rows, 1}};
          auto made = Attention::get({query.desc, key.desc, value.desc, out.desc, scale, false, sums, desc});
          ASSERT_TRUE(made.ok()) << made.status().message();
          Scratch scratch((*made)->scratchBytes());
          const bool boolean = dtype == plan::DType::b8;
          const void* values[] = {value.data(), boolean ? static_cast<void*>(kept.data()) : wide.data()};
          std::vector<float> log_sums(static_cast<size_t>(batch * heads * rows));
          void* results[] = {log_sums.data()};
          ASSERT_TRUE(
              (*made)->run({query.data(), key.data(), nullptr, out.data(), values, scratch.data(), {}, results}).ok());
          for (int64_t b = 0; b < batch; ++b)
            for (int64_t h = 0; h < heads; ++h)
              for (int64_t row = 0; row < rows; ++row) {
                std::vector<double> weights;
                for (int64_t k = 0; k < keys; ++k) {
                  const auto place = size_t(b * strides.batch + h * strides.head + row * strides.row + k * strides.key);
                  float score = 0;
                  for (int64_t i = 0; i < depth; ++i)
                    score += query.get(query.at(b, h, row, i)) * key.get(key.at(b, h, k, i));
                  const float added = boolean ? (kept[place] ? 0 : -INFINITY) : wide[place];
                  weights.push_back(score * scale + added);  // of f32: to the lowest number nothing is added
                }
                const double most = *std::max_element(weights.begin(), weights.end());
                double sum = 0;
                for (double& weight : weights)
                  sum += weight = most == -INFINITY ? 0 : std::exp(weight - most);
                const float log_sum = log_sums[size_t((b * heads + h) * rows + row)];
                if (sum == 0)
                  ASSERT_EQ(log_sum, -INFINITY);
                else
                  ASSERT_NEAR(log_sum, most + std::log(sum), 1e-3 + 1e-6 * std::abs(most));
                for (int64_t i = 0; i < width; ++i) {
                  double wanted = 0;
                  for (int64_t k = 0; sum > 0 && k < keys; ++k)
                    wanted += weights[size_t(k)] / sum * value.get(value.at(b, h, k, i));
                  ASSERT_NEAR(out.get(out.at(b, h, row, i)), wanted, 1e-5 * (1 + std::abs(wanted)))
                      << rows << " rows, mask " << desc.sizes.size() << " dimensions, row " << row;
                }
              }
        }
}

TEST(Attention, RefusesAMaskThatIsNotTheScores) {
  Memory query(plan::DType::f32, {1, 2, 4, 8}), key(plan::DType::f32, {1, 2, 5, 8}),
      out(plan::DType::f32, {1, 2, 4, 8});
  auto made = [&](TensorDesc mask) {
    return Attention::get({query.desc, key.desc, key.desc, out.desc, 1, false, {}, std::move(mask)});
  };
  EXPECT_TRUE(made({plan::DType::f32, {4, 5}, {5, 1}}).ok());
  EXPECT_FALSE(made({plan::DType::f32, {5, 5}, {5, 1}}).ok());
  EXPECT_FALSE(made({plan::DType::f32, {1, 1, 1, 4, 5}, {20, 20, 20, 5, 1}}).ok());
  EXPECT_FALSE(made({plan::DType::bf16, {4, 5}, {5, 1}}).ok());
  EXPECT_FALSE(made({plan::DType::f32, {4, 5}, {5, -1}}).ok());
}

// Units of work hold more panels the fewer threads there are.
TEST(Attention, BitsDoNotDependOnTheThreads) {
  for (plan::DType dtype : {plan::DType::f32, plan::DType::bf16})
    for (bool causal : {false, true}) {
      Memory query(dtype, {1, 2, 333, 24}), key(dtype, {1, 2, 700, 24}), value(dtype, {1, 2, 700, 24});
      std::mt19937 generator(1);
      for (Memory* operand : {&query, &key, &value})
        operand->fill(generator);
      std::vector<float> first;
      for (int threads : {1, 2, 5}) {
        Memory out(dtype, {1, 2, 333, 24});
        const int before = maxThreads();
        setMaxThreads(threads);
        auto made = Attention::get({query.desc, key.desc, value.desc, out.desc, 1, causal});
        ASSERT_TRUE(made.ok());
        Scratch scratch((*made)->scratchBytes());
        const void* values[] = {value.data()};
        const Status status =
            (*made)->run({query.data(), key.data(), nullptr, out.data(), values, scratch.data(), {}, {}});
        setMaxThreads(before);
        ASSERT_TRUE(status.ok());
        std::vector<float> numbers;
        for (int64_t head = 0; head < 2; ++head)
          for (int64_t row = 0; row < 333; ++row)
            for (int64_t i = 0; i < 24; ++i)
              numbers.push_back(out.get(out.at(0, head, row, i)));
        if (first.empty())
          first = numbers;
        EXPECT_EQ(first, numbers) << threads;
      }
    }
}

TEST(Attention, GivesZerosForARowOfMinusInfinity) {
  for (plan::DType dtype : {plan::DType::f32, plan::DType::bf16})
    for (auto [rows, keys] : {std::pair<int64_t, int64_t>{2, 3}, {2, 40}, {20, 40}, {40, 300}}) {
      Memory query(dtype, {1, 1, rows, 4}), key(dtype, {1, 1, keys, 4}), value(dtype, {1, 1, keys, 4}),
          out(dtype, {1, 1, rows, 4});
      std::mt19937 generator(1);
      value.fill(generator);
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t row = 0; row < rows; ++row)
          query.set(query.at(0, 0, row, i), row == 0 ? -INFINITY : 1);
        for (int64_t row = 0; row < keys; ++row)
          key.set(key.at(0, 0, row, i), 1);
      }
      const TensorDesc sums{plan::DType::f32, {1, 1, rows}, {rows, rows, 1}};
      for (bool nan : {false, true}) {
        if (nan)
          key.set(key.at(0, 0, keys - 1, 0), NAN);
        auto made = Attention::get({query.desc, key.desc, value.desc, out.desc, 1, false, sums});
        ASSERT_TRUE(made.ok());
        Scratch scratch((*made)->scratchBytes());
        std::vector<float> log_sums(static_cast<size_t>(rows));
        const void* values[] = {value.data()};
        void* results[] = {log_sums.data()};
        ASSERT_TRUE(
            (*made)->run({query.data(), key.data(), nullptr, out.data(), values, scratch.data(), {}, results}).ok());
        for (int64_t i = 0; i < 4; ++i) {
          const float nothing = out.get(out.at(0, 0, 0, i)), mean = out.get(out.at(0, 0, 1, i));
          EXPECT_TRUE(nan ? std::isnan(nothing) : nothing == 0) << nothing;
          EXPECT_TRUE(nan ? std::isnan(mean) : mean != 0) << mean;
        }
        EXPECT_TRUE(nan ? std::isnan(log_sums[0]) : log_sums[0] == -INFINITY) << log_sums[0];
      }
    }
}

}  // namespace
}  // namespace zefuse::primitives
