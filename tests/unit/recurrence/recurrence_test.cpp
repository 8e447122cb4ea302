// Recurrent layers against loops in double precision; derivatives against differences of those.
#include "runtime/recurrence/recurrence.h"

#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "common/plan/recurrence.h"
#include "runtime/onednn/bf16.h"
#include "runtime/onednn/team.h"
#include "runtime/recurrence/sequence.h"
#include "tests/unit/recurrence/run_once.h"

namespace zefuse::recurrence {
namespace {

using onednn::TensorDesc;
using plan::RecurrentCell;
using Doubles = std::vector<double>;

struct Case {
  RecurrentCell cell;
  bool reverse;
  int64_t steps, batch, hidden;

  int64_t gates() const { return plan::arityOf(cell, false).gates; }
};

struct Inputs {
  Doubles gates, weight, bias, hidden, cell;  // dense
};

struct Outputs {
  Doubles output, last_cell, activations, cells;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Outputs forward(const Case& c, const Inputs& in) {
  const int64_t G = c.gates(), H = c.hidden, B = c.batch, T = c.steps;
  Outputs out;
  out.output.resize(size_t(T * B * H));
  out.cells.resize(size_t(T * B * H));
  out.activations.resize(size_t(T * B * 4 * H));
  Doubles h = in.hidden, cell = in.cell;
  for (int64_t n = 0; n < T; ++n) {
    const int64_t t = c.reverse ? T - 1 - n : n;
    Doubles next = h;
    for (int64_t b = 0; b < B; ++b)
      for (int64_t j = 0; j < H; ++j) {
        double product[4], x[4];
        for (int64_t g = 0; g < G; ++g) {
          product[g] = in.bias[size_t(g * H + j)];
          for (int64_t k = 0; k < H; ++k)
            product[g] += in.weight[size_t((g * H + j) * H + k)] * h[size_t(b * H + k)];
          x[g] = in.gates[size_t(((t * B + b) * G + g) * H + j)];
        }
        const size_t at = size_t(b * H + j), all = size_t((t * B + b) * H + j);
        double activations[4] = {};
        if (c.cell == RecurrentCell::lstm) {
          for (int g = 0; g < 4; ++g)
            activations[g] = g == 2 ? std::tanh(x[g] + product[g]) : sigmoid(x[g] + product[g]);
          cell[at] = activations[1] * cell[at] + activations[0] * activations[2];
          out.cells[all] = cell[at];
          next[at] = activations[3] * std::tanh(cell[at]);
        } else if (c.cell == RecurrentCell::gru) {
          activations[0] = sigmoid(x[0] + product[0]);
          activations[1] = sigmoid(x[1] + product[1]);
          activations[2] = std::tanh(x[2] + activations[0] * product[2]);
          activations[3] = product[2];
          next[at] = (1 - activations[1]) * activations[2] + activations[1] * h[at];
        } else {
          const double sum = x[0] + product[0];
          next[at] = c.cell == RecurrentCell::tanh ? std::tanh(sum) : std::max(sum, 0.0);
        }
        for (int64_t g = 0; g < 4; ++g)
          out.activations[size_t(((t * B + b) * 4 + g) * H + j)] = activations[g];
        out.output[all] = next[at];
      }
    h = next;
  }
  out.last_cell = cell;
  return out;
}

Doubles random(std::mt19937& generator, int64_t count, double scale) {
  std::normal_distribution<double> normal(0, scale);
  Doubles values(static_cast<size_t>(count));
  for (double& value : values)
    value = double(float(normal(generator)));
  return values;
}

Inputs randomInputs(const Case& c, std::mt19937& generator) {
  const int64_t G = c.gates(), H = c.hidden, B = c.batch;
  return {random(generator, c.steps * B * G * H, 1), random(generator, G * H * H, 1 / std::sqrt(double(H))),
          random(generator, G * H, 0.3), random(generator, B * H, 0.5), random(generator, B * H, 0.5)};
}

// A tensor in memory: dense, or a sequence with the batch outermost and a gap behind each row.
struct Memory {
  TensorDesc desc;
  std::vector<float> data;
  std::vector<uint16_t> narrowed;

  Memory(std::vector<int64_t> sizes, bool strided) {
    desc.dtype = plan::DType::f32;
    desc.sizes = sizes;
    const int64_t row = sizes.back() + (strided && sizes.size() > 1 ? 3 : 0);
    if (sizes.size() == 3)
      desc.strides =
          strided ? std::vector{row, row * sizes[0], int64_t(1)} : std::vector{row * sizes[1], row, int64_t(1)};
    else if (sizes.size() == 2)
      desc.strides = {row, 1};
    else
      desc.strides = {1};
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < sizes.size(); ++i)
      rows *= sizes[i];
    data.assign(static_cast<size_t>(rows * row + 1), std::numeric_limits<float>::quiet_NaN());
  }

  float& at(int64_t i) {
    int64_t offset = 0;
    for (size_t d = desc.sizes.size(); d-- > 0; i /= desc.sizes[d])
      offset += i % desc.sizes[d] * desc.strides[d];
    return data[size_t(offset)];
  }
  // As bf16, which the data must be representable in.
  void narrow() {
    desc.dtype = plan::DType::bf16;
    for (float value : data)
      narrowed.push_back(onednn::bitsOfBf16(value));
  }
  const void* address() const { return narrowed.empty() ? static_cast<const void*>(data.data()) : narrowed.data(); }
  int64_t count() const {
    int64_t product = 1;
    for (int64_t size : desc.sizes)
      product *= size;
    return product;
  }
  void set(const Doubles& values) {
    for (int64_t i = 0; i < count(); ++i)
      at(i) = float(values[size_t(i)]);
  }
};

void run(const Case& c, bool gradient, std::vector<Memory>& operands, std::vector<Memory*> results) {
  RecurrenceDesc desc{c.cell, gradient, c.reverse, false, {}, {}};
  std::vector<const void*> addresses;
  std::vector<void*> outs;
  for (Memory& operand : operands) {
    desc.operands.push_back(operand.desc);
    addresses.push_back(operand.address());
  }
  for (Memory* result : results) {
    desc.results.push_back(result ? result->desc : TensorDesc());
    outs.push_back(result ? result->data.data() : nullptr);
  }
  const Status status = runOnce(desc, addresses, outs);
  ASSERT_TRUE(status.ok()) << status.message();
}

std::vector<Memory> operandsOf(const Case& c, const Inputs& in, bool strided) {
  const int64_t G = c.gates(), H = c.hidden, B = c.batch;
  std::vector<Memory> operands{Memory({c.steps, B, G * H}, strided), Memory({G * H, H}, false), Memory({G * H}, false),
                               Memory({B, H}, strided)};
  operands[0].set(in.gates);
  operands[1].set(in.weight);
  operands[2].set(in.bias);
  operands[3].set(in.hidden);
  if (c.cell == RecurrentCell::lstm) {
    operands.emplace_back(std::vector{B, H}, strided);
    operands[4].set(in.cell);
  }
  return operands;
}

void expectNear(Memory& found, const Doubles& wanted, const char* what, double tolerance = 3e-6) {
  for (int64_t i = 0; i < found.count(); ++i)
    ASSERT_NEAR(found.at(i), wanted[size_t(i)], tolerance * (1 + std::abs(wanted[size_t(i)])))
        << what << ", element " << i;
}

std::string nameOf(const Case& c) {
  return std::string(plan::EnumNameRecurrentCell(c.cell)) + " " + std::to_string(c.steps) + "x" +
         std::to_string(c.batch) + "x" + std::to_string(c.hidden) + (c.reverse ? " reversed" : "");
}

void forEachCase(const std::function<void(const Case&)>& body) {
  const std::tuple<int64_t, int64_t, int64_t> sizes[] = {{1, 1, 1},   {5, 1, 16},  {4, 2, 5},   {3, 7, 20},
                                                         {6, 13, 33}, {2, 5, 100}, {3, 1, 200}, {0, 2, 8}};
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    for (bool reverse : {false, true})
      for (auto [steps, batch, hidden] : sizes) {
        const Case c{cell, reverse, steps, batch, hidden};
        SCOPED_TRACE(nameOf(c));
        body(c);
      }
}

TEST(Recurrence, IsTheFormulaStepByStep) {
  std::mt19937 generator(1);
  forEachCase([&](const Case& c) {
    for (bool strided : {false, true}) {
      const Inputs in = randomInputs(c, generator);
      const Outputs wanted = forward(c, in);
      std::vector<Memory> operands = operandsOf(c, in, strided);
      Memory output({c.steps, c.batch, c.hidden}, strided), last({c.batch, c.hidden}, strided),
          activations({c.steps, c.batch, 4 * c.hidden}, strided), cells({c.steps, c.batch, c.hidden}, strided);
      if (c.cell == RecurrentCell::lstm)
        run(c, false, operands, {&output, &last, &activations, &cells});
      else if (c.cell == RecurrentCell::gru)
        run(c, false, operands, {&output, &activations});
      else
        run(c, false, operands, {&output});
      expectNear(output, wanted.output, "output");
      if (c.cell == RecurrentCell::lstm) {
        expectNear(last, wanted.last_cell, "last cell");
        expectNear(cells, wanted.cells, "cells");
        Memory alone({c.steps, c.batch, c.hidden}, strided);
        run(c, false, operands, {&alone, nullptr, nullptr, nullptr});  // the cells are nowhere but in scratch
        for (int64_t i = 0; i < output.count(); ++i)
          ASSERT_EQ(alone.at(i), output.at(i));
      }
      if (c.cell == RecurrentCell::lstm || c.cell == RecurrentCell::gru)
        expectNear(activations, wanted.activations, "activations");
    }
  });
}

// In tiles the hidden state is rounded at each step: for so small a weight that moves results by less than a hundredth.
TEST(Recurrence, TakesAWeightOfBf16) {
  std::mt19937 generator(4);
  auto check = [&](const Case& c, int threads) {
    Inputs in = randomInputs(c, generator);
    for (double& value : in.weight)
      value = double(std::bit_cast<float>(uint32_t(onednn::bitsOfBf16(float(value))) << 16));
    const Outputs wanted = forward(c, in);
    std::vector<Memory> operands = operandsOf(c, in, true);
    operands[1].narrow();
    Memory output({c.steps, c.batch, c.hidden}, true), last({c.batch, c.hidden}, true);
    std::vector<Memory*> results(plan::arityOf(c.cell, false).results, nullptr);
    results[0] = &output;
    if (c.cell == RecurrentCell::lstm)
      results[1] = &last;
    onednn::setMaxThreads(threads);
    run(c, false, operands, results);
    const double tolerance = level(true).tiled ? 1e-2 : 3e-6;
    expectNear(output, wanted.output, "output", tolerance);
    if (c.cell == RecurrentCell::lstm)
      expectNear(last, wanted.last_cell, "last cell", tolerance);
  };
  const int before = onednn::maxThreads();
  forEachCase([&](const Case& c) { check(c, 1); });
  // More rows than a tile has, shared out by rows and by units.
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    for (auto [batch, hidden] : {std::pair<int64_t, int64_t>{35, 40}, {17, 600}})
      for (int threads : {1, 2, 3})
        check({cell, threads == 2, 4, batch, hidden}, threads);
  onednn::setMaxThreads(before);
}

TEST(Recurrence, IsTheSameToTheBitForAnyNumberOfThreads) {
  std::mt19937 generator(2);
  const int before = onednn::maxThreads();
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    // Shared out by units, by rows of a weight that a cache holds, by units of a large one, and by both.
    for (auto [batch, hidden] : {std::pair<int64_t, int64_t>{1, 256}, {19, 96}, {9, 400}, {8, 128}}) {
      const Case c{cell, false, 7, batch, hidden};
      SCOPED_TRACE(nameOf(c));
      const Inputs in = randomInputs(c, generator);
      std::vector<Memory> operands = operandsOf(c, in, false);
      std::vector<float> first;
      for (int threads : {1, 2, 3, 5, 16}) {
        onednn::setMaxThreads(threads);
        Memory output({c.steps, c.batch, c.hidden}, false);
        std::vector<Memory*> results(plan::arityOf(cell, false).results, nullptr);
        results[0] = &output;
        run(c, false, operands, results);
        output.data.pop_back();
        if (first.empty())
          first = output.data;
        EXPECT_EQ(output.data, first) << threads << " threads";
      }
    }
  onednn::setMaxThreads(before);
}

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
    value = std::bit_cast<float>(uint32_t(onednn::bitsOfBf16(value)) << 16);
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
  const int before = onednn::maxThreads();
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
          onednn::setMaxThreads(threads);
          std::vector<float> gates = gradients(c, operands)[0].data;
          gates.pop_back();
          if (first.empty())
            first = gates;
          EXPECT_EQ(gates, first) << threads << " threads";
        }
      }
  onednn::setMaxThreads(before);
}

// In tiles the gradients of the products are rounded at each step, once more than their results.
TEST(Recurrence, DerivativeTakesAWeightOfBf16) {
  std::mt19937 generator(6);
  const int before = onednn::maxThreads();
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
        onednn::setMaxThreads(threads);
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
  onednn::setMaxThreads(before);
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

TEST(Recurrence, SharesOutRowsWhereBlocksAreFewerThanThreads) {
  auto parts = [](int64_t threads, int64_t rows, int64_t blocks) {
    const Division d = divide(threads, rows, blocks);
    return std::pair(d.rows, d.blocks);
  };
  EXPECT_EQ(parts(16, 8, 8), std::pair(int64_t(2), int64_t(8)));
  EXPECT_EQ(parts(16, 8, 2), std::pair(int64_t(8), int64_t(2)));
  EXPECT_EQ(parts(64, 32, 8), std::pair(int64_t(8), int64_t(8)));
  // One reading of the weight by all is worth more than shares that are a little more equal.
  EXPECT_EQ(parts(16, 8, 32), std::pair(int64_t(1), int64_t(16)));
  EXPECT_EQ(parts(12, 32, 32), std::pair(int64_t(1), int64_t(12)));
  EXPECT_EQ(parts(16, 1, 8), std::pair(int64_t(1), int64_t(8)));
  EXPECT_EQ(parts(1, 8, 8), std::pair(int64_t(1), int64_t(1)));
  for (int64_t threads : {2, 3, 7, 24, 64})
    for (int64_t rows : {1, 5, 16, 100})
      for (int64_t blocks : {1, 3, 8, 40}) {
        const Division d = divide(threads, rows, blocks);
        EXPECT_LE(d.rows * d.blocks, threads);
        EXPECT_LE(d.rows, std::min(rows, most_row_parts));
        EXPECT_LE(d.blocks, blocks);
      }
}

// [blocks][depth / together][vectors][together / 2][16][2], also where this processor has no tiles to read it.
TEST(Recurrence, PacksBf16ForTilesAndForPairs) {
  for (auto [cell, gates] : {std::pair(RecurrentCell::lstm, 4), {RecurrentCell::gru, 3}, {RecurrentCell::tanh, 1}})
    for (bool gradient : {false, true})  // its weight has its rows along the depth
      for (int64_t hidden : {5, 40})
        for (int64_t together : {2, 32}) {
          std::vector<uint16_t> weight(size_t(gates * hidden * hidden));
          for (size_t i = 0; i < weight.size(); ++i)
            weight[i] = uint16_t(i + 1);
          const Matrix matrix{gates, gates * hidden, hidden};
          std::vector<uint16_t> packed(size_t(packedTiles(cell, gradient, matrix)), 0xffff);
          packTiles(cell, gradient, matrix, together, weight.data(), packed.data());
          const bool plain = cell == RecurrentCell::tanh || gradient;
          const int64_t multiplied = gradient ? gates * hidden : hidden, depth = tiledDepth(multiplied),
                        vectors = plain ? 4 : gates, units = plain ? 64 : 16;
          const uint16_t* at = packed.data();
          for (int64_t block = 0; block < (hidden + units - 1) / units; ++block)
            for (int64_t group = 0; group < depth; group += together)
              for (int64_t vector = 0; vector < vectors; ++vector)
                for (int64_t pair = 0; pair < together; pair += 2)
                  for (int64_t lane = 0; lane < 16; ++lane)
                    for (int64_t k = group + pair; k < group + pair + 2; ++k, ++at) {
                      const int64_t unit = block * units + lane + (plain ? vector * 16 : 0);
                      const int64_t row = plain ? unit : vector * hidden + unit;
                      const int64_t place = gradient ? k * hidden + unit : row * hidden + k;
                      const bool inside = unit < hidden && k < multiplied;
                      ASSERT_EQ(*at, inside ? weight[size_t(place)] : 0)
                          << hidden << " units, block " << block << ", vector " << vector << ", lane " << lane << ", k "
                          << k;
                    }
          EXPECT_EQ(at, packed.data() + packed.size());
        }
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

TEST(Recurrence, KeepsWhatIsNoNumberAndSaturates) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float inputs[] = {infinity, -infinity, nan, 1e30f, -1e30f, 0.f};
  for (RecurrentCell cell : {RecurrentCell::tanh, RecurrentCell::relu}) {
    const Case c{cell, false, 1, 6, 3};
    std::vector<Memory> operands =
        operandsOf(c, {Doubles(18), Doubles(9), Doubles(3), Doubles(18), Doubles(18)}, false);
    for (int64_t b = 0; b < 6; ++b)
      for (int64_t j = 0; j < 3; ++j)
        operands[0].at(b * 3 + j) = inputs[b];
    Memory output({1, 6, 3}, false);
    run(c, false, operands, {&output});
    for (int64_t b = 0; b < 6; ++b) {
      const float x = inputs[b], wanted = cell == RecurrentCell::tanh ? std::tanh(x) : x < 0 ? 0.f : x;
      EXPECT_TRUE(std::isnan(x) ? std::isnan(output.at(b * 3)) : output.at(b * 3) == wanted) << x;
    }
  }
}

TEST(Recurrence, RefusesWhatDoesNotFit) {
  const Case c{RecurrentCell::lstm, false, 3, 2, 8};
  std::mt19937 generator(4);
  std::vector<Memory> operands = operandsOf(c, randomInputs(c, generator), false);
  RecurrenceDesc good{c.cell, false, false, false, {}, {}};
  for (Memory& operand : operands)
    good.operands.push_back(operand.desc);
  good.results = {Memory({3, 2, 8}, false).desc, {}, {}, {}};
  ASSERT_TRUE(Recurrence::get(good).ok());
  auto refused = [&](const std::function<void(RecurrenceDesc&)>& change) {
    RecurrenceDesc desc = good;
    change(desc);
    return !Recurrence::get(desc).ok();
  };
  EXPECT_TRUE(refused([](RecurrenceDesc& desc) { desc.operands[0].sizes[2] = 24; }));
  EXPECT_TRUE(refused([](RecurrenceDesc& desc) { desc.operands[3].sizes[0] = 3; }));
  EXPECT_TRUE(refused([](RecurrenceDesc& desc) { desc.operands[1].strides = {1, 32}; }));
  EXPECT_TRUE(refused([](RecurrenceDesc& desc) { desc.operands[0].strides[2] = 2; }));
  EXPECT_TRUE(refused([](RecurrenceDesc& desc) { desc.operands[4].dtype = plan::DType::f64; }));
  EXPECT_TRUE(refused([](RecurrenceDesc& desc) { desc.operands.pop_back(); }));
  EXPECT_TRUE(refused([](RecurrenceDesc& desc) { desc.results[0] = {}; }));
  EXPECT_TRUE(refused([](RecurrenceDesc& desc) { desc.operands[0].sizes[1] = int64_t(1) << 40; }));
}

}  // namespace
}  // namespace zefuse::recurrence
