// Attention by blocks of rows against loops in double precision.
#include "runtime/onednn/attention.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "common/plan/plan_generated.h"
#include "runtime/onednn/bf16.h"
#include "runtime/onednn/team.h"

namespace zefuse::onednn {
namespace {

struct Case {
  int64_t batch, heads, key_heads, rows, keys, depth, width;
  bool causal = false;
};

// [batch, heads, rows, columns], in memory as [batch, rows, heads, columns] with a gap behind each row.
struct Memory {
  TensorDesc desc;
  std::vector<float> wide;
  std::vector<uint16_t> narrow;

  Memory(plan::DType dtype, std::vector<int64_t> sizes) {
    const int64_t row = sizes[3] + 3;
    desc = {dtype, sizes, {sizes[2] * sizes[1] * row, row, sizes[1] * row, 1}};
    const auto count = size_t(sizes[0] * sizes[1] * sizes[2] * row);
    if (dtype == plan::DType::f32)
      wide.assign(count, NAN);
    else
      narrow.assign(count, 0x7fc0);
  }

  void* data() { return wide.empty() ? static_cast<void*>(narrow.data()) : wide.data(); }
  size_t at(int64_t b, int64_t h, int64_t row, int64_t i) const {
    return size_t(b * desc.strides[0] + h * desc.strides[1] + row * desc.strides[2] + i);
  }
  float get(size_t place) const {
    return wide.empty() ? std::bit_cast<float>(uint32_t(narrow[place]) << 16) : wide[place];
  }
  void fill(std::mt19937& generator) {
    std::normal_distribution<float> normal;
    for (int64_t b = 0; b < desc.sizes[0]; ++b)
      for (int64_t h = 0; h < desc.sizes[1]; ++h)
        for (int64_t row = 0; row < desc.sizes[2]; ++row)
          for (int64_t i = 0; i < desc.sizes[3]; ++i)
            if (const float value = normal(generator); wide.empty())
              narrow[at(b, h, row, i)] = bitsOfBf16(value);
            else
              wide[at(b, h, row, i)] = value;
  }
};

void expectAttention(plan::DType dtype, const Case& c, int threads) {
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
  auto made = Attention::get({query.desc, key.desc, value.desc, out.desc, scale, c.causal});
  ASSERT_TRUE(made.ok()) << made.status().message();
  std::vector<float> scratch((*made)->scratchBytes() / sizeof(float) + 16);
  const auto aligned = (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
  const void* values[] = {value.data()};
  const Status status =
      (*made)->run({query.data(), key.data(), nullptr, out.data(), values, reinterpret_cast<void*>(aligned), {}, {}});
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
    for (const Case& c : {Case{1, 1, 1, 1, 1, 1, 1}, Case{2, 3, 3, 33, 17, 8, 5}, Case{1, 2, 2, 64, 64, 64, 64},
                          Case{1, 4, 2, 5, 130, 40, 72}, Case{2, 2, 1, 70, 70, 32, 16, true},
                          Case{1, 1, 1, 300, 2000, 16, 48}, Case{1, 2, 1, 300, 300, 16, 24, true},
                          Case{1, 1, 1, 300, 140, 8, 8, true}, Case{1, 1, 1, 150, 300, 8, 8, true},
                          Case{1, 2, 1, 0, 0, 8, 8, true}, Case{0, 2, 1, 5, 5, 8, 8, true}, Case{1, 2, 1, 0, 9, 8, 8}})
      for (int threads : {1, 3})
        expectAttention(dtype, c, threads);
}

TEST(Attention, KeepsNaN) {
  Memory query(plan::DType::bf16, {1, 1, 2, 4}), key(plan::DType::bf16, {1, 1, 3, 4}),
      value(plan::DType::bf16, {1, 1, 3, 4}), out(plan::DType::bf16, {1, 1, 2, 4});
  std::mt19937 generator(1);
  for (Memory* operand : {&query, &key, &value})
    operand->fill(generator);
  query.narrow[query.at(0, 0, 1, 2)] = 0x7fc0;
  auto made = Attention::get({query.desc, key.desc, value.desc, out.desc, 1, false});
  ASSERT_TRUE(made.ok());
  std::vector<float> scratch((*made)->scratchBytes() / sizeof(float) + 16);
  const auto aligned = (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
  const void* values[] = {value.data()};
  ASSERT_TRUE(
      (*made)
          ->run({query.data(), key.data(), nullptr, out.data(), values, reinterpret_cast<void*>(aligned), {}, {}})
          .ok());
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isfinite(out.get(out.at(0, 0, 0, i))));
    EXPECT_TRUE(std::isnan(out.get(out.at(0, 0, 1, i))));
  }
}

}  // namespace
}  // namespace zefuse::onednn
