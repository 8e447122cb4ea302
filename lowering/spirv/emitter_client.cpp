#include "lowering/spirv/emitter_client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "common/base/descriptor_io.h"
#include "common/base/fork.h"
#include "common/toolchain/companion.h"
#include "common/toolchain/spawn.h"
#include "lowering/spirv/emitter.h"

namespace zefuse {
namespace {

using emitter::Frame;
using emitter::Kind;

constexpr int deadline_s = 30;

std::string programPath() { return companionProgram(emitter::program_name); }

// The running program. Not thread-safe.
class Emitter {
public:
  static Result<Emitter> start() {
    const std::string path = programPath();
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return Status(Code::internal, std::string("no socket for the SPIR-V back end: ") + std::strerror(errno));
    const timeval limit{deadline_s, 0};
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    SpawnFiles files;
    files.duplicate(ends[1], 0);
    files.open(1, "/dev/null", O_WRONLY);
    pid_t child = -1;
    const int error = spawnInGroup({path}, files, child);
    close(ends[1]);
    if (error != 0) {
      close(ends[0]);
      return Status(Code::not_found, "cannot start " + path + ": " + std::strerror(error) + "; reinstall zefuse");
    }
    return Emitter(child, ends[0]);
  }

  // nullopt: the program is gone. After an error too, unless the answer itself says it.
  std::optional<Result<std::vector<uint32_t>>> request(std::span<const char> bitcode) {
    Frame frame{Kind::bitcode, bitcode.size()};
    errno = 0;
    if (!sendAll(socket_, &frame, sizeof frame) || !sendAll(socket_, bitcode.data(), bitcode.size()) ||
        !readAll(socket_, &frame, sizeof frame))
      return lost();
    if (frame.kind == Kind::error) {
      std::string text(frame.size, '\0');
      if (!readAll(socket_, text.data(), text.size()))
        return lost();
      return Status(Code::device, "the SPIR-V back end " + text);
    }
    std::vector<uint32_t> words(frame.size / 4);
    if (!readAll(socket_, words.data(), frame.size))
      return lost();
    return words;
  }

  bool running() const { return socket_ >= 0; }

  void stop() {
    close(socket_);
    socket_ = -1;
    if (owner_ != getpid())
      return;
    kill(-child_, SIGKILL);
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

private:
  Emitter(pid_t child, int socket) : child_(child), socket_(socket), owner_(getpid()) {}

  std::optional<Result<std::vector<uint32_t>>> lost() {
    const bool late = errno == EAGAIN || errno == EWOULDBLOCK;
    stop();
    if (late)
      return Status(Code::deadline,
                    "the SPIR-V back end did not answer within " + std::to_string(deadline_s) + " s and was killed");
    return std::nullopt;
  }

  pid_t child_;
  int socket_;
  pid_t owner_;
};

ForkMutex guard;  // a fork waits for the answer in flight: the child needs a program of its own, and this one whole
std::optional<Emitter> running;  // guarded; the program ends by itself when this process does

// The program serves the process that started it, and ends when nobody holds the other end of its socket.
void leaveToParent() {
  if (running)
    running->stop();
  running.reset();
}

Status ensureRunning() {
  [[maybe_unused]] static const bool registered = (inEveryChild(leaveToParent), true);
  if (running && running->running())
    return {};
  Result<Emitter> started = Emitter::start();
  if (!started.ok())
    return started.status();
  running = *started;
  return {};
}

}  // namespace

void startSpirvBackEnd() {
  std::lock_guard lock(guard);
  (void)ensureRunning();  // the request that needs it tries again and reports
}

Result<std::vector<uint32_t>> runSpirvBackEnd(std::span<const char> bitcode) {
  std::lock_guard lock(guard);
  for (int attempt = 0; attempt < 2; ++attempt) {  // a program that somebody killed meanwhile is started again, once
    ZEFUSE_RETURN_IF_ERROR(ensureRunning());
    if (auto answer = running->request(bitcode))
      return *answer;
  }
  return Status(Code::device, "the program that runs the SPIR-V back end (" + programPath() +
                                  ") ended before it answered, twice; start it by hand to see why");
}

}  // namespace zefuse
