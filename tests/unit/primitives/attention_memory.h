// Sizes and operands of attention for tests.
#pragma once

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/primitive.h"
#include "runtime/primitives/simd/bf16.h"

namespace zefuse::primitives {

struct AttentionCase {
  int64_t batch, heads, key_heads, rows, keys, depth, width;
  bool causal = false;
};

// [batch, heads, rows, columns], in memory as [batch, rows, heads, columns] with a gap behind each row.
struct Memory {
  TensorDesc desc;
  std::vector<float> wide;
  std::vector<uint16_t> narrow;

  Memory(plan::DType dtype, std::vector<int64_t> sizes) {
    const int64_t row = sizes[3] + 3;
    desc = {dtype, sizes, {sizes[2] * sizes[1] * row, row, sizes[1] * row, 1}};
    const auto count = size_t(sizes[0] * sizes[1] * sizes[2] * row);
    if (dtype == plan::DType::f32)
      wide.assign(count, NAN);
    else
      narrow.assign(count, 0x7fc0);
  }

  void* data() { return wide.empty() ? static_cast<void*>(narrow.data()) : wide.data(); }
  size_t at(int64_t b, int64_t h, int64_t row, int64_t i) const {
    return size_t(b * desc.strides[0] + h * desc.strides[1] + row * desc.strides[2] + i);
  }
  float get(size_t place) const {
    return wide.empty() ? std::bit_cast<float>(uint32_t(narrow[place]) << 16) : wide[place];
  }
  void set(size_t place, float value) {
    if (wide.empty())
      narrow[place] = bitsOfBf16(value);
    else
      wide[place] = value;
  }
  void fill(std::mt19937& generator) {
    std::normal_distribution<float> normal;
    for (int64_t b = 0; b < desc.sizes[0]; ++b)
      for (int64_t h = 0; h < desc.sizes[1]; ++h)
        for (int64_t row = 0; row < desc.sizes[2]; ++row)
          for (int64_t i = 0; i < desc.sizes[3]; ++i)
            set(at(b, h, row, i), normal(generator));
  }
};

// Memory for a call to work in, aligned as it wants it and filled with NaN.
class Scratch {
public:
  explicit Scratch(size_t bytes) : memory_(bytes / sizeof(float) + 16, NAN) {}
  void* data() { return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64); }

private:
  std::vector<float> memory_;
};

}  // namespace zefuse::primitives
