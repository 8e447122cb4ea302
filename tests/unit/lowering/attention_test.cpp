// Attention as one GPU kernel: lowered, run on the host, compared with plain C++.
#include <bit>

#include "tests/unit/lowering/attention_case.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

class Attention : public testing::TestWithParam<TargetDescription> {};
INSTANTIATE_TEST_SUITE_P(Targets, Attention,
                         testing::Values(*TargetDescription::named("dg2-g11"), *TargetDescription::named("bmg-g21"),
                                         *TargetDescription::named("sm_89")),
                         targetName);

// mask: one number per (row, key), or null.
std::vector<double> attentionOf(const AttentionCase& c, const Floats& q, const Floats& k, const Floats& v,
                                const std::vector<double>& mask, std::vector<double>& log_sums) {
  std::vector<double> out(size_t(c.heads) * c.rows * c.columns);
  for (int h = 0; h < c.heads; ++h)
    for (int i = 0; i < c.rows; ++i) {
      int kh = h / (c.heads / c.key_heads);
      std::vector<double> score(c.keys, -INFINITY);
      double top = -INFINITY, sum = 0;
      for (int j = 0; j < c.keys; ++j) {
        if (c.causal && j > i)
          continue;
        double dot = 0;
        for (int d = 0; d < c.depth; ++d)
          dot += double(q[(h * c.rows + i) * c.depth + d]) * k[(kh * c.keys + j) * c.depth + d];
        const double added = mask.empty() ? 0 : mask[i * c.keys + j];
        score[j] = c.around ? -0.5 * dot * c.scale + 2 * added : dot * c.scale + added;
        top = std::max(top, score[j]);
      }
      for (int j = 0; j < c.keys; ++j)
        sum += score[j] = top == -INFINITY ? 0 : std::exp(score[j] - top);
      log_sums.push_back(top + std::log(sum));
      for (int e = 0; e < c.columns; ++e) {
        double total = 0;
        for (int j = 0; j < c.keys; ++j)
          total += score[j] * v[(kh * c.keys + j) * c.columns + e];
        out[(h * c.rows + i) * c.columns + e] = sum == 0 ? 0 : total / sum;
      }
    }
  return out;
}

void checkAttention(const AttentionCase& c, const TargetDescription& target, std::vector<double> mask = {}) {
  SCOPED_TRACE(std::to_string(c.heads) + " heads, " + std::to_string(c.rows) + " rows, " + std::to_string(c.keys) +
               " keys of " + std::to_string(c.depth) + ", " + std::to_string(c.columns));
  Program program(moduleOf(c), target);
  ASSERT_TRUE(program.ok());
  Floats q = randomFloats(c.heads * c.rows * c.depth, 1, 1), k = randomFloats(c.key_heads * c.keys * c.depth, 2, 1),
         v = randomFloats(c.key_heads * c.keys * c.columns, 3, 1);
  Guarded out(c.heads * c.rows * c.columns);
  std::vector<void*> arguments{q.data(), k.data(), v.data()};
  std::vector<uint16_t> bits[3];
  double tolerance = 1e-5;
  if (c.element != "f32") {
    // The probabilities are rounded to the operands' type.
    tolerance = c.element == "f16" ? 2e-3 : 1e-2;
    for (auto [number, operand] : std::initializer_list<std::pair<int, Floats*>>{{0, &q}, {1, &k}, {2, &v}}) {
      for (float& value : *operand) {
        auto half = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
        uint16_t brain = uint16_t(std::bit_cast<uint32_t>(value) >> 16);
        bits[number].push_back(c.element == "f16" ? half : brain);
        value = c.element == "f16" ? float(std::bit_cast<_Float16>(half)) : std::bit_cast<float>(uint32_t(brain) << 16);
      }
      arguments[number] = bits[number].data();
    }
  }
  Floats added(mask.begin(), mask.end());
  std::vector<uint8_t> kept;
  for (double value : mask)
    kept.push_back((value == 0) != c.around);
  if (!c.mask.empty())
    arguments.push_back(c.mask == "i1" ? static_cast<void*>(kept.data()) : added.data());
  Floats addend = randomFloats(c.heads * c.rows * c.columns, 4, 1);
  if (c.around)
    arguments.push_back(addend.data());
  arguments.push_back(out.data());
  Guarded sums(c.heads * c.rows);
  if (c.log_sums)
    arguments.push_back(sums.data());
  std::vector<int64_t> symbols;
  if (c.symbolic)
    symbols = {c.rows, c.keys};
  program.run(arguments, symbols);
  std::vector<double> expected_sums, expected = attentionOf(c, q, k, v, mask, expected_sums);
  for (size_t i = 0; c.around && i < expected.size(); ++i)
    expected[i] = std::abs(expected[i]) + addend[i];
  for (double& sum : expected_sums)
    sum = c.around ? -sum : sum;
  out.expectUntouched();
  sums.expectUntouched();
  for (size_t i = 0; c.log_sums && i < expected_sums.size(); ++i)
    if (std::isinf(expected_sums[i]))
      ASSERT_EQ(sums[i], expected_sums[i]) << "row " << i;
    else
      ASSERT_NEAR(sums[i], expected_sums[i], 1e-4) << "row " << i;
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(out[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

TEST_P(Attention, Sizes) {
  checkAttention({.heads = 2, .key_heads = 2, .rows = 64, .keys = 64, .depth = 32, .columns = 32}, GetParam());
  checkAttention({.heads = 3, .key_heads = 3, .rows = 5, .keys = 77, .depth = 20, .columns = 24}, GetParam());
  checkAttention({.heads = 1, .key_heads = 1, .rows = 1, .keys = 1, .depth = 3, .columns = 1}, GetParam());
  checkAttention({.heads = 1, .key_heads = 1, .rows = 70, .keys = 33, .depth = 128, .columns = 128}, GetParam());
}

// The tiles of many queries, with steps that all rows see and others; a scale that makes maxima grow far from step to
// step.
// Products of four sub-groups, which sm_90 has, are simulated elsewhere (cuda_simulated_products).
TEST(AttentionTargets, ManyQueries) {
  TargetDescription target = *TargetDescription::named("sm_89");
  target.engines = 1;  // few groups keep large tiles
  for (bool causal : {false, true}) {
    AttentionCase c{.heads = 1, .key_heads = 1, .rows = 130, .keys = 150, .depth = 64, .columns = 64, .scale = 3};
    c.causal = causal;
    c.log_sums = causal;
    c.element = "bf16";
    checkAttention(c, target);
  }
  checkAttention({.heads = 1, .key_heads = 1, .rows = 130, .keys = 150, .depth = 64, .columns = 64, .causal = true},
                 target);
  checkAttention({.heads = 1, .key_heads = 1, .rows = 129, .keys = 70, .depth = 128, .columns = 128}, target);
}

TEST_P(Attention, CausalAndGroupedQueries) {
  checkAttention({.heads = 2, .key_heads = 2, .rows = 50, .keys = 50, .depth = 16, .columns = 16, .causal = true},
                 GetParam());
  checkAttention(
      {.heads = 6, .key_heads = 2, .rows = 20, .keys = 40, .depth = 16, .columns = 16, .scale = 0.25, .causal = true},
      GetParam());
}

TEST_P(Attention, Masks) {
  AttentionCase c{.heads = 2, .key_heads = 2, .rows = 13, .keys = 45, .depth = 16, .columns = 16, .mask = "f32"};
  std::vector<double> mask(13 * 45);
  for (size_t i = 0; i < mask.size(); ++i)
    mask[i] = i % 7 == 0 ? -INFINITY : 0.25 * double(i % 5);
  checkAttention(c, GetParam(), mask);
  // A row that sees nothing is zeros.
  for (double& value : mask)
    value = value == -INFINITY ? value : 0;
  for (int j = 0; j < 45; ++j)
    mask[4 * 45 + j] = -INFINITY;
  for (const char* kind : {"f32", "i1"}) {
    c.mask = kind;
    checkAttention(c, GetParam(), mask);
  }
}

TEST_P(Attention, SixteenBits) {
  for (std::string element : {"f16", "bf16"}) {
    AttentionCase whole{.heads = 2, .key_heads = 2, .rows = 64, .keys = 64, .depth = 64, .columns = 64, .scale = 0.125};
    whole.element = element;
    Program program(moduleOf(whole), GetParam());
    EXPECT_TRUE(program.lowered().schedule.onMatrixEngine()) << describe(program.lowered().schedule);
    checkAttention(whole, GetParam());
    AttentionCase odd{.heads = 4, .key_heads = 2, .rows = 37, .keys = 45, .depth = 20, .columns = 24, .causal = true};
    odd.element = element;
    checkAttention(odd, GetParam());
    AttentionCase wide{.heads = 1, .key_heads = 1, .rows = 9, .keys = 70, .depth = 128, .columns = 128, .scale = 0.1};
    wide.element = element;
    EXPECT_TRUE(Program(moduleOf(wide), GetParam()).lowered().schedule.onMatrixEngine());
    checkAttention(wide, GetParam());
    AttentionCase masked{.heads = 2, .key_heads = 2, .rows = 13, .keys = 45, .depth = 16, .columns = 16, .mask = "i1"};
    masked.element = element;
    std::vector<double> mask(13 * 45);
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = i % 3 == 0 || i / 45 == 4 ? -INFINITY : 0;
    checkAttention(masked, GetParam(), mask);
    masked.symbolic = true;
    checkAttention(masked, GetParam(), mask);
  }
}

// What the derivative wants, for every mask; a row that sees nothing has -inf.
TEST_P(Attention, SumsOfRows) {
  for (std::string element : {"f32", "f16", "bf16"}) {
    AttentionCase c{.heads = 4, .key_heads = 2, .rows = 37, .keys = 45, .depth = 20, .columns = 24, .causal = true};
    c.element = element;
    c.log_sums = true;
    checkAttention(c, GetParam());
    c.causal = false;
    c.symbolic = true;
    c.mask = "i1";
    std::vector<double> mask(37 * 45);
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = i % 3 == 0 || i / 45 == 4 ? -INFINITY : 0;
    checkAttention(c, GetParam(), mask);
  }
  checkAttention({.heads = 1, .key_heads = 1, .rows = 9, .keys = 70, .depth = 200, .columns = 200, .log_sums = true},
                 GetParam());  // few rows per sub-group
}

// What is computed of its operands and of both results is in the same kernel.
TEST_P(Attention, WhatIsAround) {
  for (std::string element : {"f32", "f16", "bf16"})
    for (std::string kind : {"", "f32", "i1"}) {
      AttentionCase c{.heads = 4, .key_heads = 2, .rows = 37, .keys = 45, .depth = 20, .columns = 24};
      c.element = element;
      c.mask = kind;
      c.symbolic = kind == "f32";
      c.causal = kind.empty();
      c.log_sums = c.around = true;
      std::vector<double> mask(kind.empty() ? 0 : 37 * 45);
      for (size_t i = 0; i < mask.size(); ++i)
        mask[i] = i % 3 == 0 || i / 45 == 4 ? -INFINITY : kind == "f32" ? 0.25 * double(i % 5) : 0;
      checkAttention(c, GetParam(), mask);
    }
}

TEST_P(Attention, Symbols) {
  for (auto [rows, keys] : {std::pair{3, 5}, std::pair{65, 70}, std::pair{0, 4}})
    checkAttention(
        {.heads = 2, .key_heads = 2, .rows = rows, .keys = keys, .depth = 16, .columns = 16, .symbolic = true},
        GetParam());
}

}  // namespace
}  // namespace zefuse::test
