// A layer with the products of its input against its steps alone, whose gates are made here in double precision.
#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/primitives/simd/f16.h"
#include "runtime/recurrence/recurrence.h"
#include "tests/unit/recurrence/run_once.h"

namespace zefuse::recurrence::layers {
namespace {

using plan::DType;
using plan::RecurrentCell;
using primitives::TensorDesc;
using Floats = std::vector<float>;

struct Case {
  bool reverse;
  int64_t steps, batch, inputs, hidden;
};

Floats draw(std::mt19937& generator, int64_t count, float scale) {
  std::uniform_real_distribution<float> distribution(-scale, scale);
  Floats values(static_cast<size_t>(count));
  for (float& value : values)  // what bf16 holds exactly
    value = std::bit_cast<float>(uint32_t(primitives::bitsOfBf16(distribution(generator))) << 16);
  return values;
}

struct Inputs {
  Floats x, of_input, of_state, bias, hidden, cell;
};

Inputs inputsOf(const Case& c) {
  std::mt19937 generator(3);
  const int64_t H = c.hidden;
  return {draw(generator, c.steps * c.batch * c.inputs, 1),
          draw(generator, 4 * H * c.inputs, 0.2f),
          draw(generator, 4 * H * H, 0.2f),
          draw(generator, 4 * H, 0.3f),
          draw(generator, c.batch * H, 0.5f),
          draw(generator, c.batch * H, 0.5f)};
}

TensorDesc dense(std::vector<int64_t> sizes, DType dtype = DType::f32) {
  TensorDesc desc{dtype, sizes, std::vector<int64_t>(sizes.size(), 1)};
  for (size_t d = sizes.size(); d-- > 1;)
    desc.strides[d - 1] = desc.strides[d] * sizes[d];
  return desc;
}

void run(const RecurrenceDesc& desc, const std::vector<const void*>& operands, const std::vector<void*>& results) {
  const Status status = runOnce(desc, operands, results);
  ASSERT_TRUE(status.ok()) << status.message();
}

struct Found {
  Floats output, last_cell, activations, cells, last_hidden;
};

Found steps(const Case& c, const Inputs& in) {
  const int64_t T = c.steps, B = c.batch, H = c.hidden;
  Floats gates(size_t(T * B * 4 * H));
  for (int64_t at = 0; at < T * B; ++at)
    for (int64_t j = 0; j < 4 * H; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < c.inputs; ++k)
        sum += double(in.x[size_t(at * c.inputs + k)]) * in.of_input[size_t(j * c.inputs + k)];
      gates[size_t(at * 4 * H + j)] = float(sum);
    }
  Found found{Floats(size_t(T * B * H)), Floats(size_t(B * H)), Floats(size_t(T * B * 4 * H)),
              Floats(size_t(T * B * H))};
  const TensorDesc state = dense({B, H});
  run({RecurrentCell::lstm,
       false,
       c.reverse,
       false,
       {dense({T, B, 4 * H}), dense({4 * H, H}), dense({4 * H}), state, state},
       {dense({T, B, H}), state, dense({T, B, 4 * H}), dense({T, B, H})}},
      {gates.data(), in.of_state.data(), in.bias.data(), in.hidden.data(), in.cell.data()},
      {found.output.data(), found.last_cell.data(), found.activations.data(), found.cells.data()});
  return found;
}

// `batch_first`: the input lies so, and the output has a gap behind each row.
Found layer(const Case& c, const Inputs& in, DType dtype, bool batch_first) {
  const int64_t T = c.steps, B = c.batch, H = c.hidden, I = c.inputs, row = H + (batch_first ? 5 : 0);
  Floats weights = in.of_input, x = in.x;
  weights.insert(weights.end(), in.of_state.begin(), in.of_state.end());
  TensorDesc of_x = dense({T, B, I}, dtype), of_output = dense({T, B, row}, dtype);
  of_output.sizes[2] = H;
  if (batch_first) {
    of_x.strides = {I, T * I, 1};
    for (int64_t t = 0; t < T; ++t)
      for (int64_t b = 0; b < B; ++b)
        std::copy_n(in.x.begin() + (t * B + b) * I, I, x.begin() + (b * T + t) * I);
  }
  const bool narrow = dtype == DType::bf16;
  std::vector<uint16_t> narrow_x, narrow_weights, narrow_output(size_t(T * B * row));
  for (float value : x)
    narrow_x.push_back(primitives::bitsOfBf16(value));
  for (float value : weights)
    narrow_weights.push_back(primitives::bitsOfBf16(value));
  Floats output(size_t(T * B * row)), last_cell(size_t(B * H));
  Found found;
  found.last_hidden.resize(size_t(B * H));
  const bool keeps = !batch_first;           // what a derivative reads
  std::vector<uint16_t> narrow_activations;  // f16
  if (keeps) {
    narrow_activations.resize(narrow ? size_t(T * B * 4 * H) : 0);
    found.activations.resize(size_t(T * B * 4 * H));
    found.cells.resize(size_t(T * B * H));
  }
  const TensorDesc state = dense({B, H});
  run({RecurrentCell::lstm_layer,
       false,
       c.reverse,
       false,
       {of_x, dense({4 * H * (I + H)}, dtype), dense({4 * H}), state, state},
       {of_output, state, keeps ? dense({T, B, 4 * H}, narrow ? DType::f16 : DType::f32) : TensorDesc(),
        keeps ? dense({T, B, H}) : TensorDesc(), state}},
      {narrow ? static_cast<const void*>(narrow_x.data()) : x.data(),
       narrow ? static_cast<const void*>(narrow_weights.data()) : weights.data(), in.bias.data(), in.hidden.data(),
       in.cell.data()},
      {narrow ? static_cast<void*>(narrow_output.data()) : output.data(), last_cell.data(),
       keeps && narrow ? static_cast<void*>(narrow_activations.data())
       : keeps         ? found.activations.data()
                       : nullptr,
       keeps ? found.cells.data() : nullptr, found.last_hidden.data()});
  found.last_cell = last_cell;
  if (keeps && narrow)
    std::ranges::transform(narrow_activations, found.activations.begin(), primitives::floatOfF16);
  for (int64_t at = 0; at < T * B; ++at)
    for (int64_t j = 0; j < H; ++j) {
      const size_t place = size_t(at * row + j);
      found.output.push_back(narrow ? std::bit_cast<float>(uint32_t(narrow_output[place]) << 16) : output[place]);
    }
  return found;
}

void expectNear(const Floats& found, const Floats& wanted, float tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], tolerance) << "element " << i;
}

// Of an output [steps, batch, hidden] the last step computed.
Floats lastStep(const Case& c, const Floats& output) {
  const int64_t size = c.batch * c.hidden, from = c.reverse ? 0 : (c.steps - 1) * size;
  return {output.begin() + from, output.begin() + from + size};
}

TEST(RecurrentLayer, IsItsStepsWithTheProductsOfItsInput) {
  const Case cases[] = {
      {false, 1, 1, 1, 1},      {true, 3, 7, 20, 33},   {false, 4, 17, 32, 16}, {true, 2, 33, 64, 40},
      {false, 3, 48, 7, 64},    {false, 2, 40, 96, 80}, {true, 0, 3, 4, 5},     {false, 5, 35, 31, 48},
      {false, 2, 26, 200, 264},  // its weights are fetched block by block
      {true, 3, 26, 512, 512}};  // rows of states and inputs are copied to others
  for (const Case& c : cases)
    for (bool batch_first : {false, true}) {
      SCOPED_TRACE(std::to_string(c.steps) + "x" + std::to_string(c.batch) + "x" + std::to_string(c.inputs) + " to " +
                   std::to_string(c.hidden) + (c.reverse ? " reversed" : "") + (batch_first ? " strided" : ""));
      const Inputs in = inputsOf(c);
      const Found wanted = steps(c, in);
      for (DType dtype : {DType::f32, DType::bf16}) {  // of bf16 states and outputs are rounded
        const Found found = layer(c, in, dtype, batch_first);
        expectNear(found.output, wanted.output, dtype == DType::bf16 ? 0.02f : 1e-5f);
        const Floats last = c.steps == 0 ? in.hidden : lastStep(c, wanted.output);
        expectNear(found.last_hidden, last, dtype == DType::bf16 ? 0.02f : 1e-5f);
        expectNear(found.last_cell, wanted.last_cell, dtype == DType::bf16 ? 0.03f : 1e-5f);
        if (batch_first)
          continue;
        expectNear(found.activations, wanted.activations, dtype == DType::bf16 ? 0.02f : 1e-5f);
        expectNear(found.cells, wanted.cells, dtype == DType::bf16 ? 0.03f : 1e-5f);
      }
    }
}

// Numbers of 24 bits, of which a layer in tiles multiplies three parts of bf16.
Inputs manyBits(const Case& c) {
  Inputs in = inputsOf(c);
  for (Floats* numbers : {&in.x, &in.of_input, &in.of_state, &in.hidden})
    for (size_t i = 0; i < numbers->size(); ++i)
      (*numbers)[i] *= 1 + float(i % 4001) * 0x1p-18f;
  return in;
}

TEST(RecurrentLayer, MultipliesAllBitsOfF32) {
  for (const Case& c : {Case{false, 4, 17, 100, 48}, Case{true, 3, 40, 64, 33}}) {
    const Inputs in = manyBits(c);
    expectNear(layer(c, in, DType::f32, false).output, steps(c, in).output, 1e-6f);
  }
}

// Found and wanted are the same where that is no number, else near.
void expectNearOrSame(const Floats& found, const Floats& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::isnan(wanted[i]))
      ASSERT_TRUE(std::isnan(found[i])) << "element " << i << " is " << found[i];
    else
      ASSERT_NEAR(found[i], wanted[i], 1e-5f) << "element " << i;
}

TEST(RecurrentLayer, NumbersWhosePartsDoNotAddUpAreMultipliedAsTheyAre) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Case c{false, 3, 21, 40, 24};
  const Inputs plain = manyBits(c);
  for (float x : {infinity, -infinity, nan, 3.4e38f, 1e30f}) {
    SCOPED_TRACE(x);
    Inputs in = plain;
    in.x[size_t((c.batch + 5) * c.inputs + 7)] = x;  // row 5 of the second step
    expectNearOrSame(layer(c, in, DType::f32, false).output, steps(c, in).output);
    in = plain;
    in.hidden[size_t(13 * c.hidden + 3)] = x;
    expectNearOrSame(layer(c, in, DType::f32, false).output, steps(c, in).output);
    in = plain;
    in.of_input[size_t(30 * c.inputs + 1)] = x;
    expectNearOrSame(layer(c, in, DType::f32, false).output, steps(c, in).output);
    in = plain;
    in.of_state[size_t(50 * c.hidden + 2)] = x;
    expectNearOrSame(layer(c, in, DType::f32, false).output, steps(c, in).output);
  }
}

// A small weight beside a large number gives a product that counts.
TEST(RecurrentLayer, SmallWeightsOfLargeNumbersCount) {
  const Case c{false, 2, 16, 32, 16};
  Inputs in = manyBits(c);
  for (float& x : in.x)
    x *= 1e30f;
  for (float& weight : in.of_input)
    weight *= 1e-30f;
  expectNear(layer(c, in, DType::f32, false).output, steps(c, in).output, 1e-6f);
}

TEST(RecurrentLayer, BitsDoNotDependOnTheThreads) {
  const Case c{false, 4, 37, 48, 64};
  const Inputs in = manyBits(c);
  const int before = primitives::maxThreads();
  for (DType dtype : {DType::f32, DType::bf16}) {
    primitives::setMaxThreads(1);
    const Found one = layer(c, in, dtype, false);
    for (int threads : {2, 3, 5}) {
      primitives::setMaxThreads(threads);
      EXPECT_EQ(layer(c, in, dtype, false).output, one.output) << threads;
    }
  }
  primitives::setMaxThreads(before);
}

TEST(RecurrentLayer, RefusesWhatDoesNotFit) {
  const TensorDesc state = dense({3, 4}), x = dense({2, 3, 5}), out = dense({2, 3, 4});
  auto codeOf = [&](TensorDesc input, TensorDesc weights, TensorDesc output) {
    return Recurrence::get({RecurrentCell::lstm_layer,
                            false,
                            false,
                            false,
                            {std::move(input), std::move(weights), dense({16}), state, state},
                            {std::move(output), TensorDesc(), TensorDesc(), TensorDesc(), TensorDesc()}})
        .status()
        .code();
  };
  const TensorDesc weights = dense({16 * 9});
  EXPECT_EQ(codeOf(x, weights, out), Code::ok);
  EXPECT_EQ(codeOf(x, dense({16, 9}), out), Code::invalid_argument);
  EXPECT_EQ(codeOf(x, dense({16 * 8}), out), Code::invalid_argument);
  EXPECT_EQ(codeOf(dense({2, 4, 5}), weights, out), Code::invalid_argument);
  EXPECT_EQ(codeOf(x, weights, TensorDesc()), Code::invalid_argument);
  EXPECT_EQ(codeOf(dense({2, 3, 5}, DType::bf16), weights, out), Code::unsupported);
  EXPECT_EQ(codeOf(x, dense({16 * 9}, DType::bf16), out), Code::unsupported);
}

}  // namespace
}  // namespace zefuse::recurrence::layers
