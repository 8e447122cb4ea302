#include "runtime/primitives/core/team_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>

namespace zefuse::primitives {
namespace {

using std::chrono::milliseconds;

// The calling thread's team, for one test.
class Team : public ::testing::Test {
protected:
  void TearDown() override { setMaxThreads(before); }
  const int before = maxThreads();
};

TEST_F(Team, AThreadHasItsCreators) {
  for (int team : {1, 3, 7}) {
    setMaxThreads(team);
    const std::thread::id here = std::this_thread::get_id();
    bool elsewhere = false;
    TeamThread<int> thread([&] {
      elsewhere = std::this_thread::get_id() != here;
      return maxThreads();
    });
    setMaxThreads(2);  // too late to matter
    EXPECT_EQ(thread.get(), team);
    EXPECT_TRUE(elsewhere);
    EXPECT_EQ(maxThreads(), 2);
  }
}

TEST_F(Team, SoHasEachThreadOfALoop) {
  for (int team : {1, 5}) {
    setMaxThreads(team);
    std::vector<int> seen(64);
    inParallelForTeam(seen.size(), [&](size_t i) { seen[i] = maxThreads(); });
    EXPECT_EQ(seen, std::vector<int>(64, team));
    EXPECT_EQ(maxThreads(), team);
  }
}

TEST_F(Team, ResultsNeedNotBeCopied) {
  TeamThread<std::unique_ptr<int>> thread([] { return std::make_unique<int>(5); });
  EXPECT_EQ(*thread.get(), 5);
  EXPECT_THROW(thread.get(), std::future_error);
}

TEST_F(Team, WhatAThreadThrowsReachesWhoAsks) {
  TeamThread<int> thread([]() -> int { throw std::runtime_error("from the thread"); });
  try {
    thread.get();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "from the thread");
  }
  TeamThread<void> unasked([] { throw std::bad_alloc(); });  // nobody asks: it ends quietly
}

TEST_F(Team, WhatALoopThrowsReachesItsCallerAndEndsIt) {
  setMaxThreads(4);
  std::atomic<int> begun{0}, running{0};
  try {
    inParallelForTeam(100000, [&](size_t i) {
      ++begun;
      if (i == 10)
        throw std::runtime_error("piece " + std::to_string(i));
      ++running;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      --running;
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "piece 10");
  }
  EXPECT_EQ(running, 0);
  EXPECT_LT(begun, 100000);
}

TEST_F(Team, WhatATeamThrowsReachesItsCaller) {
  setMaxThreads(4);
  std::atomic<int> done{0};
  try {
    overTeam(400, 1, [&](int64_t begin, int64_t end) {
      if (begin > 0)
        throw std::runtime_error("a part");
      done += int(end - begin);
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "a part");
  }
  EXPECT_GT(done, 0);
  std::atomic<int64_t> sum{0};
  overTeam(400, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 400);
}

// libgomp ends the threads that a smaller team does not use: what they cost is in `make bench-team`.
TEST_F(Team, FewPartsEndNoThreads) {
  setMaxThreads(8);
  auto threadsOf = [](int64_t count) {
    std::mutex mutex;
    std::set<pid_t> threads;
    overTeam(count, 1, [&](int64_t, int64_t) {
      std::lock_guard lock(mutex);
      threads.insert(gettid());
    });
    return threads;
  };
  const std::set<pid_t> all = threadsOf(8);
  ASSERT_EQ(all.size(), 8u);
  for (int64_t count : {2, 5, 1, 0}) {
    EXPECT_EQ(threadsOf(count).size(), size_t(count));
    EXPECT_EQ(threadsOf(8), all) << "after a region of " << count << " parts";
  }
}

TEST_F(Team, TheEndIsWaitedFor) {
  std::atomic<bool> may_end{false};
  bool ended = false;
  {
    TeamThread<void> thread([&] {
      while (!may_end)
        std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(20));
      ended = true;
    });
    EXPECT_FALSE(thread.endsWithin(milliseconds(5)));
    may_end = true;
  }
  EXPECT_TRUE(ended);
  TeamThread<int> done([] { return 1; });
  while (!done.endsWithin(milliseconds(1000))) {
  }
  EXPECT_EQ(done.get(), 1);
}

#ifndef ZEFUSE_SANITIZED  // whose allocators end the process when there is no memory
// In a child process whose stacks find no room.
TEST_F(Team, WithoutAThreadTheCreatorDoesTheWork) {
  const pid_t child = fork();
  if (child == 0) {
    pthread_attr_t attributes;
    const rlimit room{size_t(1) << 30, size_t(1) << 30};
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, size_t(2) << 30) != 0 ||
        pthread_setattr_default_np(&attributes) != 0 || setrlimit(RLIMIT_AS, &room) != 0)
      _exit(77);
    const std::thread::id here = std::this_thread::get_id();
    TeamThread<bool> thread([&] { return std::this_thread::get_id() == here; });
    size_t sum = 0;
    inParallelForTeam(10, [&](size_t i) { sum += i; });
    _exit(thread.get() && sum == 45 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "no such limits here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

}  // namespace
}  // namespace zefuse::primitives
