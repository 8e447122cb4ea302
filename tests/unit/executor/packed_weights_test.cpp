// Packed copies of weights: when they are kept, and many of them at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "runtime/executor/executable.h"
#include "runtime/executor/kept_copies.h"
#include "tests/unit/executor/call.h"
#include "tests/unit/executor/plan_builder.h"

extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}

namespace zefuse::executor {
namespace {

using namespace zefuse::test;

struct Numbered {
  WeightStamp stamp;
};

size_t copiesOf(const KeptCopies<Numbered>& kept) {
  return size_t(std::ranges::count_if(kept.uses(), [](const auto& use) { return use.copy != nullptr; }));
}

TEST(KeptCopies, AsManyAsAreAskedForInTurn) {
  std::vector<std::byte> weights(1000);
  KeptCopies<Numbered> kept;
  auto isMade = [&](size_t weight, uint64_t version) {
    const WeightStamp stamp{&weights[weight], version, 0, 0};
    if (auto found = kept.use(stamp)) {
      EXPECT_EQ(found->stamp, stamp);
      return false;
    }
    kept.makeRoom();
    kept.add(std::make_shared<Numbered>(Numbered{stamp}));
    return true;
  };
  // Weights that are never asked for again take the room of one, and so do those that change.
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(isMade(i, i));
    EXPECT_FALSE(isMade(i, i));
    EXPECT_EQ(copiesOf(kept), 1u);
  }
  // Twelve in turn: once, again for all but the last, and no more.
  std::vector<int> made;
  for (int round = 0; round < 4; ++round) {
    made.push_back(0);
    for (size_t i = 200; i < 212; ++i)
      made.back() += isMade(i, 0);
  }
  EXPECT_EQ(made, (std::vector<int>{12, 11, 0, 0}));
  // A change is a copy in the old one's place.
  EXPECT_TRUE(isMade(205, 1));
  EXPECT_FALSE(isMade(200, 0) || isMade(211, 0) || isMade(205, 1));
  EXPECT_EQ(copiesOf(kept), 12u);
  EXPECT_TRUE(isMade(300, 0));
  EXPECT_EQ(copiesOf(kept), 12u);
  // Under pressure only what a call uses stays.
  const auto used = kept.use({&weights[300], 0, 0, 0});
  EXPECT_TRUE(kept.dropUnused());
  EXPECT_EQ(copiesOf(kept), 1u);
  EXPECT_FALSE(kept.dropUnused());
}

TEST(KeptCopies, NotWithoutEnd) {
  std::vector<std::byte> weights(2000);
  KeptCopies<Numbered> kept;
  for (int round = 0; round < 3; ++round)
    for (const std::byte& weight : weights) {
      const WeightStamp stamp{&weight, 0, 0, 0};
      if (kept.use(stamp))
        continue;
      kept.makeRoom();
      kept.add(std::make_shared<Numbered>(Numbered{stamp}));
      ASSERT_LE(kept.uses().size(), 256u);
    }
}

// x times each of `count` weights, of which the last two are one and the same.
struct Layers {
  static constexpr int64_t k = 160, n = 96;
  int count;
  PlanBuilder b;
  std::vector<HostTensor> weights;
  uint64_t version = 0;

  explicit Layers(int count) : count(count) {
    const uint32_t rows = b.constant(24), inner = b.constant(k), columns = b.constant(n);
    const uint32_t x = b.tensorInput("x", plan::DType::f32, {rows, inner});
    uint32_t weight = 0;
    for (int i = 0; i < count; ++i) {
      if (i + 1 < count || count == 1) {
        weight = b.tensorInput("w" + std::to_string(i), plan::DType::f32, {inner, columns}, plan::InputKind::parameter);
        std::vector<float> values(size_t(k * n));
        for (size_t at = 0; at < values.size(); ++at)
          values[at] = float(int(at * 7 + size_t(i) * 13) % 31 - 15) / 16;
        weights.push_back(HostTensor::f32({k, n}, values));
      }
      b.matmul(x, weight, b.outputTensor(plan::DType::f32, {rows, columns}));
    }
  }

  // Every sum is exact in f32.
  void check(Executable& executable) {
    std::vector<float> x(24 * size_t(k));
    for (size_t at = 0; at < x.size(); ++at)
      x[at] = float(int(at * 5) % 17 - 8);
    HostTensor rows = HostTensor::f32({24, k}, x);
    std::vector<CallInput> inputs{rows.input()};
    for (HostTensor& weight : weights)
      inputs.push_back(weight.input()), inputs.back().tensor.version = version;
    OutputMemory memory;
    auto outputs = executable.call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    for (int i = 0; i < count; ++i) {
      const HostTensor& weight = weights[std::min(size_t(i), weights.size() - 1)];
      const auto* w = reinterpret_cast<const float*>(weight.bytes.data());
      const std::vector<float> y = memory.read<float>((*outputs)[size_t(i)]);
      for (int64_t column : {int64_t(0), n / 2, n - 1}) {
        float sum = 0;
        for (int64_t at = 0; at < k; ++at)
          sum += x[size_t(at)] * w[at * n + column];
        ASSERT_EQ(y[column], sum) << "layer " << i;
      }
    }
  }
};

// The first use of a weight's contents keeps nothing; where a call uses one twice, its second use does.
TEST(PackedWeights, AllFromTheSecondUseByAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  for (int team : {1, 2, 3, 7})
    for (int count : {1, 2, 9}) {
      omp_set_num_threads(team);
      Layers layers(count);
      auto made = Executable::create(layers.b.finish(), {});
      ASSERT_TRUE(made.ok()) << made.status().toString();
      Executable* executable = made->get();
      layers.check(*executable);
      const auto first = executable->counters();
      const uint64_t expected = first.weights_streamed ? layers.weights.size() : 0;  // none where oneDNN packs nothing
      EXPECT_EQ(first.weights_streamed, expected);
      EXPECT_EQ(first.weights_packed, expected && count > 1 ? 1u : 0u);
      layers.check(*executable);
      layers.check(*executable);
      const auto third = executable->counters();
      EXPECT_EQ(third.weights_streamed, expected);
      EXPECT_EQ(third.weights_packed, expected);
      EXPECT_EQ(third.weights_streamed + third.weights_packed + third.weight_packs_reused,
                expected ? 3 * uint64_t(count) : 0u);
      ++layers.version;
      layers.check(*executable);
      EXPECT_EQ(executable->counters().weights_streamed, 2 * expected);
      layers.check(*executable);
      EXPECT_EQ(executable->counters().weights_packed, 2 * expected);
      EXPECT_EQ(executable->counters().weights_streamed, 2 * expected);
    }
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace zefuse::executor
