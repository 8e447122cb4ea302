// What the library does about fork(): the one place that knows. A child has the forking thread alone. Three things
// would hang it or hand it torn data; each has its remedy here:
//
// - libgomp's threads, for which a parallel region would wait for ever. The forking thread's team is ended before the
//   fork, so that parent and child each start one of their own at their next region: our kernels, oneDNN and torch all
//   keep their threads in a child.
// - Locks that another thread holds. Short ones (ForkMutex) are taken before the fork and given back after it. Long
//   ones (LongForkMutex), whose holder may itself wait for what the forking thread holds (Python's GIL), are not waited
//   for: the child finds them free, and is told that their holder is gone.
// - Libraries with locks of their own (oneDNN's caches, LLVM): a fork waits until no thread is inside (WithoutFork).
//
// A shared library that links this has its own copy, with handlers of its own. So that two of them cannot wait for each
// other, nobody calls the other library while holding a ForkMutex or a WithoutFork.
#pragma once

#include <pthread.h>

#include "common/base/api.h"
#include <atomic>
#include <cstdint>

namespace zefuse {

// How many forks lie between this process and the one that loaded the library.
uint32_t forkGeneration();

namespace fork_detail {

// A mutex of one word, which a child can simply set free: the states of std::mutex and of its checkers are their own.
class Word {
public:
  bool tryLock() {
    uint32_t expected = free;
    return state_.compare_exchange_strong(expected, taken, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock() {
    if (!tryLock()) [[unlikely]]
      while (state_.exchange(contended, std::memory_order_acquire) != free)
        state_.wait(contended, std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(free, std::memory_order_release) == contended) [[unlikely]]
      state_.notify_one();
  }
  void setFree() { state_.store(free, std::memory_order_release); }  // in a child, where nobody waits

private:
  static constexpr uint32_t free = 0, taken = 1, contended = 2;
  std::atomic<uint32_t> state_{free};
};

// Every living lock of a kind is in a list.
struct Listed {
  Listed* previous = nullptr;
  Listed* next = nullptr;
};

}  // namespace fork_detail

// For sections that end by themselves within milliseconds: no callbacks, no GIL, no waiting for other threads, no calls
// of the driver. Lockable (std::lock_guard). A fork waits until it is free.
class ZEFUSE_API ForkMutex : fork_detail::Listed {
public:
  ForkMutex();
  ~ForkMutex();
  ForkMutex(const ForkMutex&) = delete;

  void lock() { word_.lock(); }
  bool try_lock() { return word_.tryLock(); }
  void unlock() { word_.unlock(); }

private:
  friend struct ForkHandlers;
  fork_detail::Word word_;
};

// For sections of any length, callbacks among them. Lockable.
class LongForkMutex : fork_detail::Listed {
public:
  LongForkMutex();
  ~LongForkMutex();
  LongForkMutex(const LongForkMutex&) = delete;

  void lock();
  void unlock();
  // Whether a thread that a fork left behind held it: what it guards may be half changed in this process.
  bool abandoned() const { return abandoned_; }

private:
  friend struct ForkHandlers;
  fork_detail::Word word_;
  std::atomic<bool> held_{false};
  pthread_t holder_{};
  bool abandoned_ = false;
};

// While one lives, no fork happens; a fork that waits lets no new one begin. For work of one thread that waits for no
// other thread and calls nobody back. May be nested.
class WithoutFork {
public:
  WithoutFork();
  ~WithoutFork();
  WithoutFork(const WithoutFork&) = delete;
};

// Calls `reset` in every child, before fork() returns there. For state that another thread may have had in its hands.
void inEveryChild(void (*reset)());

}  // namespace zefuse
