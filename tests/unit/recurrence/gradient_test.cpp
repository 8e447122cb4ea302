// Recurrent layers' derivatives against differences of loops in double precision.
#include <bit>
#include <gtest/gtest.h>
#include <random>

#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/recurrence/sequence.h"
#include "tests/unit/recurrence/cases.h"

namespace zefuse::recurrence::cases {
namespace {

// What a derivative takes, drawn; the weight is of numbers that bf16 holds.
std::vector<Memory> gradientOperands(const Case& c, std::mt19937& generator, bool strided = false) {
  const int64_t T = c.steps, B = c.batch, H = c.hidden, G = c.gates();
  auto memory = [&](std::vector<int64_t> sizes, double most, bool dense = false) {
    Memory made(std::move(sizes), strided && !dense);
    made.set(random(generator, made.count(), most));
    return made;
  };
  const bool lstm = c.cell == RecurrentCell::lstm, gated = lstm || c.cell == RecurrentCell::gru;
  std::vector<Memory> operands{memory({T, B, H}, 1)};
  if (lstm)
    operands.push_back(memory({B, H}, 1));
  operands.push_back(memory({G * H, H}, 0.1, /*dense=*/true));
  for (float& value : operands.back().data)
    value = std::bit_cast<float>(uint32_t(primitives::bitsOfBf16(value)) << 16);
  if (gated)
    operands.push_back(memory({B, H}, 1));
  operands.push_back(memory({T, B, H}, 1));
  if (gated)
    operands.push_back(memory({T, B, 4 * H}, 0.3));  // larger ones would grow from step to step
  return operands;
}

// All results: of the gates, of a GRU's products, of the hidden state, of an LSTM's cell.
std::vector<Memory> gradients(const Case& c, std::vector<Memory>& operands, bool strided = false) {
  const int64_t T = c.steps, B = c.batch, H = c.hidden, G = c.gates();
  std::vector<Memory> results{Memory({T, B, G * H}, strided)};
  if (c.cell == RecurrentCell::gru)
    results.emplace_back(std::vector{T, B, G * H}, strided);
  results.emplace_back(std::vector{B, H}, strided);
  if (c.cell == RecurrentCell::lstm)
    results.emplace_back(std::vector{B, H}, strided);
  std::vector<Memory*> places;
  for (Memory& result : results)
    places.push_back(&result);
  run(c, true, operands, places);
  return results;
}

TEST(Recurrence, DerivativeIsTheSameToTheBitForAnyNumberOfThreads) {
  std::mt19937 generator(5);
  const int before = primitives::maxThreads();
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    for (bool narrow : {false, true})
      for (auto [batch, hidden] : {std::pair<int64_t, int64_t>{8, 128}, {5, 400}, {37, 72}}) {
        const Case c{cell, false, 5, batch, hidden};
        SCOPED_TRACE(nameOf(c) + (narrow ? " of bf16" : ""));
        std::vector<Memory> operands = gradientOperands(c, generator);
        if (narrow)
          operands[plan::arityOf(cell, true).weight].narrow();
        std::vector<float> first;
        for (int threads : {1, 3, 16}) {
          primitives::setMaxThreads(threads);
          std::vector<float> gates = gradients(c, operands)[0].data;
          gates.pop_back();
          if (first.empty())
            first = gates;
          EXPECT_EQ(gates, first) << threads << " threads";
        }
      }
  primitives::setMaxThreads(before);
}

// In tiles the gradients of the products are rounded at each step, once more than their results.
TEST(Recurrence, DerivativeTakesAWeightOfBf16) {
  std::mt19937 generator(6);
  const int before = primitives::maxThreads();
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    for (auto [steps, batch, hidden] : {std::tuple<int64_t, int64_t, int64_t>{3, 1, 5},
                                        {4, 7, 20},
                                        {3, 16, 64},
                                        {5, 35, 40},
                                        {2, 33, 130},
                                        {4, 17, 600},
                                        {0, 2, 8}})
      for (int threads : {1, 2, 3}) {
        const Case c{cell, threads == 2, steps, batch, hidden};
        SCOPED_TRACE(nameOf(c) + " by " + std::to_string(threads));
        primitives::setMaxThreads(threads);
        std::vector<Memory> operands = gradientOperands(c, generator, /*strided=*/true);
        std::vector<Memory> wanted = gradients(c, operands, true);
        Memory& weight = operands[plan::arityOf(cell, true).weight];
        weight.narrow();
        std::vector<Memory> found = gradients(c, operands, true);
        for (size_t i = 0; i < found.size(); ++i) {
          float largest = 0;
          for (int64_t at = 0; at < wanted[i].count(); ++at)
            largest = std::max(largest, std::abs(wanted[i].at(at)));
          for (int64_t at = 0; at < wanted[i].count(); ++at)
            ASSERT_NEAR(found[i].at(at), wanted[i].at(at), level(true).tiled ? 1e-2 * largest : 0)
                << "result " << i << ", element " << at;
        }
      }
  primitives::setMaxThreads(before);
}

TEST(Recurrence, DerivativeMultipliesInTilesWhereThereAre) {
  std::mt19937 generator(7);
  const Case c{RecurrentCell::lstm, false, 2, 3, 8};
  std::vector<Memory> operands = gradientOperands(c, generator);
  operands[2].narrow();
  RecurrenceDesc desc{c.cell, true, false, false, {}, {Memory({2, 3, 32}, false).desc, {}, {}}};
  for (Memory& operand : operands)
    desc.operands.push_back(operand.desc);
  auto made = Recurrence::get(desc);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->implementation(),
            std::string(level(true).tiled ? "steps in " : "steps in registers: ") + level(true).name);
}

// The derivative of sum(output * by_output) + sum(last cell * by_cell), by differences.
Doubles differences(const Case& c, Inputs in, Doubles Inputs::* what, const Doubles& by_output,
                    const Doubles& by_cell) {
  auto value = [&] {
    const Outputs out = forward(c, in);
    double sum = 0;
    for (size_t i = 0; i < out.output.size(); ++i)
      sum += out.output[i] * by_output[i];
    if (c.cell == RecurrentCell::lstm)
      for (size_t i = 0; i < out.last_cell.size(); ++i)
        sum += out.last_cell[i] * by_cell[i];
    return sum;
  };
  Doubles result;
  for (double& element : in.*what) {
    constexpr double step = 1e-5;
    const double old = element;
    element = old + step;
    const double up = value();
    element = old - step;
    result.push_back((up - value()) / (2 * step));
    element = old;
  }
  return result;
}

TEST(Recurrence, DerivativeIsThatOfTheFormula) {
  std::mt19937 generator(3);
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    for (bool reverse : {false, true})
      for (bool strided : {false, true})
        for (auto [steps, batch, hidden] : {std::tuple<int64_t, int64_t, int64_t>{4, 3, 5}, {3, 8, 18}, {1, 1, 1}}) {
          const Case c{cell, reverse, steps, batch, hidden};
          SCOPED_TRACE(nameOf(c));
          const Inputs in = randomInputs(c, generator);
          const Outputs out = forward(c, in);
          const int64_t H = hidden, B = batch, T = steps, G = c.gates();
          const Doubles by_output = random(generator, T * B * H, 1), by_cell = random(generator, B * H, 1);
          auto memory = [&](std::vector<int64_t> sizes, const Doubles& values, bool dense = false) {
            Memory made(std::move(sizes), strided && !dense);
            made.set(values);
            return made;
          };
          std::vector<Memory> operands{memory({T, B, H}, by_output)};
          const Memory weight = memory({G * H, H}, in.weight, true), output = memory({T, B, H}, out.output),
                       hidden_state = memory({B, H}, in.hidden), activations = memory({T, B, 4 * H}, out.activations);
          Memory gates({T, B, G * H}, strided), products({T, B, G * H}, strided), of_hidden({B, H}, strided),
              of_cell({B, H}, strided);
          if (cell == RecurrentCell::lstm) {
            operands.insert(operands.end(), {memory({B, H}, by_cell), weight, memory({B, H}, in.cell),
                                             memory({T, B, H}, out.cells), activations});
            run(c, true, operands, {&gates, &of_hidden, &of_cell});
            expectNear(of_cell, differences(c, in, &Inputs::cell, by_output, by_cell), "of the cell");
          } else if (cell == RecurrentCell::gru) {
            operands.insert(operands.end(), {weight, hidden_state, output, activations});
            run(c, true, operands, {&gates, &products, &of_hidden});
            // The bias is added to each product: its derivative is the sum of theirs.
            Doubles of_bias(size_t(G * H));
            for (int64_t i = 0; i < products.count(); ++i)
              of_bias[size_t(i % (G * H))] += products.at(i);
            const Doubles wanted = differences(c, in, &Inputs::bias, by_output, by_cell);
            for (size_t i = 0; i < wanted.size(); ++i)
              ASSERT_NEAR(of_bias[i], wanted[i], 1e-5 * (1 + std::abs(wanted[i])));
          } else {
            operands.insert(operands.end(), {weight, output});
            run(c, true, operands, {&gates, &of_hidden});
          }
          expectNear(gates, differences(c, in, &Inputs::gates, by_output, by_cell), "of the gates");
          expectNear(of_hidden, differences(c, in, &Inputs::hidden, by_output, by_cell), "of the hidden state");
        }
}

}  // namespace
}  // namespace zefuse::recurrence::cases
