// Damage to plans, and inputs for what comes of it. For the fuzzing tests.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "tests/unit/executor/call.h"

namespace zefuse::test {

inline std::vector<std::byte> damage(std::vector<std::byte> bytes, std::mt19937& random) {
  const int changes = 1 + int(random() % 3);
  for (int i = 0; i < changes; ++i) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
    case 0: bytes[at] ^= std::byte(1 << random() % 8); break;
    case 1: bytes[at] = std::byte(random()); break;
    default: {  // a word that indexes something, or nothing at all
      const uint32_t words[] = {0, 1, 2, 3, 7, uint32_t(random() % 64), 0x7fffffff, ~0u};
      const size_t aligned = at / 4 * 4;
      if (aligned + 4 <= bytes.size())
        std::memcpy(bytes.data() + aligned, &words[random() % 8], 4);
    }
    }
  }
  return bytes;
}

// Inputs that fit whatever the plan now asks for, where that is possible.
struct Inputs {
  std::vector<HostTensor> tensors;
  std::vector<CallInput> calls;

  Inputs(const plan::Plan& plan, int64_t rows) {
    const auto* inputs = plan.inputs();
    const size_t count = inputs ? inputs->size() : 0;
    tensors.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const plan::Input& input = *inputs->Get(uint32_t(i));
      if (input.kind() == plan::InputKind::integer) {
        calls.push_back(integerInput(rows));
        continue;
      }
      HostTensor& tensor = tensors[i];
      tensor.dtype = input.dtype();
      const size_t rank = input.sizes() ? input.sizes()->size() : 0;
      tensor.sizes.assign(rank, 4);
      if (i == 0 && rank)
        tensor.sizes[0] = rows;
      tensor.strides.assign(rank, 1);
      int64_t elements = 1;
      for (size_t d = rank; d-- > 0;) {
        tensor.strides[d] = elements;
        elements *= tensor.sizes[d];
        if (elements > 100000) {
          elements = 0;
          break;
        }
      }
      tensor.bytes.resize(size_t(elements) * plan::elementSize(tensor.dtype));
      calls.push_back(tensor.input());
      if (elements == 0)
        calls.back().tensor.data = nullptr;
    }
  }
};

}  // namespace zefuse::test
