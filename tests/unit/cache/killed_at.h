#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace zefuse::test {

enum class Ended { by_itself, killed, not_traced };

// Runs `work` in a child process that is killed before or after one of its system calls: at stop number `point` (every
// call has two). The work shall not start threads. not_traced: this machine forbids ptrace.
inline Ended killedAt(int point, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
      _exit(77);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  for (int stop = 0; stop < point && WIFSTOPPED(status); ++stop) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
  }
  if (WIFEXITED(status))
    return WEXITSTATUS(status) == 77 ? Ended::not_traced : Ended::by_itself;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return Ended::killed;
}

// Kills the work at each of its points, one after the other, and looks afterwards. The number of points; 0 where that
// is not possible here.
inline int killEverywhere(const std::function<void()>& work, const std::function<void(int point)>& look) {
  for (int point = 1; point < 100000; ++point) {
    const Ended ended = killedAt(point, work);
    if (ended == Ended::not_traced)
      return 0;
    look(point);
    if (ended == Ended::by_itself)
      return point;
  }
  return -1;
}

}  // namespace zefuse::test
