#include "common/base/fork.h"

#include <time.h>

#include <algorithm>
#include <vector>

extern "C" {
// Weak: a program of the library's that opens no parallel region has no libgomp. The first came with gcc 9.
[[gnu::weak]] int omp_pause_resource_all(int kind);
[[gnu::weak]] void omp_set_num_threads(int threads);
}

namespace zefuse {
namespace {

using fork_detail::Listed;
using fork_detail::Word;

// Constant-initialised, and without a destructor: locks are made before and destroyed after main.
struct Registry {
  Word word;  // guards the lists; the last to be taken
  Listed* short_locks = nullptr;
  Listed* long_locks = nullptr;
  std::vector<void (*)()>* resets = nullptr;
  pthread_rwlock_t gate;  // shared by WithoutFork; a fork takes it alone
  bool team_ended = false;
  std::atomic<uint32_t> generation{0};
};
constinit Registry registry{.gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP};

thread_local uint32_t without_fork = 0;  // how many WithoutFork the thread has

void add(Listed*& first, Listed& lock) {
  registry.word.lock();
  lock.next = first;
  if (first)
    first->previous = &lock;
  first = &lock;
  registry.word.unlock();
}

void remove(Listed*& first, Listed& lock) {
  registry.word.lock();
  (lock.previous ? lock.previous->next : first) = lock.next;
  if (lock.next)
    lock.next->previous = lock.previous;
  registry.word.unlock();
}

}  // namespace

struct ForkHandlers {
  static ForkMutex& shortLock(Listed* at) { return *static_cast<ForkMutex*>(at); }

  // All or none: waiting for one while holding others would need an order among all locks.
  static bool takeAll() {
    registry.word.lock();
    for (Listed* at = registry.short_locks; at; at = at->next)
      if (!shortLock(at).word_.tryLock()) {
        for (Listed* taken = registry.short_locks; taken != at; taken = taken->next)
          shortLock(taken).word_.unlock();
        registry.word.unlock();
        return false;
      }
    return true;
  }

  static void before() {
    // Ended, not only idle. Inside a region this fails, and the child gets one thread.
    constexpr int soft = 1;
    registry.team_ended = omp_pause_resource_all && omp_pause_resource_all(soft) == 0;
    if (without_fork == 0)  // else this thread is what it would wait for
      pthread_rwlock_wrlock(&registry.gate);
    for (long wait_us = 1; !takeAll(); wait_us = std::min(2 * wait_us, 1000L)) {
      const timespec wait{0, wait_us * 1000};
      nanosleep(&wait, nullptr);
    }
  }

  static void afterInParent() {
    for (Listed* at = registry.short_locks; at; at = at->next)
      shortLock(at).word_.unlock();
    registry.word.unlock();
    if (without_fork == 0)
      pthread_rwlock_unlock(&registry.gate);
  }

  static void afterInChild() {
    registry.generation.fetch_add(1, std::memory_order_relaxed);
    if (!registry.team_ended && omp_set_num_threads)
      omp_set_num_threads(1);
    for (Listed* at = registry.long_locks; at; at = at->next) {
      auto& lock = *static_cast<LongForkMutex*>(at);
      if (lock.held_ && pthread_equal(lock.holder_, pthread_self()))
        continue;  // the forking thread's own: it goes on in the child
      lock.abandoned_ |= lock.held_;
      lock.held_ = false;
      lock.word_.setFree();
    }
    for (Listed* at = registry.short_locks; at; at = at->next)
      shortLock(at).word_.setFree();
    registry.word.setFree();
    registry.gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;  // it counts waiters that are gone
    if (without_fork > 0)
      pthread_rwlock_rdlock(&registry.gate);
    if (registry.resets)
      for (void (*reset)() : *registry.resets)
        reset();
  }

  static void addShort(ForkMutex& lock) { add(registry.short_locks, lock); }
  static void removeShort(ForkMutex& lock) { remove(registry.short_locks, lock); }
  static void addLong(LongForkMutex& lock) { add(registry.long_locks, lock); }
  static void removeLong(LongForkMutex& lock) { remove(registry.long_locks, lock); }
};

namespace {
// ENOMEM at start-up: without the handlers a child is unsafe, everything else works.
[[maybe_unused]] const int registered =
    pthread_atfork(ForkHandlers::before, ForkHandlers::afterInParent, ForkHandlers::afterInChild);
}  // namespace

uint32_t forkGeneration() { return registry.generation.load(std::memory_order_relaxed); }

ForkMutex::ForkMutex() { ForkHandlers::addShort(*this); }
ForkMutex::~ForkMutex() { ForkHandlers::removeShort(*this); }

LongForkMutex::LongForkMutex() { ForkHandlers::addLong(*this); }
LongForkMutex::~LongForkMutex() { ForkHandlers::removeLong(*this); }

void LongForkMutex::lock() {
  word_.lock();
  holder_ = pthread_self();
  held_ = true;
}

void LongForkMutex::unlock() {
  held_ = false;
  word_.unlock();
}

WithoutFork::WithoutFork() {
  if (without_fork++ == 0)
    pthread_rwlock_rdlock(&registry.gate);
}

WithoutFork::~WithoutFork() {
  if (--without_fork == 0)
    pthread_rwlock_unlock(&registry.gate);
}

void inEveryChild(void (*reset)()) {
  registry.word.lock();
  if (!registry.resets)
    registry.resets = new std::vector<void (*)()>;
  registry.resets->push_back(reset);
  registry.word.unlock();
}

}  // namespace zefuse
