// fork(): a child goes on with what its parent had, whatever the parent's other threads were at.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "common/base/fork.h"
#include "runtime/cache/file_cache.h"
#include "runtime/primitives/core/team.h"
#include "tests/unit/cache/temporary_folder.h"
#include "tests/unit/executor/device_calls.h"
#include "tests/unit/executor/kernels.h"

namespace zefuse {
namespace {

[[maybe_unused]] const int posing = setenv("ZEFUSE_CPU_DRIVER_AS", "gpu", /*overwrite=*/0);

using namespace std::chrono_literals;
using test::HostTensor;
using test::launch;
using test::OutputMemory;
using test::PlanBuilder;

// Whether `body` returns true in a child. A child that hangs is ended by a signal.
bool holdsInChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status)) << "the child was ended by signal " << WTERMSIG(status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Runs `work` again and again on other threads while it lives.
class Busy {
public:
  Busy(int threads, std::function<void(int)> work) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this, work, i] {
        while (!stop_) {
          work(i);
          ++rounds_;
        }
      });
    while (rounds_ == 0)
      std::this_thread::yield();
  }
  ~Busy() { stop_ = true; }

private:
  std::atomic<bool> stop_{false};
  std::atomic<int> rounds_{0};
  std::vector<std::jthread> threads_;
};

// Holds `lock` on another thread while it lives.
template <typename Lock> class HeldElsewhere {
public:
  explicit HeldElsewhere(Lock& lock, std::chrono::milliseconds at_most = 1h)
      : thread_([this, &lock, at_most](const std::stop_token& stop) {
          std::lock_guard guard(lock);
          held_ = true;
          for (const auto end = std::chrono::steady_clock::now() + at_most;
               !stop.stop_requested() && std::chrono::steady_clock::now() < end;)
            std::this_thread::sleep_for(1ms);
        }) {
    while (!held_)
      std::this_thread::yield();
  }

private:
  std::atomic<bool> held_{false};
  std::jthread thread_;
};

TEST(ForkLocks, AShortLockIsFreeInTheChild) {
  ForkMutex lock, other;
  const HeldElsewhere held(lock, 50ms);
  EXPECT_TRUE(holdsInChild([&] {
    std::scoped_lock both(lock, other);
    return true;
  }));
  std::scoped_lock both(lock, other);
}

TEST(ForkLocks, ALongLockIsNotWaitedForAndItsHolderIsMissed) {
  LongForkMutex lock, free;
  HeldElsewhere held(lock);
  EXPECT_TRUE(holdsInChild([&] {
    std::lock_guard one(lock);
    std::lock_guard two(free);
    return lock.abandoned() && !free.abandoned();
  }));
  EXPECT_FALSE(lock.abandoned());
}

TEST(ForkLocks, ALongLockOfTheForkingThreadStaysItsOwn) {
  LongForkMutex lock;
  lock.lock();
  EXPECT_TRUE(holdsInChild([&] {
    std::atomic<bool> had{false};
    std::thread other([&] {
      std::lock_guard guard(lock);
      had = true;
    });
    std::this_thread::sleep_for(20ms);
    const bool early = had;
    lock.unlock();
    other.join();
    return !early && had && !lock.abandoned();
  }));
  lock.unlock();
}

struct InsideLibrary {
  std::optional<WithoutFork> inside;
  void lock() { inside.emplace(); }
  void unlock() { inside.reset(); }
};

TEST(ForkLocks, ForksWaitForLibrariesWithLocksOfTheirOwn) {
  InsideLibrary library;
  const auto begin = std::chrono::steady_clock::now();
  const HeldElsewhere held(library, 50ms);
  EXPECT_TRUE(holdsInChild([] {
    const WithoutFork again, nested;
    return true;
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 50ms);
  const WithoutFork mine;
  EXPECT_TRUE(holdsInChild([] { return true; })) << "the thread itself may fork";
}

std::atomic<int> resets{0};

TEST(ForkLocks, StateIsResetInEveryChild) {
  inEveryChild([] { ++resets; });
  const uint32_t before = forkGeneration();
  EXPECT_TRUE(holdsInChild(
      [&] { return resets == 1 && forkGeneration() == before + 1 && holdsInChild([] { return resets == 2; }); }));
  EXPECT_EQ(resets, 0);
  EXPECT_EQ(forkGeneration(), before);
}

class Fork : public testing::Test {
protected:
  void SetUp() override { primitives::setMaxThreads(4); }
  void TearDown() override { primitives::setMaxThreads(before_); }

private:
  const int before_ = primitives::maxThreads();
};

int teamHere() {
  std::atomic<int> parts{0};
  primitives::overTeam(1000, 1, [&](int64_t, int64_t) { ++parts; });
  return parts;
}

TEST_F(Fork, ParentChildAndGrandchildHaveTheirTeams) {
  ASSERT_EQ(teamHere(), 4);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(holdsInChild([] { return teamHere() == 4 && holdsInChild([] { return teamHere() == 4; }); }));
    EXPECT_EQ(teamHere(), 4);
  }
  std::jthread([] {  // another thread than the one with the team
    EXPECT_TRUE(holdsInChild([] { return teamHere() > 0; }));
  })
      .join();
  EXPECT_EQ(teamHere(), 4);
}

TEST_F(Fork, OneThreadWhereTheForkIsInsideARegion) {
  ASSERT_EQ(teamHere(), 4);
  primitives::overTeam(4, 1, [](int64_t begin, int64_t) {
    if (begin == 0) {
      EXPECT_TRUE(holdsInChild([] { return teamHere() == 1; }));
    }
  });
  EXPECT_EQ(teamHere(), 4);
}

// y = twice(x @ w + x), over symbolic rows: a packed weight, a kernel, the arena.
PlanBuilder model() {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0), columns = b.constant(64);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0, columns});
  const uint32_t w = b.tensorInput("w", plan::DType::f32, {columns, columns}, plan::InputKind::parameter);
  const uint32_t t = b.arenaTensor(plan::DType::f32, {s0, columns}, 0, 1);
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0, columns});
  b.matmul(x, w, t);
  const uint32_t extent = b.op(plan::ExprOp::mul, s0, columns);
  plan::LaunchT add = launch(b, "add", {t, x, out}, extent, 7);
  add.symbols = {extent};
  b.step(std::move(add));
  return b;
}

std::unique_ptr<Executable> load(const std::string& cache_dir) {
  ExecutableOptions options;
  options.cache_dir = cache_dir;
  auto made = Executable::create(model().finish(), options);
  EXPECT_TRUE(made.ok()) << made.status().toString();
  return made.ok() ? std::move(*made) : nullptr;
}

// x of ones and a weight of `weight`s everywhere: 64 * weight + 1.
bool isRight(Executable& executable, int64_t rows, float weight = 2) {
  HostTensor x = HostTensor::f32({rows, 64}, std::vector<float>(size_t(rows * 64), 1));
  HostTensor w = HostTensor::f32({64, 64}, std::vector<float>(64 * 64, weight));
  const CallInput inputs[] = {x.input(), w.input()};
  OutputMemory memory;
  auto outputs = executable.call(inputs, memory.allocator());
  if (!outputs.ok())
    return false;
  for (float each : memory.read<float>((*outputs)[0]))
    if (each != 64 * weight + 1)
      return false;
  return true;
}

TEST_F(Fork, AChildCallsWhatItsParentCalled) {
  auto executable = load("");
  for (int64_t rows : {8, 4096, 8})
    ASSERT_TRUE(isRight(*executable, rows));
  EXPECT_TRUE(holdsInChild([&] {
    return isRight(*executable, 8) && isRight(*executable, 4096) && isRight(*executable, 17) &&
           holdsInChild([&] { return isRight(*executable, 8) && isRight(*executable, 18); });
  }));
  EXPECT_TRUE(isRight(*executable, 4096));
}

// Bindings, frames, weights that are packed anew, primitives that are prepared and looked up, counters, allocations.
TEST_F(Fork, DuringCallsOfOtherThreads) {
  auto executable = load("");
  executable->timeSteps(true);
  std::atomic<int64_t> rows{1};
  const Busy busy(3, [&](int thread) {
    EXPECT_TRUE(isRight(*executable, rows++ % 500 + 1, float(thread)));
    EXPECT_TRUE(isRight(*executable, 3, float(thread)));
    if (rows % 16 == 0)
      executable->invalidateWeights();
  });
  for (int round = 0; round < 40; ++round)
    EXPECT_TRUE(holdsInChild([&] {
      executable->invalidateWeights();
      return isRight(*executable, 3) && isRight(*executable, 3) && isRight(*executable, 600 + round) &&
             executable->counters().calls > 0 && executable->stepTimes().size() == 2;
    }));
}

// The compiler in another library, the folder of native code with its locks, threads that build.
TEST_F(Fork, DuringCompilation) {
  const test::TemporaryFolder folder;
  std::atomic<int> number{0};
  const Busy busy(2, [&](int) {
    const std::string mine = folder.path + "/" + std::to_string(number++ % 50);
    EXPECT_TRUE(isRight(*load(mine), 3));
    std::filesystem::remove_all(mine);
  });
  for (int round = 0; round < 12; ++round)
    EXPECT_TRUE(holdsInChild([&] { return isRight(*load(folder.path + "/child"), 3) && isRight(*load(""), 5); }));
}

TEST_F(Fork, AFilesLockIsNotKeptByAChild) {
  const test::TemporaryFolder folder;
  const FileCache cache(folder.path, uint64_t(1) << 20);
  CacheKey key("test");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t child = 0;
  {
    const FileCache::Lock lock = cache.lock(key, 10s);
    child = fork();
    if (child == 0) {  // lives until its parent says so, with a copy of every file that its parent had open
      alarm(300);
      close(ends[1]);
      char byte = 0;
      _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  {
    const FileCache::Lock again = cache.lock(key, 10s);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  close(ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  close(ends[0]);
}

// A GPU's plan is an error in a child, not a wait for the thread that its parent builds it on.
TEST_F(Fork, KernelsThatAreBuiltBesideAreTheParents) {
  PlanBuilder b;
  const uint32_t n = b.constant(4);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {n});
  test::addStep(b, x, x, b.outputTensor(plan::DType::f32, {n}), n);
  HostTensor given = HostTensor::f32({4}, {1, 2, 3, 4});
  const CallInput inputs[] = {given.input()};
  auto executable = test::createBeside(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  EXPECT_TRUE(holdsInChild([&] {
    OutputMemory memory;
    const Status status = (*executable)->call(inputs, memory.allocator()).status();
    endBuilding();
    executable->reset();
    return status.code() == Code::device;
  }));
  OutputMemory memory;
  auto outputs = (*executable)->call(inputs, memory.allocator());
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  EXPECT_EQ(memory.read<float>((*outputs)[0]), (std::vector<float>{2, 4, 6, 8}));
}

}  // namespace
}  // namespace zefuse
