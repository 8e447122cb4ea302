// The derivatives of attention as GPU kernels: lowered, run on the host, compared with plain C++ in double precision.
#include <bit>

#include "tests/unit/lowering/attention_case.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

class AttentionGradient : public testing::TestWithParam<TargetDescription> {};
INSTANTIATE_TEST_SUITE_P(Targets, AttentionGradient,
                         testing::Values(*TargetDescription::named("dg2-g11"), *TargetDescription::named("bmg-g21"),
                                         *TargetDescription::named("tgllp")),
                         targetName);

struct Gradients {
  std::vector<double> q, k, v;
  Floats log_sums, delta;
};

// mask: one number per (row, key), or empty.
Gradients gradientsOf(const AttentionCase& c, const Floats& q, const Floats& k, const Floats& v, const Floats& grad,
                      const std::vector<double>& mask) {
  Gradients result;
  result.q.resize(q.size());
  result.k.resize(k.size());
  result.v.resize(v.size());
  for (int h = 0; h < c.heads; ++h)
    for (int i = 0; i < c.rows; ++i) {
      const int kh = h / (c.heads / c.key_heads);
      const float *query = &q[(h * c.rows + i) * c.depth], *gradient = &grad[(h * c.rows + i) * c.columns];
      std::vector<double> probability(c.keys), by_probability(c.keys);
      double top = -INFINITY, sum = 0, delta = 0;
      for (int j = 0; j < c.keys; ++j) {
        double dot = 0;
        for (int d = 0; d < c.depth; ++d)
          dot += double(query[d]) * k[(kh * c.keys + j) * c.depth + d];
        probability[j] = c.causal && j > i ? -INFINITY : dot * c.scale + (mask.empty() ? 0 : mask[i * c.keys + j]);
        top = std::max(top, probability[j]);
      }
      for (double& score : probability)
        sum += score = top == -INFINITY ? 0 : std::exp(score - top);
      for (int j = 0; j < c.keys; ++j) {
        probability[j] = sum == 0 ? 0 : probability[j] / sum;
        for (int e = 0; e < c.columns; ++e)
          by_probability[j] += double(gradient[e]) * v[(kh * c.keys + j) * c.columns + e];
        delta += probability[j] * by_probability[j];
      }
      result.log_sums.push_back(float(top + std::log(sum)));
      result.delta.push_back(float(delta));
      for (int j = 0; j < c.keys; ++j) {
        const double by_score = probability[j] * (by_probability[j] - delta) * c.scale;
        for (int d = 0; d < c.depth; ++d) {
          result.q[(h * c.rows + i) * c.depth + d] += by_score * k[(kh * c.keys + j) * c.depth + d];
          result.k[(kh * c.keys + j) * c.depth + d] += by_score * query[d];
        }
        for (int e = 0; e < c.columns; ++e)
          result.v[(kh * c.keys + j) * c.columns + e] += probability[j] * gradient[e];
      }
    }
  return result;
}

void checkGradient(AttentionCase c, const TargetDescription& target, const std::vector<double>& mask = {}) {
  SCOPED_TRACE(c.element + ", " + std::to_string(c.heads) + " heads, " + std::to_string(c.rows) + " rows, " +
               std::to_string(c.keys) + " keys of " + std::to_string(c.depth) + ", " + std::to_string(c.columns));
  Floats q = randomFloats(c.heads * c.rows * c.depth, 1, 1), k = randomFloats(c.key_heads * c.keys * c.depth, 2, 1),
         v = randomFloats(c.key_heads * c.keys * c.columns, 3, 1),
         grad = randomFloats(c.heads * c.rows * c.columns, 4, 1);
  std::vector<void*> arguments{q.data(), k.data(), v.data(), grad.data()};
  std::vector<uint16_t> bits[4];
  // P and dS are rounded to the operands' type on the engine; of the largest value.
  const double tolerance = c.element == "f32" ? 1e-5 : c.element == "f16" ? 2e-3 : 1.5e-2;
  if (c.element != "f32")
    for (auto [number, operand] :
         std::initializer_list<std::pair<int, Floats*>>{{0, &q}, {1, &k}, {2, &v}, {3, &grad}}) {
      for (float& value : *operand) {
        auto half = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
        uint16_t brain = uint16_t(std::bit_cast<uint32_t>(value) >> 16);
        bits[number].push_back(c.element == "f16" ? half : brain);
        value = c.element == "f16" ? float(std::bit_cast<_Float16>(half)) : std::bit_cast<float>(uint32_t(brain) << 16);
      }
      arguments[number] = bits[number].data();
    }
  Gradients expected = gradientsOf(c, q, k, v, grad, mask);
  arguments.push_back(expected.log_sums.data());
  arguments.push_back(expected.delta.data());
  Floats added(mask.begin(), mask.end());
  std::vector<uint8_t> kept;
  for (double value : mask)
    kept.push_back(value == 0);
  if (!c.mask.empty())
    arguments.push_back(c.mask == "i1" ? static_cast<void*>(kept.data()) : added.data());
  std::vector<int64_t> symbols;
  if (c.symbolic)
    symbols = {c.rows, c.keys};
  auto compare = [&](const char* what, const Guarded& result, const std::vector<double>& right) {
    SCOPED_TRACE(what);
    result.expectUntouched();
    double largest = 1;
    for (double value : right)
      largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < right.size(); ++i)
      ASSERT_NEAR(result[i], right[i], tolerance * largest) << "element " << i;
  };
  {
    c.gradient = "queries";
    Program program(c, target);
    ASSERT_TRUE(program.ok());
    EXPECT_EQ(program.lowered().schedule.onMatrixEngine(), c.element != "f32" && target.matrix.lanes != 0);
    Guarded of_q(q.size());
    std::vector<void*> all(arguments);
    all.push_back(of_q.data());
    program.run(all, symbols);
    compare("queries", of_q, expected.q);
  }
  c.gradient = "keys";
  Program program(c, target);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program.lowered().schedule.onMatrixEngine(), c.element != "f32" && target.matrix.lanes != 0);
  Guarded of_k(k.size()), of_v(v.size());
  std::vector<void*> both(arguments);
  both.push_back(of_k.data());
  both.push_back(of_v.data());
  program.run(both, symbols);
  compare("keys", of_k, expected.k);
  compare("values", of_v, expected.v);
  if (c.element == "f32" || target.matrix.form != MatrixForm::fragments)
    return;
  c.gradient = "all";
  Program joined(c, target);
  ASSERT_TRUE(joined.ok());
  Guarded q_of_all(q.size()), k_of_all(k.size()), v_of_all(v.size());
  for (Guarded* result : {&q_of_all, &k_of_all, &v_of_all})
    arguments.push_back(result->data());
  joined.run(arguments, symbols);
  compare("queries of all", q_of_all, expected.q);
  compare("keys of all", k_of_all, expected.k);
  compare("values of all", v_of_all, expected.v);
}

TEST_P(AttentionGradient, Sizes) {
  checkGradient({.heads = 2, .key_heads = 2, .rows = 64, .keys = 64, .depth = 32, .columns = 32}, GetParam());
  checkGradient({.heads = 3, .key_heads = 3, .rows = 5, .keys = 77, .depth = 20, .columns = 24}, GetParam());
  checkGradient({.heads = 1, .key_heads = 1, .rows = 1, .keys = 1, .depth = 3, .columns = 1}, GetParam());
  checkGradient({.heads = 1, .key_heads = 1, .rows = 70, .keys = 33, .depth = 128, .columns = 128, .scale = 0.1},
                GetParam());
}

TEST_P(AttentionGradient, CausalAndGroupedQueries) {
  checkGradient({.heads = 2, .key_heads = 2, .rows = 90, .keys = 90, .depth = 16, .columns = 16, .causal = true},
                GetParam());
  checkGradient({.heads = 2, .key_heads = 2, .rows = 10, .keys = 80, .depth = 16, .columns = 16, .causal = true},
                GetParam());
  checkGradient(
      {.heads = 6, .key_heads = 2, .rows = 70, .keys = 40, .depth = 16, .columns = 16, .scale = 0.25, .causal = true},
      GetParam());
  checkGradient({.heads = 4, .key_heads = 1, .rows = 20, .keys = 50, .depth = 16, .columns = 16, .scale = 0.25},
                GetParam());
}

// Keys that nobody sees and a row that sees none, by added and by boolean masks.
TEST_P(AttentionGradient, Masks) {
  AttentionCase c{.heads = 2, .key_heads = 1, .rows = 43, .keys = 45, .depth = 16, .columns = 16, .mask = "f32"};
  std::vector<double> mask(43 * 45);
  for (size_t i = 0; i < mask.size(); ++i)
    mask[i] = i % 7 == 0 || i / 45 == 4 || i % 45 == 9 ? -INFINITY : 0.25 * double(i % 5);
  checkGradient(c, GetParam(), mask);
  for (double& value : mask)
    value = value == -INFINITY ? value : 0;
  c.mask = "i1";
  for (std::string element : {"f32", "f16"}) {
    c.element = element;
    checkGradient(c, GetParam(), mask);
    c.symbolic = !c.symbolic;
  }
}

TEST_P(AttentionGradient, SixteenBits) {
  for (std::string element : {"f16", "bf16"}) {
    AttentionCase whole{.heads = 2, .key_heads = 2, .rows = 64, .keys = 64, .depth = 64, .columns = 64, .scale = 0.125};
    AttentionCase odd{.heads = 4, .key_heads = 2, .rows = 37, .keys = 45, .depth = 20, .columns = 24, .causal = true};
    AttentionCase wide{.heads = 1, .key_heads = 1, .rows = 39, .keys = 70, .depth = 128, .columns = 128, .scale = 0.1};
    for (AttentionCase* c : {&whole, &odd, &wide}) {
      c->element = element;
      checkGradient(*c, GetParam());
    }
  }
}

TEST_P(AttentionGradient, Symbols) {
  for (auto [rows, keys] : {std::pair{3, 5}, std::pair{65, 70}, std::pair{0, 4}})
    for (bool causal : {false, true})
      checkGradient({.heads = 2,
                     .key_heads = 2,
                     .rows = rows,
                     .keys = keys,
                     .depth = 16,
                     .columns = 16,
                     .causal = causal,
                     .symbolic = true},
                    GetParam());
}

// Where lanes hold fragments, a sub-group's rows go through both products in registers.
void checkFragments(AttentionCase c, const char* element, const std::vector<double>& mask = {}) {
  c.element = element;
  checkGradient(c, *TargetDescription::named("sm_90"), mask);
}

TEST(AttentionGradientOnFragments, CausalGroupedQueriesOfHeadsThatNoSquareHolds) {
  checkFragments({.heads = 4, .key_heads = 2, .rows = 29, .keys = 13, .depth = 12, .columns = 20, .causal = true},
                 "bf16");
}

TEST(AttentionGradientOnFragments, MaskAndRowsThatSeeNothing) {
  std::vector<double> mask(size_t(15 * 14));
  for (size_t i = 0; i < mask.size(); ++i)
    mask[i] = i % 7 == 0 || i / 14 == 4 || i % 14 == 9 ? -INFINITY : 0.25 * double(i % 5);
  checkFragments({.heads = 2, .key_heads = 1, .rows = 15, .keys = 14, .depth = 16, .columns = 16, .mask = "f32"}, "f16",
                 mask);
}

TEST(AttentionGradientOnFragments, StepsOfSymbolicSizes) {
  checkFragments({.heads = 1,
                  .key_heads = 1,
                  .rows = 70,
                  .keys = 130,
                  .depth = 16,
                  .columns = 16,
                  .causal = true,
                  .symbolic = true},
                 "bf16");
}

// Heads whose own rows' operands have no room in registers beside the results.
TEST(AttentionGradientOnFragments, WideHeads) {
  checkFragments({.heads = 1, .key_heads = 1, .rows = 14, .keys = 16, .depth = 128, .columns = 128, .scale = 0.1},
                 "bf16");
}

}  // namespace
}  // namespace zefuse::test
