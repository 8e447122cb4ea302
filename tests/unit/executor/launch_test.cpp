// Whole calls with kernels, on our CPU driver.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "runtime/primitives/core/team.h"
#include "tests/unit/cache/temporary_folder.h"
#include "tests/unit/executor/call.h"
#include "tests/unit/executor/kernels.h"
#include "tests/unit/little_memory.h"
#include "tests/unit/regions.h"

namespace zefuse {
namespace {

using test::HostTensor;
using test::launch;
using test::OutputMemory;
using test::PlanBuilder;

std::unique_ptr<Executable> create(const PlanBuilder& builder, const ExecutableOptions& options = {}) {
  auto made = Executable::create(builder.finish(), options);
  EXPECT_TRUE(made.ok()) << made.status().toString();
  return made.ok() ? std::move(*made) : nullptr;
}

std::vector<float> ramp(size_t count) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i)
    out[i] = float(i % 1000) * 0.5f;
  return out;
}

PlanBuilder staticPlan() {
  PlanBuilder b;
  const uint32_t n = b.constant(1024);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n});
  const uint32_t t = b.arenaTensor(plan::DType::f32, {n}, 0, 1);
  const uint32_t out = b.outputTensor(plan::DType::f32, {n});
  b.step(launch(b, "twice1024", {x, t}, n));
  b.step(launch(b, "twice1024", {t, out}, n));
  return b;
}

void checkStatic(Executable& executable) {
  HostTensor x = HostTensor::f32({1024}, ramp(1024));
  OutputMemory memory;
  const CallInput inputs[] = {x.input()};
  auto outputs = executable.call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  const auto got = memory.read<float>((*outputs)[0]);
  for (size_t i = 0; i < 1024; ++i)
    ASSERT_EQ(got[i], 4 * ramp(1024)[i]);
}

TEST(Launch, AStaticPlan) {
  auto executable = create(staticPlan());
  checkStatic(*executable);
  checkStatic(*executable);
  EXPECT_EQ(executable->counters().launches, 4u);
}

TEST(Launch, ChunksFollowSizesAndThreads) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0});
  const uint32_t y = b.tensorInput("y", plan::DType::f32, {s0});
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0});
  plan::LaunchT add = launch(b, "add", {x, y, out}, s0, 7);
  add.symbols = {s0};
  b.step(std::move(add));
  auto executable = create(b);
  const int before = primitives::maxThreads();
  for (int threads : {1, 2, 5}) {
    primitives::setMaxThreads(threads);
    for (int64_t count : {1, 6, 7, 8, 1000, 0, 33}) {
      const auto data = ramp(size_t(count));
      HostTensor x = HostTensor::f32({count}, data), y = HostTensor::f32({count}, data);
      OutputMemory memory;
      const CallInput inputs[] = {x.input(), y.input()};
      auto outputs = executable->call(inputs, memory.allocator());
      ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
      const auto got = memory.read<float>((*outputs)[0]);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], 2 * data[i]) << count << " with " << threads;
    }
  }
  primitives::setMaxThreads(before);
  EXPECT_EQ(executable->counters().launches, 18u);  // none for extent 0
}

TEST(Launch, WakesNoLargeTeamForLittleWork) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0});
  const uint32_t y = b.tensorInput("y", plan::DType::f32, {s0});
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0});
  plan::LaunchT add = launch(b, "add", {x, y, out}, s0, 7);
  add.symbols = {s0};
  b.step(std::move(add));
  auto executable = create(b);
  const int before = primitives::maxThreads();
  auto regions = [&](int64_t count, int threads) {
    primitives::setMaxThreads(threads);
    const auto data = ramp(size_t(count));
    HostTensor x = HostTensor::f32({count}, data), y = HostTensor::f32({count}, data);
    OutputMemory memory;
    const CallInput inputs[] = {x.input(), y.input()};
    EXPECT_TRUE(executable->call(inputs, memory.allocator()).ok());  // the first one prepares
    const int so_far = zefuse::testing::regionsOpened();
    EXPECT_TRUE(executable->call(inputs, memory.allocator()).ok());
    return zefuse::testing::regionsOpened() - so_far;
  };
  EXPECT_EQ(regions(7, 2), 0);
  EXPECT_EQ(regions(35, 2), 1);  // five grains
  EXPECT_EQ(regions(35, 64), 0);
  EXPECT_EQ(regions(7000, 16), 1);
  primitives::setMaxThreads(before);
}

TEST(Launch, ExactGroups) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0});
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0});
  plan::LaunchT square = launch(b, "square", {x, out}, s0, 16);
  square.distribution = plan::Distribution::exact;
  square.group_size = {16};
  square.symbols = {s0};
  b.step(std::move(square));
  auto executable = create(b);
  for (int64_t count : {1, 16, 17, 100}) {
    const auto data = ramp(size_t(count));
    HostTensor x = HostTensor::f32({count}, data);
    OutputMemory memory;
    const CallInput inputs[] = {x.input()};
    auto outputs = executable->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    const auto got = memory.read<float>((*outputs)[0]);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], data[i] * data[i]);
  }
}

#ifndef ZEFUSE_SANITIZED  // whose allocators end the process when there is no memory

TEST(Launch, AGroupWithoutMemoryIsTheKernelsError) {
  PlanBuilder b;
  const uint32_t n = b.constant(1024);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n});
  const uint32_t out = b.outputTensor(plan::DType::f32, {n});
  plan::LaunchT keep = launch(b, "keep", {x, out}, n, 1024);
  keep.distribution = plan::Distribution::exact;
  keep.group_size = {1024};
  b.step(std::move(keep));
  auto executable = create(b);
  HostTensor in = HostTensor::f32({1024}, std::vector<float>(1024, 7));
  const CallInput inputs[] = {in.input()};
  // On a thread of its own: memory that a thread once had it keeps.
  std::thread([&] {
    OutputMemory memory;
    const test::LittleMemory little;
    const Status status = executable->call(inputs, memory.allocator()).status();
    EXPECT_EQ(status.code(), Code::out_of_memory) << status.toString();
    EXPECT_NE(status.message().find("(Launch 'kernel_keep')"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("kernel 'keep': no memory left for the 5"), std::string::npos) << status.message();
  }).join();
  OutputMemory memory;
  auto outputs = executable->call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  const auto got = memory.read<float>((*outputs)[0]);
  for (size_t i = 0; i < 1024; ++i)
    ASSERT_EQ(got[i], float(i + 7));
}

#endif

TEST(Launch, AFailedCheckIsTheKernelsError) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 1, 0), rows = b.constant(4);
  const uint32_t table = b.tensorInput("table", plan::DType::f32, {rows});
  const uint32_t index = b.tensorInput("index", plan::DType::i64, {s0});
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0});
  plan::LaunchT gather = launch(b, "gather", {table, index, out}, s0);
  gather.symbols = {s0, rows};
  for (auto [error, message] : {std::pair{plan::ErrorClass::value_error, "an index is negative"},
                                std::pair{plan::ErrorClass::index_error, "index out of range"}}) {
    gather.checks.push_back(std::make_unique<plan::KernelCheckT>());
    gather.checks.back()->error = error;
    gather.checks.back()->message = message;
  }
  b.step(std::move(gather));
  auto executable = create(b);
  HostTensor values = HostTensor::f32({4}, {10, 20, 30, 40});
  auto call = [&](std::vector<int64_t> at) {
    HostTensor index = HostTensor::of<int64_t>(plan::DType::i64, {int64_t(at.size())}, at);
    OutputMemory memory;
    const CallInput inputs[] = {values.input(), index.input()};
    auto outputs = executable->call(inputs, memory.allocator());
    if (outputs.ok()) {
      EXPECT_EQ(memory.read<float>((*outputs)[0]), (std::vector<float>{40, 10}));
    }
    return outputs.status();
  };
  EXPECT_TRUE(call({3, 0}).ok());
  const Status above = call({0, 4}), below = call({-1, 0});
  EXPECT_EQ(above.code(), Code::index_error);
  EXPECT_EQ(above.message(), "step 0 (Launch 'kernel_gather'), which reads table, index: index out of range");
  EXPECT_EQ(below.code(), Code::invalid_argument);
  EXPECT_TRUE(call({3, 0}).ok());  // the status word does not stick
}

TEST(Launch, ScratchIsPerGroup) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0, b.constant(8)});
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0});
  plan::LaunchT sum = launch(b, "row_sum", {x, out}, s0, 1);
  sum.symbols = {s0};
  sum.scratch_bytes = b.constant(32);
  b.step(std::move(sum));
  auto executable = create(b);
  const int before = primitives::maxThreads();
  primitives::setMaxThreads(4);
  for (int64_t rows : {1, 3, 500}) {
    const auto data = ramp(size_t(rows) * 8);
    HostTensor x = HostTensor::f32({rows, 8}, data);
    OutputMemory memory;
    const CallInput inputs[] = {x.input()};
    auto outputs = executable->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    const auto got = memory.read<float>((*outputs)[0]);
    for (size_t i = 0; i < got.size(); ++i) {
      float sum = 0;
      for (size_t j = 0; j < 8; ++j)
        sum += data[i * 8 + j];
      ASSERT_EQ(got[i], sum);
    }
  }
  primitives::setMaxThreads(before);
}

TEST(Launch, ArgumentsThatDoNotFitTheKernelAreRefused) {
  PlanBuilder b;
  const uint32_t n = b.constant(1024);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n});
  const uint32_t out = b.outputTensor(plan::DType::f32, {n});
  plan::LaunchT extra = launch(b, "twice1024", {x, out}, n);
  extra.symbols = {n};
  b.step(std::move(extra));
  auto made = create(b);
  HostTensor tensor = HostTensor::f32({1024}, ramp(1024));
  OutputMemory memory;
  const CallInput inputs[] = {tensor.input()};
  const Status status = made->call(inputs, memory.allocator()).status();
  EXPECT_EQ(status.code(), Code::damaged);
  EXPECT_NE(status.message().find("takes 2 arguments and the plan passes 3"), std::string::npos) << status.message();
}

TEST(Launch, AMissingEntryPointIsNamed) {
  PlanBuilder b = staticPlan();
  b.plan.modules[1]->entry = "nothing";
  auto executable = create(b);
  HostTensor x = HostTensor::f32({1024}, ramp(1024));
  OutputMemory memory;
  const CallInput inputs[] = {x.input()};
  const Status status = executable->call(inputs, memory.allocator()).status();
  EXPECT_NE(status.message().find("entry point 'nothing': zeKernelCreate failed with "
                                  "ZE_RESULT_ERROR_INVALID_KERNEL_NAME"),
            std::string::npos)
      << status.message();
}

TEST(Launch, OtherTargetsAndBrokenSpirvAreRefused) {
  PlanBuilder other = staticPlan();
  other.plan.modules[0]->target = "dg2-g11";
  EXPECT_EQ(Executable::create(other.finish(), {}).status().code(), Code::invalid_argument);
  PlanBuilder broken = staticPlan();
  broken.plan.modules[0]->spirv.assign(100, 0x07230203);
  const Status status = Executable::create(broken.finish(), {}).status();
  EXPECT_EQ(status.code(), Code::device);
  EXPECT_NE(status.message().find("kernel module 'twice1024'"), std::string::npos);
}

TEST(Launch, ConcurrentCallsHaveArgumentsOfTheirOwn) {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0});
  const uint32_t t = b.arenaTensor(plan::DType::f32, {s0}, 0, 1);
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0});
  for (auto [from, to] : {std::pair{x, t}, std::pair{t, out}}) {
    plan::LaunchT add = launch(b, "add", {from, from, to}, s0, 100);
    add.symbols = {s0};
    b.step(std::move(add));
  }
  auto executable = create(b);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int id = 0; id < 8; ++id)
    threads.emplace_back([&, id] {
      for (int round = 0; round < 100; ++round) {
        const int64_t count = 50 + (id * 37 + round * 11) % 1000;
        std::vector<float> data(static_cast<size_t>(count), float(id * 1000 + round));
        HostTensor x = HostTensor::f32({count}, data);
        OutputMemory memory;
        const CallInput inputs[] = {x.input()};
        auto outputs = executable->call(inputs, memory.allocator());
        if (!outputs.ok()) {
          ++wrong;
          continue;
        }
        for (float value : memory.read<float>((*outputs)[0]))
          wrong += value != 4 * data[0];
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(NativeCache, IsUsedDamagedEntriesAreRebuiltAndAnUnusableFolderIsSurvived) {
  test::TemporaryFolder folder;
  ExecutableOptions options;
  options.cache_dir = folder.path;
  auto counters = [&] {
    auto executable = create(staticPlan(), options);
    checkStatic(*executable);
    return executable->counters();
  };
  EXPECT_EQ(counters().native_cache_misses, 1u);  // this plan's two modules are equal: the second finds the first's
  EXPECT_EQ(counters().native_cache_hits, 2u);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
    if (!entry.is_regular_file())
      continue;
    auto bytes = test::readFile(entry.path().string());
    bytes[bytes.size() / 2] ^= 4;
    test::writeFile(entry.path().string(), bytes);
  }
  EXPECT_EQ(counters().native_cache_misses, 1u);
  EXPECT_EQ(counters().native_cache_hits, 2u);
  options.cache_dir = "/proc/no-cache-here";
  const ExecutionCounters without = counters();
  EXPECT_EQ(without.native_cache_misses, 2u);
  EXPECT_NE(without.cache_failure.find("cannot write the cache entry"), std::string::npos);
}

TEST(NativeCache, GivenNativeCodeNeedsNoSpirvAndBadOneIsRebuilt) {
  std::vector<std::byte> native;
  {
    auto binaries = create(staticPlan())->nativeBinaries();
    ASSERT_TRUE(binaries.ok()) << binaries.status().toString();
    ASSERT_EQ(binaries->size(), 2u);
    native = (*binaries)[0];
    EXPECT_FALSE(native.empty());
  }
  ExecutableOptions options;
  std::string asked;
  options.native_binary = [&](std::string_view id, std::string_view target) {
    asked = std::string(id) + "." + std::string(target);
    return std::span<const std::byte>(native);
  };
  PlanBuilder without = staticPlan();
  for (auto& module : without.plan.modules)
    module->spirv.clear();
  auto executable = create(without, options);
  checkStatic(*executable);
  EXPECT_EQ(asked, "twice1024.cpu");
  EXPECT_EQ(executable->counters().native_cache_misses, 0u);
  native.resize(native.size() / 2);
  checkStatic(*create(staticPlan(), options));
  EXPECT_EQ(Executable::create(without.finish(), options).status().code(), Code::damaged);
}

}  // namespace
}  // namespace zefuse
