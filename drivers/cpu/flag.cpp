#include "drivers/cpu/flag.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>
#include <limits>

#include "drivers/cpu/level_zero.h"
#include "drivers/level_zero/clock.h"

namespace zefuse::cpu {

int Flag::privacy() const { return words_ == &own_ ? FUTEX_PRIVATE_FLAG : 0; }

void Flag::set() {
  // Sequentially consistent with the waiter's increment and test: either it sees the word, or we see it waiting.
  words_->word.store(1, std::memory_order_seq_cst);
  if (words_->waiters.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, &words_->word, FUTEX_WAKE | privacy(), INT_MAX, nullptr, nullptr, 0);
}

bool Flag::wait(uint64_t timeout_ns) {
  if (isSet())
    return true;
  if (timeout_ns == 0)
    return false;

  // An absolute deadline, so that a spurious wake-up does not lengthen the wait. A deadline past the clock's range is
  // none.
  uint64_t start = nowNs();
  bool forever = timeout_ns > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - start;
  uint64_t deadline = start + timeout_ns;
  timespec until = {static_cast<time_t>(deadline / 1'000'000'000u), static_cast<long>(deadline % 1'000'000'000u)};

  words_->waiters.fetch_add(1, std::memory_order_seq_cst);
  while (words_->word.load(std::memory_order_seq_cst) == 0) {
    long result = syscall(SYS_futex, &words_->word, FUTEX_WAIT_BITSET | privacy(), 0, forever ? nullptr : &until,
                          nullptr, FUTEX_BITSET_MATCH_ANY);
    if (result == -1 && errno == ETIMEDOUT)
      break;
  }
  words_->waiters.fetch_sub(1, std::memory_order_relaxed);
  return isSet();
}

}  // namespace zefuse::cpu
