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

// A step that adds `count` elements.
inline void addStep(PlanBuilder& b, uint32_t x, uint32_t y, uint32_t out, uint32_t count) {
  plan::LaunchT step = launch(b, "add", {x, y, out}, count);
  step.symbols = {count};
  b.step(std::move(step));
}

// t = p + q; u = t + p; out = x + u, of n elements, with parameters p and q: two steps of parameters alone.
inline PlanBuilder addsToDerived(int64_t n, bool kept = true) {
  PlanBuilder b;
  b.plan.kept_weights = kept;
  const uint32_t size = b.constant(n);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {size});
  const uint32_t p = b.tensorInput("p", plan::DType::f32, {size}, plan::InputKind::parameter);
  const uint32_t q = b.tensorInput("q", plan::DType::f32, {size}, plan::InputKind::parameter);
  const uint32_t t = b.arenaTensor(plan::DType::f32, {size}, 0, 1);
  const uint32_t u = b.arenaTensor(plan::DType::f32, {size}, 1, 2);
  const uint32_t out = b.outputTensor(plan::DType::f32, {size});
  addStep(b, p, q, t, size);
  addStep(b, t, p, u, size);
  addStep(b, x, u, out, size);
  return b;
}

}  // namespace zefuse::test
