// The derivative of a layer with the products of its input against that of its steps alone.
#include <bit>
#include <gtest/gtest.h>
#include <random>

#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/primitives/simd/f16.h"
#include "runtime/recurrence/recurrence.h"
#include "tests/unit/recurrence/run_once.h"

namespace zefuse::recurrence::layer_gradients {
namespace {

using plan::DType;
using plan::RecurrentCell;
using primitives::TensorDesc;
using Floats = std::vector<float>;

struct Case {
  bool reverse;
  int64_t steps, batch, hidden;
};

float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

// Numbers that bf16 holds exactly, and so does f16 those of activations.
Floats draw(std::mt19937& generator, int64_t count, float least, float most) {
  std::uniform_real_distribution<float> distribution(least, most);
  Floats values(static_cast<size_t>(count));
  for (float& value : values)
    value = widened(primitives::bitsOfBf16(distribution(generator)));
  return values;
}

struct Inputs {
  Floats of_output, of_cell, weight, cell, cells, activations, of_hidden;
};

Inputs inputsOf(const Case& c) {
  std::mt19937 generator(3);
  const int64_t T = c.steps, B = c.batch, H = c.hidden;
  return {
      draw(generator, T * B * H, -1, 1), draw(generator, B * H, -1, 1),     draw(generator, 4 * H * H, -0.1f, 0.1f),
      draw(generator, B * H, -1, 1),     draw(generator, T * B * H, -1, 1), draw(generator, T * B * 4 * H, 0.1f, 0.9f),
      draw(generator, B * H, -1, 1)};
}

struct Found {
  Floats gates, hidden, cell, bias;
};

TensorDesc dense(std::vector<int64_t> sizes, DType dtype = DType::f32) {
  TensorDesc desc{dtype, sizes, std::vector<int64_t>(sizes.size(), 1)};
  for (size_t d = sizes.size(); d-- > 1;)
    desc.strides[d - 1] = desc.strides[d] * sizes[d];
  return desc;
}

// A sequence with the batch outermost and a gap behind each row.
TensorDesc strided(int64_t steps, int64_t batch, int64_t units, DType dtype) {
  const int64_t row = units + 3;
  return {dtype, {steps, batch, units}, {row, row * steps, 1}};
}

template <typename Number> std::vector<Number> laidOut(const TensorDesc& desc, const std::vector<Number>& values) {
  const int64_t T = desc.sizes[0], B = desc.sizes[1], N = desc.sizes[2];
  std::vector<Number> made(size_t(T * B * (N + 3)));
  for (int64_t at = 0; at < T * B; ++at)
    std::copy_n(values.begin() + at * N, N, made.begin() + at / B * desc.strides[0] + at % B * desc.strides[1]);
  return made;
}

template <typename Number> std::vector<Number> read(const TensorDesc& desc, const std::vector<Number>& memory) {
  const int64_t T = desc.sizes[0], B = desc.sizes[1], N = desc.sizes[2];
  std::vector<Number> values(size_t(T * B * N));
  for (int64_t at = 0; at < T * B; ++at)
    std::copy_n(memory.begin() + at / B * desc.strides[0] + at % B * desc.strides[1], N, values.begin() + at * N);
  return values;
}

// The steps' own derivative in f32; the bias' in double precision.
Found ofSteps(const Case& c, const Inputs& in) {
  const int64_t T = c.steps, B = c.batch, H = c.hidden;
  Found found{Floats(size_t(T * B * 4 * H)), Floats(size_t(B * H)), Floats(size_t(B * H)), {}};
  // There the gradient of the last hidden state is part of the output's.
  Floats of_output = in.of_output;
  for (int64_t i = 0, last = c.reverse ? 0 : (T - 1) * B * H; T > 0 && i < B * H; ++i)
    of_output[size_t(last + i)] += in.of_hidden[size_t(i)];
  const TensorDesc state = dense({B, H}), all = dense({T, B, H}), gates = dense({T, B, 4 * H});
  const Status status = runOnce(
      {RecurrentCell::lstm,
       true,
       c.reverse,
       false,
       {all, state, dense({4 * H, H}), state, all, gates},
       {gates, state, state}},
      {of_output.data(), in.of_cell.data(), in.weight.data(), in.cell.data(), in.cells.data(), in.activations.data()},
      {found.gates.data(), found.hidden.data(), found.cell.data()});
  EXPECT_TRUE(status.ok()) << status.message();
  if (T == 0)
    found.hidden = in.of_hidden;
  for (int64_t j = 0; j < 4 * H; ++j) {
    double sum = 0;
    for (int64_t at = 0; at < T * B; ++at)
      sum += double(found.gates[size_t(at * 4 * H + j)]);
    found.bias.push_back(float(sum));
  }
  return found;
}

Found ofLayer(const Case& c, const Inputs& in, bool narrow) {
  const int64_t T = c.steps, B = c.batch, H = c.hidden;
  const DType dtype = narrow ? DType::bf16 : DType::f32;
  const TensorDesc state = dense({B, H}), output = strided(T, B, H, dtype), gates = strided(T, B, 4 * H, dtype),
                   cells = strided(T, B, H, DType::f32),
                   activations = strided(T, B, 4 * H, narrow ? DType::f16 : DType::f32);
  auto bits = [](const Floats& values, auto&& rounded) {
    std::vector<uint16_t> made;
    for (float value : values)
      made.push_back(rounded(value));
    return made;
  };
  const Floats wide_output = laidOut(output, in.of_output), wide_activations = laidOut(activations, in.activations),
               all_cells = laidOut(cells, in.cells);
  const auto narrow_output = laidOut(output, bits(in.of_output, primitives::bitsOfBf16)),
             narrow_weight = bits(in.weight, primitives::bitsOfBf16),
             narrow_activations = laidOut(activations, bits(in.activations, primitives::f16OfFloat));
  Floats wide_gates(size_t(T * B * (4 * H + 3)));
  std::vector<uint16_t> narrow_gates(wide_gates.size());
  Found found{{}, Floats(size_t(B * H)), Floats(size_t(B * H)), Floats(size_t(4 * H), 7.f)};
  auto either = [&](const auto& of_bf16, const Floats& of_f32) {
    return narrow ? static_cast<const void*>(of_bf16.data()) : of_f32.data();
  };
  const Status status =
      runOnce({RecurrentCell::lstm_layer,
               true,
               c.reverse,
               false,
               {output, state, dense({4 * H, H}, dtype), state, cells, activations, state},
               {gates, state, state, dense({4 * H})}},
              {either(narrow_output, wide_output), in.of_cell.data(), either(narrow_weight, in.weight), in.cell.data(),
               all_cells.data(), either(narrow_activations, wide_activations), in.of_hidden.data()},
              {narrow ? static_cast<void*>(narrow_gates.data()) : wide_gates.data(), found.hidden.data(),
               found.cell.data(), found.bias.data()});
  EXPECT_TRUE(status.ok()) << status.message();
  if (!narrow)
    found.gates = read(gates, wide_gates);
  for (uint16_t each : narrow ? read(gates, narrow_gates) : std::vector<uint16_t>())
    found.gates.push_back(widened(each));
  return found;
}

// `tolerance`: a part of the largest number.
void expectNear(const Floats& found, const Floats& wanted, float tolerance, const char* what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  float largest = 0;
  for (float value : wanted)
    largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], tolerance * largest) << what << ", element " << i;
}

TEST(RecurrentLayersGradient, IsThatOfItsStepsWithTheSumForTheBias) {
  const Case cases[] = {{false, 1, 1, 1},  {true, 3, 7, 20},    {false, 5, 16, 64}, {false, 4, 35, 40},
                        {true, 3, 70, 72}, {false, 2, 17, 264}, {false, 0, 2, 8}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.steps) + "x" + std::to_string(c.batch) + "x" + std::to_string(c.hidden) +
                 (c.reverse ? " reversed" : ""));
    const Inputs in = inputsOf(c);
    const Found wanted = ofSteps(c, in);
    for (bool narrow : {false, true}) {
      const Found found = ofLayer(c, in, narrow);
      const float tolerance = narrow ? 1e-2f : 0;  // of bf16 what is multiplied is rounded at each step
      expectNear(found.gates, wanted.gates, tolerance, "gates");
      expectNear(found.hidden, wanted.hidden, tolerance, "hidden state");
      expectNear(found.cell, wanted.cell, tolerance, "cell");
      expectNear(found.bias, wanted.bias, narrow ? 1e-2f : 1e-5f, "bias");
    }
  }
}

// Its sum is of the gradients before they are rounded: that of rounded ones is farther from it.
TEST(RecurrentLayersGradient, OfTheBiasIsNotOfRoundedGradients) {
  const Case c{false, 1, 64, 32};  // one step: nothing else is rounded
  const Inputs in = inputsOf(c);
  expectNear(ofLayer(c, in, true).bias, ofSteps(c, in).bias, 1e-5f, "bias");
}

TEST(RecurrentLayersGradient, BitsDoNotDependOnTheThreads) {
  const int before = primitives::maxThreads();
  for (auto [batch, hidden] : {std::pair<int64_t, int64_t>{37, 64}, {5, 400}, {70, 264}})  // by rows, units and both
    for (bool narrow : {false, true}) {
      const Case c{false, 4, batch, hidden};
      const Inputs in = inputsOf(c);
      primitives::setMaxThreads(1);
      const Found one = ofLayer(c, in, narrow);
      for (int threads : {2, 3, 5, 16}) {
        primitives::setMaxThreads(threads);
        const Found some = ofLayer(c, in, narrow);
        EXPECT_EQ(some.gates, one.gates) << threads;
        EXPECT_EQ(some.bias, one.bias) << threads;
      }
    }
  primitives::setMaxThreads(before);
}

}  // namespace
}  // namespace zefuse::recurrence::layer_gradients
