#include "lowering/native/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern char** environ;

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

Result<ToolOutput> runTool(const std::vector<std::string>& command, std::chrono::milliseconds deadline) {
  const std::string& tool = command.at(0);
  Pipe pipe;
  if (pipe2(pipe.ends, O_CLOEXEC) != 0)
    return Status(Code::internal, "pipe for " + tool + ": " + std::strerror(errno));

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe.ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe.ends[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own, so that what the tool starts is killed with it; default signals, whatever the host blocks.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  sigdelset(&all, SIGKILL);
  sigdelset(&all, SIGSTOP);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  for (const std::string& word : command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  int error = posix_spawnp(&child, tool.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return Status(error == ENOENT ? Code::not_found : Code::internal,
                  "cannot start " + tool + ": " + std::strerror(error) +
                      (error == ENOENT ? "; install it or put it into PATH" : ""));
  pipe.closeEnd(1);

  // Read until the tool ends or its time is up. The pipe may outlive it (a grandchild holds it), so the child is
  // polled.
  ToolOutput output;
  auto end = Clock::now() + deadline;
  int wait_status = 0;
  bool ended = false, late = false, open = true;
  while (!ended) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) {
      late = true;
      break;
    }
    pollfd readable{pipe.ends[0], POLLIN, 0};
    int slice = int(std::min<long long>(left, open ? 20 : 2));
    if (poll(&readable, open ? 1 : 0, slice) > 0) {
      char buffer[4096];
      ssize_t count = read(pipe.ends[0], buffer, sizeof buffer);
      if (count > 0 && output.text.size() < max_text)
        output.text.append(buffer, count);
      if (count == 0)
        open = false;
    }
    pid_t reaped = waitpid(child, &wait_status, WNOHANG);
    if (reaped < 0 && errno != EINTR)  // the host reaps all children: how it ended is lost
      return Status(Code::internal, tool + ": waitpid: " + std::strerror(errno) + withOutput(output.text, command));
    ended = reaped == child;
  }
  kill(-child, SIGKILL);  // whatever of its group is left
  if (!ended)
    while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR) {
    }
  // What is still in the pipe, without waiting for a grandchild to close it.
  if (open) {
    fcntl(pipe.ends[0], F_SETFL, O_NONBLOCK);
    char buffer[4096];
    for (ssize_t count; output.text.size() < max_text && (count = read(pipe.ends[0], buffer, sizeof buffer)) > 0;)
      output.text.append(buffer, count);
  }
  if (late)
    return Status(Code::deadline, tool + " did not end in " + std::to_string(deadline.count()) + " ms and was killed" +
                                      withOutput(output.text, command));
  if (WIFSIGNALED(wait_status))
    return Status(Code::device, tool + " crashed with signal " + std::to_string(WTERMSIG(wait_status)) + " (" +
                                    strsignal(WTERMSIG(wait_status)) + ")" + withOutput(output.text, command));
  if (WEXITSTATUS(wait_status) != 0)
    return Status(Code::device, tool + " failed with exit code " + std::to_string(WEXITSTATUS(wait_status)) +
                                    withOutput(output.text, command));
  return output;
}

}  // namespace zefuse
