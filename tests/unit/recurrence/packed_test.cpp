// Packed sequences against each of them alone, which recurrence_test.cpp compares with the formulas.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "common/plan/recurrence.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/recurrence/recurrence.h"
#include "tests/unit/recurrence/run_once.h"

namespace zefuse::recurrence::packed {
namespace {

using plan::RecurrentCell;
using primitives::TensorDesc;

// Dense.
struct Memory {
  TensorDesc desc;
  std::vector<float> data;
  std::vector<uint16_t> narrowed;
  std::vector<int64_t> numbers;

  explicit Memory(std::vector<int64_t> sizes) {
    desc.dtype = plan::DType::f32;
    desc.strides.assign(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;)
      desc.strides[d - 1] = desc.strides[d] * sizes[d];
    desc.sizes = std::move(sizes);
    data.assign(size_t(desc.sizes[0] * desc.strides[0]), std::nanf(""));
  }
  static Memory random(std::vector<int64_t> sizes, std::mt19937& generator, float scale) {
    Memory made(std::move(sizes));
    std::normal_distribution<float> normal(0, scale);
    for (float& value : made.data)
      value = normal(generator);
    return made;
  }
  static Memory of(std::vector<int64_t> values) {
    Memory made({int64_t(values.size())});
    made.desc.dtype = plan::DType::i64;
    made.numbers = std::move(values);
    return made;
  }
  void narrow() {
    desc.dtype = plan::DType::bf16;
    for (float value : data)
      narrowed.push_back(primitives::bitsOfBf16(value));
  }
  const void* address() const {
    if (!numbers.empty())
      return numbers.data();
    return narrowed.empty() ? static_cast<const void*>(data.data()) : narrowed.data();
  }
  int64_t units() const { return desc.sizes.back(); }
  float* row(int64_t number) { return data.data() + number * units(); }
};

using Memories = std::vector<Memory>;

Status run(RecurrenceDesc desc, const Memories& operands, Memories& results) {
  std::vector<const void*> addresses;
  std::vector<void*> outs;
  for (const Memory& operand : operands) {
    desc.operands.push_back(operand.desc);
    addresses.push_back(operand.address());
  }
  for (Memory& result : results) {
    desc.results.push_back(result.desc);
    outs.push_back(result.data.data());
  }
  return runOnce(desc, addresses, outs);
}

// Sequences of these lengths, the longest first.
struct Case {
  RecurrentCell cell;
  bool reverse;
  std::vector<int64_t> lengths;
  int64_t hidden;

  int64_t gates() const { return plan::arityOf(cell, false).gates; }
  int64_t batch() const { return int64_t(lengths.size()); }
  int64_t rows() const { return std::reduce(lengths.begin(), lengths.end()); }
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> all;
    for (int64_t t = 0; t < lengths[0]; ++t)
      all.push_back(std::ranges::count_if(lengths, [&](int64_t length) { return length > t; }));
    return all;
  }
  // Where each step of a sequence is among the rows of all.
  std::vector<int64_t> places(int64_t b) const {
    std::vector<int64_t> found;
    int64_t place = 0;
    for (int64_t size : sizes()) {
      if (b < size)
        found.push_back(place + b);
      place += size;
    }
    return found;
  }
};

// Of one sequence alone: rows of all steps by [steps, 1, units], of states by one.
Memories alone(const Case& c, Memories& of_all, int64_t b) {
  Memories made;
  for (Memory& all : of_all) {
    if (all.desc.sizes.size() == 2 && all.desc.sizes[0] == c.rows()) {
      const std::vector<int64_t> places = c.places(b);
      Memory& rows = made.emplace_back(std::vector{int64_t(places.size()), int64_t(1), all.units()});
      for (size_t t = 0; t < places.size(); ++t)
        std::copy_n(all.row(places[t]), all.units(), rows.row(int64_t(t)));
    } else if (all.desc.sizes.size() == 2 && all.desc.sizes[0] == c.batch()) {
      std::copy_n(all.row(b), all.units(), made.emplace_back(std::vector{int64_t(1), all.units()}).row(0));
    } else {
      made.push_back(all);
    }
  }
  return made;
}

void expectNear(Memory& found, int64_t row, Memory& wanted, int64_t its_row, const std::string& what) {
  for (int64_t j = 0; j < found.units(); ++j)
    ASSERT_NEAR(found.row(row)[j], wanted.row(its_row)[j], 1e-5 * (1 + std::abs(wanted.row(its_row)[j])))
        << what << ", row " << row << ", unit " << j;
}

// All results of all sequences, and beside the last hidden state and the one before each step.
void expectEachAlone(const Case& c, Memories& found, Memories& wanted, int64_t b) {
  const std::vector<int64_t> places = c.places(b);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string what = "result " + std::to_string(i);
    if (wanted[i].desc.sizes.size() == 3)
      for (size_t t = 0; t < places.size(); ++t)
        expectNear(found[i], places[t], wanted[i], int64_t(t), what);
    else
      expectNear(found[i], b, wanted[i], 0, what);
  }
}

void forEachCase(const std::function<void(const Case&, int threads)>& body) {
  const std::vector<int64_t> some[] = {{3}, {4, 4, 2, 1}, {9, 7, 7, 6, 5, 5, 3, 2, 1, 1, 1}};
  const int before = primitives::maxThreads();
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh, RecurrentCell::relu})
    for (bool reverse : {false, true})
      for (const std::vector<int64_t>& lengths : some)
        for (int64_t hidden : {5, 33, 130}) {
          // Shared out by rows, by blocks of units and by both.
          const int threads = hidden == 130 ? 8 : hidden == 33 ? 3 : 1;
          SCOPED_TRACE(std::string(plan::EnumNameRecurrentCell(cell)) + (reverse ? " reversed, " : ", ") +
                       std::to_string(lengths.size()) + " sequences of " + std::to_string(hidden) + " units");
          primitives::setMaxThreads(threads);
          body({cell, reverse, lengths, hidden}, threads);
        }
  primitives::setMaxThreads(before);
}

TEST(PackedRecurrence, IsEachSequenceAlone) {
  std::mt19937 generator(1);
  forEachCase([&](const Case& c, int) {
    for (bool narrow : {false, true}) {
      const int64_t N = c.rows(), B = c.batch(), H = c.hidden, G = c.gates();
      Memories operands{Memory::random({N, G * H}, generator, 1), Memory::random({G * H, H}, generator, 0.1f),
                        Memory::random({G * H}, generator, 0.3f), Memory::random({B, H}, generator, 0.5f)};
      if (narrow)
        operands[1].narrow();
      Memories results{Memory({N, H})};
      if (c.cell == RecurrentCell::lstm) {
        operands.push_back(Memory::random({B, H}, generator, 0.5f));
        results.insert(results.end(), {Memory({B, H}), Memory({N, 4 * H}), Memory({N, H})});
      } else if (c.cell == RecurrentCell::gru) {
        results.emplace_back(std::vector{N, 4 * H});
      }
      Memories taken = operands, made = results;
      taken.push_back(Memory::of(c.sizes()));
      made.insert(made.end(), {Memory({B, H}), Memory({N, H})});
      const Status status = run({c.cell, false, c.reverse, true, {}, {}}, taken, made);
      ASSERT_TRUE(status.ok()) << status.message();
      for (int64_t b = 0; b < B; ++b) {
        Memories inputs = alone(c, operands, b), wanted = alone(c, results, b);
        ASSERT_TRUE(run({c.cell, false, c.reverse, false, {}, {}}, inputs, wanted).ok());
        expectEachAlone(c, made, wanted, b);
        const int64_t T = c.lengths[size_t(b)];
        expectNear(made[results.size()], b, wanted[0], c.reverse ? 0 : T - 1, "last hidden state");
        const std::vector<int64_t> places = c.places(b);
        for (int64_t t = 0; t < T; ++t) {
          const int64_t before = c.reverse ? t + 1 : t - 1;
          const bool first = before < 0 || before == T;
          expectNear(made.back(), places[size_t(t)], first ? inputs[3] : wanted[0], first ? 0 : before, "before");
        }
      }
    }
  });
}

TEST(PackedRecurrence, DerivativeIsEachSequencesAlone) {
  std::mt19937 generator(2);
  auto check = [&](const Case& c, bool narrow) {
    const int64_t N = c.rows(), B = c.batch(), H = c.hidden, G = c.gates();
    auto sequence = [&](int64_t units) { return Memory::random({N, units}, generator, 0.5f); };
    auto state = [&] { return Memory::random({B, H}, generator, 0.5f); };
    Memory weight = Memory::random({G * H, H}, generator, 0.1f);
    if (narrow)
      weight.narrow();
    Memories operands, results{Memory({N, G * H})};
    if (c.cell == RecurrentCell::lstm) {
      operands = {sequence(H), state(), weight, state(), sequence(H), sequence(4 * H)};
      results.insert(results.end(), {Memory({B, H}), Memory({B, H})});
    } else if (c.cell == RecurrentCell::gru) {
      operands = {sequence(H), weight, state(), sequence(H), sequence(4 * H)};
      results.insert(results.end(), {Memory({N, G * H}), Memory({B, H})});
    } else {
      operands = {sequence(H), weight, sequence(H)};
      results.emplace_back(std::vector{B, H});
    }
    Memories taken = operands, made = results;
    taken.push_back(state());
    taken.push_back(Memory::of(c.sizes()));
    const Status status = run({c.cell, true, c.reverse, true, {}, {}}, taken, made);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int64_t b = 0; b < B; ++b) {
      Memories inputs = alone(c, operands, b), wanted = alone(c, results, b);
      // The gradient of the last hidden state is one of the last output.
      const int64_t last = c.reverse ? 0 : c.lengths[size_t(b)] - 1;
      for (int64_t j = 0; j < H; ++j)
        inputs[0].row(last)[j] += taken[operands.size()].row(b)[j];
      ASSERT_TRUE(run({c.cell, true, c.reverse, false, {}, {}}, inputs, wanted).ok());
      expectEachAlone(c, made, wanted, b);
    }
  };
  forEachCase([&](const Case& c, int) {
    check(c, false);
    check(c, true);
  });
  // Rows of several tiles, the last of which end early.
  std::vector<int64_t> lengths(20, 4);
  lengths.resize(30, 3);
  lengths.resize(37, 1);
  for (RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::tanh})
    check({cell, cell == RecurrentCell::gru, lengths, 40}, true);
}

TEST(PackedRecurrence, RefusesNumbersOfRowsThatDoNotFit) {
  std::mt19937 generator(3);
  const int64_t N = 6, B = 3, H = 4;
  Memories operands{Memory::random({N, H}, generator, 1), Memory::random({H, H}, generator, 1),
                    Memory::random({H}, generator, 1), Memory::random({B, H}, generator, 1)};
  Memories results{Memory({N, H}), Memory({B, H}), Memory({N, H})};
  auto status = [&](std::vector<int64_t> sizes) {
    Memories all = operands;
    all.push_back(Memory::of(std::move(sizes)));
    return run({RecurrentCell::tanh, false, false, true, {}, {}}, all, results);
  };
  EXPECT_TRUE(status({3, 2, 1}).ok());
  EXPECT_TRUE(status({3, 3}).ok());
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 1, 2}, {2, 2, 2}, {4, 2}, {3, 2}, {3, 3, 1}, {3, 3, 0}, {3, 4, -1}})
    EXPECT_EQ(status(sizes).code(), Code::invalid_argument) << sizes.size() << " sizes, the last " << sizes.back();
}

}  // namespace
}  // namespace zefuse::recurrence::packed
