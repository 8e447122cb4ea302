// Recurrent layers against loops in double precision.
#include "runtime/recurrence/recurrence.h"

#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/recurrence/sequence.h"
#include "tests/unit/recurrence/cases.h"

namespace zefuse::recurrence::cases {
namespace {

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
      value = double(std::bit_cast<float>(uint32_t(primitives::bitsOfBf16(float(value))) << 16));
    const Outputs wanted = forward(c, in);
    std::vector<Memory> operands = operandsOf(c, in, true);
    operands[1].narrow();
    Memory output({c.steps, c.batch, c.hidden}, true), last({c.batch, c.hidden}, true);
    std::vector<Memory*> results(plan::arityOf(c.cell, false).results, nullptr);
    results[0] = &output;
    if (c.cell == RecurrentCell::lstm)
      results[1] = &last;
    primitives::setMaxThreads(threads);
    run(c, false, operands, results);
    const double tolerance = level(true).tiled ? 1e-2 : 3e-6;
    expectNear(output, wanted.output, "output", tolerance);
    if (c.cell == RecurrentCell::lstm)
      expectNear(last, wanted.last_cell, "last cell", tolerance);
  };
  const int before = primitives::maxThreads();
  forEachCase([&](const Case& c) { check(c, 1); });
  // More rows than a tile has, shared out by rows and by units.
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    for (auto [batch, hidden] : {std::pair<int64_t, int64_t>{35, 40}, {17, 600}})
      for (int threads : {1, 2, 3})
        check({cell, threads == 2, 4, batch, hidden}, threads);
  primitives::setMaxThreads(before);
}

TEST(Recurrence, IsTheSameToTheBitForAnyNumberOfThreads) {
  std::mt19937 generator(2);
  const int before = primitives::maxThreads();
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    // Shared out by units, by rows of a weight that a cache holds, by units of a large one, and by both.
    for (auto [batch, hidden] : {std::pair<int64_t, int64_t>{1, 256}, {19, 96}, {9, 400}, {8, 128}}) {
      const Case c{cell, false, 7, batch, hidden};
      SCOPED_TRACE(nameOf(c));
      const Inputs in = randomInputs(c, generator);
      std::vector<Memory> operands = operandsOf(c, in, false);
      std::vector<float> first;
      for (int threads : {1, 2, 3, 5, 16}) {
        primitives::setMaxThreads(threads);
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
  primitives::setMaxThreads(before);
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

TEST(Recurrence, SharesOutRowsAloneWhereEachHasManyOrTheWeightIsNear) {
  const Level& wide = level(false);
  EXPECT_TRUE(sharesOutRows(wide, 2, 32, 1 << 18));
  EXPECT_FALSE(sharesOutRows(wide, 2, 32, 1 << 19));
  EXPECT_FALSE(sharesOutRows(wide, 2, 3, 1 << 18));
  EXPECT_TRUE(sharesOutRows(wide, 2, 96, 1 << 21));
  EXPECT_FALSE(sharesOutRows(wide, 2, 95, 1 << 21));
  EXPECT_FALSE(sharesOutRows(wide, 16, 128, 1 << 21));
  const Level tiles{"tiles", 16, nullptr, true, 8, 32};  // which multiply faster than a far cache brings weights
  EXPECT_TRUE(sharesOutRows(tiles, 2, 32, 1 << 19));
  EXPECT_FALSE(sharesOutRows(tiles, 2, 128, 1 << 21));
  EXPECT_TRUE(sharesOutRows(tiles, 2, 384, 1 << 21));
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
}  // namespace zefuse::recurrence::cases
