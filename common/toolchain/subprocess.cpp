#include "common/toolchain/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/toolchain/spawn.h"

namespace zefuse {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t max_text = 64 << 10;  // a tool in a loop must not fill our memory

struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    for (int end : ends)
      if (end >= 0)
        close(end);
  }
  void closeEnd(int which) {
    close(ends[which]);
    ends[which] = -1;
  }
};

// A child and its process group, which end with this object unless it was reaped.
struct Child {
  pid_t id;
  ~Child() {
    if (id > 0)
      end(nullptr, nullptr);
  }
  // Kills what is left of the group, and reaps.
  void end(int* status, rusage* usage) {
    kill(-id, SIGKILL);
    while (wait4(id, status, 0, usage) < 0 && errno == EINTR) {
    }
    id = -1;
  }
};

std::string withOutput(const std::string& text, const std::vector<std::string>& command) {
  std::string result = "\n  to repeat: " + commandLine(command);
  if (!text.empty())
    result += "\n  it printed:\n" + text;
  return result;
}

}  // namespace

std::string commandLine(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) {
    line += line.empty() ? "" : " ";
    if (!word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                                "-_./=:,+@%") == std::string::npos) {
      line += word;
      continue;
    }
    line += "'";
    for (char c : word)
      line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  return line;
}

Result<ToolOutput> runTool(const std::vector<std::string>& command, const ToolLimits& limits) {
  const std::string& tool = command.at(0);
  Pipe pipe;
  if (pipe2(pipe.ends, O_CLOEXEC) != 0)
    return Status(Code::internal, "pipe for " + tool + ": " + std::strerror(errno));
  SpawnFiles files;
  files.open(0, "/dev/null", O_RDONLY);
  files.duplicate(pipe.ends[1], 1);
  files.duplicate(pipe.ends[1], 2);
  if (!limits.directory.empty())
    files.directory(limits.directory);
  pid_t started = -1;  // nobody's where it fails
  if (const int error = spawnInGroup(command, files, started); error != 0)
    return Status(error == ENOENT ? Code::not_found : Code::internal,
                  "cannot start " + tool + ": " + std::strerror(error) +
                      (error == ENOENT ? "; install it or put it into PATH" : ""));
  Child child{started};
  pipe.closeEnd(1);
  if (limits.memory_bytes) {
    // The program has only begun: what it allocates from here on counts with the little that it has. Not RLIMIT_AS: a
    // GPU's driver reserves far more addresses than it uses.
    const rlimit memory{limits.memory_bytes, limits.memory_bytes};
    prlimit(child.id, RLIMIT_DATA, &memory, nullptr);
  }

  // Read until the tool ends or its time is up. The pipe may outlive it (a grandchild holds it), so the child is
  // polled.
  ToolOutput output;
  const auto end = Clock::now() + limits.deadline;
  int wait_status = 0;
  rusage usage{};
  bool ended = false, late = false, cancelled = false, open = true;
  while (!ended) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    cancelled = limits.cancelled();
    late = left <= 0;
    if (cancelled || late)
      break;
    pollfd readable{pipe.ends[0], POLLIN, 0};
    const int slice = int(std::min<long long>(left, open ? 20 : 2));
    if (poll(&readable, open ? 1 : 0, slice) > 0) {
      char buffer[4096];
      const ssize_t count = read(pipe.ends[0], buffer, sizeof buffer);
      if (count > 0 && output.text.size() < max_text)
        output.text.append(buffer, size_t(count));
      if (count == 0)
        open = false;
    }
    const pid_t reaped = wait4(child.id, &wait_status, WNOHANG, &usage);
    if (reaped < 0 && errno != EINTR) {  // the host reaps all children: how it ended is lost
      if (errno == ECHILD && limits.any_exit_code) {
        ended = true;
        continue;
      }
      child.id = -1;
      return Status(Code::internal, tool + ": wait4: " + std::strerror(errno) + withOutput(output.text, command));
    }
    ended = reaped == child.id;
  }
  if (ended)
    kill(-std::exchange(child.id, -1), SIGKILL);  // whatever of its group is left
  else
    child.end(&wait_status, &usage);
  // What is still in the pipe, without waiting for a grandchild to close it.
  if (open) {
    fcntl(pipe.ends[0], F_SETFL, O_NONBLOCK);
    char buffer[4096];
    for (ssize_t count; output.text.size() < max_text && (count = read(pipe.ends[0], buffer, sizeof buffer)) > 0;)
      output.text.append(buffer, size_t(count));
  }
  std::string how;
  if (cancelled)
    how = " was cancelled and killed";
  else if (late)
    how = " did not end in " + std::to_string(limits.deadline.count()) + " ms and was killed";
  else if (WIFSIGNALED(wait_status))
    how =
        " crashed with signal " + std::to_string(WTERMSIG(wait_status)) + " (" + strsignal(WTERMSIG(wait_status)) + ")";
  else if (WEXITSTATUS(wait_status) != 0 && !limits.any_exit_code)
    how = " failed with exit code " + std::to_string(WEXITSTATUS(wait_status));
  if (how.empty())
    return output;
  how += "; it held " + std::to_string(usage.ru_maxrss >> 10) + " MiB of memory at most";
  if (limits.memory_bytes)
    how += ", its memory is limited to " + std::to_string(limits.memory_bytes >> 20) + " MiB";
  return Status(cancelled ? Code::cancelled
                : late    ? Code::deadline
                          : Code::device,
                tool + how + withOutput(output.text, command));
}

}  // namespace zefuse
