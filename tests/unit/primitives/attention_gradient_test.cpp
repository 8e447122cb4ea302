// The derivatives of attention by blocks against loops in double precision.
#include "runtime/primitives/attention/attention_gradient.h"

#include <cmath>
#include <gtest/gtest.h>

#include "attention_memory.h"
#include "runtime/primitives/attention/attention.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/amx_tiles.h"

namespace zefuse::primitives {
namespace {

using Doubles = std::vector<double>;

struct Trial {
  Memory query, key, value, gradient, of_query, of_key, of_value;
  TensorDesc sums;
  std::vector<float> log_sums, row_sums;
  // By the formula.
  Doubles wanted_query, wanted_key, wanted_value;

  Trial(plan::DType dtype, const AttentionCase& c, float scale)
      : query(dtype, {c.batch, c.heads, c.rows, c.depth}), key(dtype, {c.batch, c.key_heads, c.keys, c.depth}),
        value(dtype, {c.batch, c.key_heads, c.keys, c.width}), gradient(dtype, {c.batch, c.heads, c.rows, c.width}),
        of_query(dtype, {c.batch, c.heads, c.rows, c.depth}), of_key(dtype, {c.batch, c.key_heads, c.keys, c.depth}),
        of_value(dtype, {c.batch, c.key_heads, c.keys, c.width}),
        sums{plan::DType::f32, {c.batch, c.heads, c.rows}, {c.heads * c.rows * 2, 2, c.heads * 2}} {
    std::mt19937 generator(1);
    for (Memory* operand : {&query, &key, &value, &gradient})
      operand->fill(generator);
    log_sums.resize(size_t(2 * c.batch * c.heads * c.rows), NAN);
    row_sums = log_sums;
    wanted_query.resize(size_t(c.batch * c.heads * c.rows * c.depth));
    wanted_key.resize(size_t(c.batch * c.key_heads * c.keys * c.depth));
    wanted_value.resize(size_t(c.batch * c.key_heads * c.keys * c.width));
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t row = 0; row < c.rows; ++row)
          add(c, scale, b, h, row);
  }

  void add(const AttentionCase& c, double scale, int64_t b, int64_t h, int64_t row) {
    const int64_t of = h / (c.heads / c.key_heads), seen = c.causal ? std::min(c.keys, row + 1) : c.keys;
    Doubles weights(static_cast<size_t>(seen)), of_weights(static_cast<size_t>(seen));
    double sum = 0, row_sum = 0;
    for (int64_t k = 0; k < seen; ++k) {
      double score = 0;
      for (int64_t i = 0; i < c.depth; ++i)
        score += scale * query.get(query.at(b, h, row, i)) * key.get(key.at(b, of, k, i));
      for (int64_t i = 0; i < c.width; ++i)
        of_weights[size_t(k)] += double(gradient.get(gradient.at(b, h, row, i))) * value.get(value.at(b, of, k, i));
      sum += weights[size_t(k)] = std::exp(score);
    }
    for (int64_t k = 0; k < seen; ++k)
      row_sum += (weights[size_t(k)] /= sum) * of_weights[size_t(k)];
    const auto place = size_t(b * sums.strides[0] + h * sums.strides[1] + row * sums.strides[2]);
    log_sums[place] = float(std::log(sum));
    row_sums[place] = float(row_sum);
    for (int64_t k = 0; k < seen; ++k) {
      const double weight = weights[size_t(k)], of_score = scale * weight * (of_weights[size_t(k)] - row_sum);
      for (int64_t i = 0; i < c.depth; ++i) {
        wanted_query[size_t(((b * c.heads + h) * c.rows + row) * c.depth + i)] +=
            of_score * key.get(key.at(b, of, k, i));
        wanted_key[size_t(((b * c.key_heads + of) * c.keys + k) * c.depth + i)] +=
            of_score * query.get(query.at(b, h, row, i));
      }
      for (int64_t i = 0; i < c.width; ++i)
        wanted_value[size_t(((b * c.key_heads + of) * c.keys + k) * c.width + i)] +=
            weight * gradient.get(gradient.at(b, h, row, i));
    }
  }

  AttentionGradientDesc desc(const AttentionCase& c, float scale) const {
    return {query.desc,    key.desc,    value.desc,    gradient.desc, sums,    sums,
            of_query.desc, of_key.desc, of_value.desc, scale,         c.causal};
  }
};

void expectNear(const Memory& result, const Doubles& wanted, double tolerance, const char* name) {
  const auto& sizes = result.desc.sizes;
  double most = 0;
  for (double each : wanted)
    most = std::max(most, std::abs(each));
  size_t i = 0;
  for (int64_t b = 0; b < sizes[0]; ++b)
    for (int64_t h = 0; h < sizes[1]; ++h)
      for (int64_t row = 0; row < sizes[2]; ++row) {
        for (int64_t column = 0; column < sizes[3]; ++column, ++i)
          ASSERT_NEAR(result.get(result.at(b, h, row, column)), wanted[i], tolerance * most + 1e-30)
              << name << " " << b << ", " << h << ", " << row << ", " << column;
        ASSERT_TRUE(std::isnan(result.get(result.at(b, h, row, 0) + size_t(sizes[3])))) << "the gap";
      }
}

Status run(const AttentionGradientDesc& desc, Trial& trial) {
  auto made = AttentionGradient::get(desc);
  if (!made.ok())
    return made.status();
  Scratch scratch((*made)->scratchBytes());
  const void* operands[] = {trial.query.data(),    trial.key.data(),      trial.value.data(),
                            trial.gradient.data(), trial.log_sums.data(), trial.row_sums.data()};
  void* results[] = {desc.query_gradient.sizes.empty() ? nullptr : trial.of_query.data(),
                     desc.key_gradient.sizes.empty() ? nullptr : trial.of_key.data(),
                     desc.value_gradient.sizes.empty() ? nullptr : trial.of_value.data()};
  Primitive::Arguments arguments{};
  arguments.operands = operands;
  arguments.results = results;
  arguments.scratch = scratch.data();
  return (*made)->run(arguments);
}

TEST(AttentionGradient, IsTheFormula) {
  const int before = maxThreads();
  for (plan::DType dtype : {plan::DType::f32, plan::DType::bf16})
    for (const AttentionCase& c :
         {AttentionCase{1, 1, 1, 1, 1, 1, 1}, AttentionCase{2, 3, 3, 33, 17, 8, 5},
          AttentionCase{1, 2, 2, 64, 64, 64, 64}, AttentionCase{1, 4, 2, 5, 230, 40, 72},
          AttentionCase{2, 2, 1, 70, 70, 32, 16, true}, AttentionCase{1, 1, 1, 300, 1000, 16, 48},
          AttentionCase{1, 2, 1, 500, 500, 16, 24, true}, AttentionCase{1, 1, 1, 300, 140, 8, 8, true},
          AttentionCase{1, 1, 1, 150, 500, 8, 8, true}, AttentionCase{1, 1, 1, 300, 700, 8, 8, true},
          AttentionCase{9, 8, 8, 20, 410, 8, 8}, AttentionCase{9, 8, 8, 410, 410, 8, 8, true},
          AttentionCase{1, 2, 1, 0, 0, 8, 8, true}, AttentionCase{0, 2, 1, 5, 5, 8, 8, true},
          AttentionCase{1, 2, 1, 0, 9, 8, 8}, AttentionCase{1, 2, 1, 5, 0, 8, 8}}) {
      Trial trial(dtype, c, 0.3f);
      for (int threads : {1, 3}) {
        SCOPED_TRACE(toString(trial.desc(c, 0.3f)) + ", threads: " + std::to_string(threads));
        setMaxThreads(threads);
        const Status status = run(trial.desc(c, 0.3f), trial);
        setMaxThreads(before);
        ASSERT_TRUE(status.ok()) << status.message();
        const double tolerance = dtype == plan::DType::f32 ? 1e-5 : 1e-2;
        expectNear(trial.of_query, trial.wanted_query, tolerance, "query");
        expectNear(trial.of_key, trial.wanted_key, tolerance, "key");
        expectNear(trial.of_value, trial.wanted_value, tolerance, "value");
      }
    }
}

TEST(AttentionGradient, MakesWhatIsAskedFor) {
  const AttentionCase c{1, 2, 1, 200, 210, 8, 16};
  for (int asked = 0; asked < 16; ++asked) {
    const plan::DType dtype = asked & 8 ? plan::DType::bf16 : plan::DType::f32;
    Trial trial(dtype, c, 0.3f);
    AttentionGradientDesc desc = trial.desc(c, 0.3f);
    TensorDesc* results[] = {&desc.query_gradient, &desc.key_gradient, &desc.value_gradient};
    const Memory* memory[] = {&trial.of_query, &trial.of_key, &trial.of_value};
    const Doubles* wanted[] = {&trial.wanted_query, &trial.wanted_key, &trial.wanted_value};
    for (int i = 0; i < 3; ++i)
      if (!(asked >> i & 1))
        *results[i] = {};
    ASSERT_TRUE(run(desc, trial).ok());
    for (int i = 0; i < 3; ++i)
      if (asked >> i & 1)
        expectNear(*memory[i], *wanted[i], dtype == plan::DType::f32 ? 1e-5 : 1e-2, "result");
      else
        EXPECT_TRUE(std::isnan(memory[i]->get(0)));
  }
}

TEST(AttentionGradient, MultipliesBf16InTilesWhereThereAreTiles) {
  const AttentionCase c{1, 1, 1, 4, 4, 8, 8};
  auto inTiles = [&](plan::DType dtype) {
    auto made = AttentionGradient::get(Trial(dtype, c, 0.3f).desc(c, 0.3f));
    return made.ok() && (*made)->implementation().find("tiles") != std::string::npos;
  };
  EXPECT_EQ(inTiles(plan::DType::bf16), tilesAvailable());
  EXPECT_FALSE(inTiles(plan::DType::f32));
}

// A row that sees no key has a sum of nothing; its scores may be anything.
TEST(AttentionGradient, RowsOfNothingGiveNothing) {
  const AttentionCase c{1, 1, 1, 40, 50, 8, 8};
  for (plan::DType dtype : {plan::DType::f32, plan::DType::bf16}) {
    Trial trial(dtype, c, 0.3f);
    for (float& sum : trial.log_sums)
      sum = -INFINITY;
    ASSERT_TRUE(run(trial.desc(c, 0.3f), trial).ok());
    for (const Memory* result : {&trial.of_query, &trial.of_key, &trial.of_value})
      expectNear(*result, Doubles(trial.wanted_query.size() + trial.wanted_key.size()), 0, "result");
  }
}

TEST(AttentionGradient, RefusesWhatDoesNotFit) {
  const AttentionCase c{1, 2, 1, 20, 21, 8, 16};
  Trial trial(plan::DType::f32, c, 0.3f);
  const AttentionGradientDesc right = trial.desc(c, 0.3f);
  auto codeOf = [](const AttentionGradientDesc& desc) { return AttentionGradient::get(desc).status().code(); };
  AttentionGradientDesc desc = right;
  desc.row_sums.sizes[2] = 19;
  EXPECT_EQ(codeOf(desc), Code::invalid_argument);
  desc = right;
  desc.gradient.sizes[3] = 8;
  EXPECT_EQ(codeOf(desc), Code::invalid_argument);
  desc = right;
  desc.key_gradient.sizes[2] = 20;
  EXPECT_EQ(codeOf(desc), Code::invalid_argument);
  desc = right;
  desc.query.strides[3] = 2;
  EXPECT_EQ(codeOf(desc), Code::invalid_argument);
  desc = right;
  desc.log_sums.dtype = plan::DType::bf16;
  EXPECT_EQ(codeOf(desc), Code::unsupported);
}

}  // namespace
}  // namespace zefuse::primitives
