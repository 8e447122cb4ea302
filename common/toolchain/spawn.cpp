#include "common/toolchain/spawn.h"

#include <signal.h>
#include <unistd.h>

extern char** environ;

namespace zefuse {

int spawnInGroup(const std::vector<std::string>& command, const SpawnFiles& files, pid_t& child) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
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
  const int error = posix_spawnp(&child, arguments[0], files.get(), &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  return error;
}

}  // namespace zefuse
