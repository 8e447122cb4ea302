// Recurrent layers of random numbers, the loops in double precision that they are compared with, and tensors in memory.
#pragma once

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/plan/recurrence.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/recurrence/recurrence.h"
#include "tests/unit/recurrence/run_once.h"

namespace zefuse::recurrence::cases {

using plan::RecurrentCell;
using primitives::TensorDesc;
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

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

inline Outputs forward(const Case& c, const Inputs& in) {
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

inline Doubles random(std::mt19937& generator, int64_t count, double scale) {
  std::normal_distribution<double> normal(0, scale);
  Doubles values(static_cast<size_t>(count));
  for (double& value : values)
    value = double(float(normal(generator)));
  return values;
}

inline Inputs randomInputs(const Case& c, std::mt19937& generator) {
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
      narrowed.push_back(primitives::bitsOfBf16(value));
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

inline void run(const Case& c, bool gradient, std::vector<Memory>& operands, std::vector<Memory*> results) {
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

inline std::vector<Memory> operandsOf(const Case& c, const Inputs& in, bool strided) {
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

inline void expectNear(Memory& found, const Doubles& wanted, const char* what, double tolerance = 3e-6) {
  for (int64_t i = 0; i < found.count(); ++i)
    ASSERT_NEAR(found.at(i), wanted[size_t(i)], tolerance * (1 + std::abs(wanted[size_t(i)])))
        << what << ", element " << i;
}

inline std::string nameOf(const Case& c) {
  return std::string(plan::EnumNameRecurrentCell(c.cell)) + " " + std::to_string(c.steps) + "x" +
         std::to_string(c.batch) + "x" + std::to_string(c.hidden) + (c.reverse ? " reversed" : "");
}

}  // namespace zefuse::recurrence::cases
