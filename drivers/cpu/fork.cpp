#include "drivers/cpu/fork.h"

#include <pthread.h>

#include <atomic>

#include "drivers/cpu/context.h"
#include "drivers/cpu/memory.h"

namespace zefuse::cpu {
namespace {

std::atomic<uint32_t> generation{0};

// The locks that any thread may hold at any time, the allocation table's and the contexts', are held over the fork, so
// that the child finds them in a known state.
void beforeFork() {
  Context::lockForFork();
  AllocationTable::instance().lockForFork();
}
void afterForkInParent() {
  AllocationTable::instance().unlockInParent();
  Context::unlockAfterFork();
}
void afterForkInChild() {
  generation.fetch_add(1, std::memory_order_relaxed);
  AllocationTable::instance().unlockInChild();
  Context::unlockAfterFork();
}

}  // namespace

void watchForks() {
  static const int registered = pthread_atfork(beforeFork, afterForkInParent, afterForkInChild);
  (void)registered;  // ENOMEM at start-up: without the handlers a forked child is unsafe, everything else works
}

uint32_t forkGeneration() { return generation.load(std::memory_order_relaxed); }

}  // namespace zefuse::cpu
