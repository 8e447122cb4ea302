// A product in double precision, element by element, and what tests need to feed and compare it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/matmul/matmul.h"

namespace zefuse::primitives::testing {

// A strided tensor with storage of its own. Elements between the strides hold NaN, so that a read
// or a write out of place shows.
struct Tensor {
  TensorDesc desc;
  std::vector<uint16_t> narrow;  // bf16
  std::vector<float> wide;       // f32

  const void* data() const;
  void* data();
  double at(const std::vector<int64_t>& index) const;
  // Broadcasts from the right.
  double broadcastAt(const std::vector<int64_t>& index) const;
};

// A post-op of one element, as eager computes it.
double apply(plan::PostOpKind kind, double x, double operand);

struct AlignedBuffer {
  explicit AlignedBuffer(size_t bytes) : data(std::aligned_alloc(64, (bytes + 127) & ~size_t(63))) {}
  AlignedBuffer(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(data); }
  void* data;
};

Tensor randomTensor(const TensorDesc& desc, uint32_t seed, double scale = 1.0);
TensorDesc dense(plan::DType dtype, std::vector<int64_t> sizes);
// The same tensor with two dimensions exchanged in memory: sizes stay, strides are those of the
// exchanged dense tensor.
TensorDesc permuted(plan::DType dtype, std::vector<int64_t> sizes, std::vector<size_t> memory_order);

// What a random product's operands and post-ops are like, by a generator of its own.
class Draw {
public:
  explicit Draw(uint32_t seed) : generator_(seed) {}
  int64_t operator()(int64_t low, int64_t high) { return int64_t(generator_() % uint64_t(high - low + 1)) + low; }
  // f32. `transposed`: the last two dimensions are exchanged in memory. `gaps`: there may be some between rows or
  // columns, or everywhere.
  TensorDesc layout(std::vector<int64_t> sizes, bool transposed, bool gaps);
  // None, one or two; operands have the result's sizes [rows, columns].
  std::vector<PostOpDesc> postOps(int64_t rows, int64_t columns);

private:
  std::mt19937 generator_;
};

struct Case {
  MatmulDesc desc;
  Tensor a, b, out;
  Tensor bias;
  std::vector<Tensor> operands;
};
Case makeCase(const MatmulDesc& desc, uint32_t seed = 1);

// Runs the case through get, packB and run; compares every element with the reference. Returns ""
// or what differs. `implementation`, when not null, receives the implementation's name.
std::string runAndCompare(Case& test, std::string* implementation = nullptr);
std::string compare(const Case& test);
// Of the product that the descriptor gets, or why there is none.
std::string implementationOf(const MatmulDesc& desc);

}  // namespace zefuse::primitives::testing
