// Launches of the test kernels (kernels.cl), one module per entry point.
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/unit/executor/plan_builder.h"

namespace zefuse::test {

inline std::vector<uint32_t> kernelsSpirv() {
  std::ifstream file(KERNELS_SPV, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), words.size() * 4);
  return words;
}

// The last of `args` is the result.
inline plan::LaunchT launch(PlanBuilder& b, const std::string& entry, std::vector<uint32_t> args, uint32_t extent,
                            uint32_t grain = 256) {
  plan::LaunchT launch;
  launch.module_ = b.module(entry, entry, kernelsSpirv());
  launch.name = "kernel_" + entry;
  launch.args = std::move(args);
  launch.outputs = 1;
  launch.extent = extent;
  launch.grain = grain;
  return launch;
}

}  // namespace zefuse::test
