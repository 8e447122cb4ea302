// How every program of ours is started: in a process group of its own (a Ctrl-C at the terminal is the host's, and what
// the program starts is killed with it), with default signals whatever the host blocks or ignores.
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace zefuse {

// File descriptors of the new program, built up before the start. Failures of the system to allocate are ignored: the
// program then fails at its first read or write.
class SpawnFiles {
public:
  SpawnFiles() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnFiles() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnFiles(const SpawnFiles&) = delete;

  void open(int descriptor, const char* path, int flags) {
    posix_spawn_file_actions_addopen(&actions_, descriptor, path, flags, 0);
  }
  void duplicate(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
  void directory(const std::string& path) { posix_spawn_file_actions_addchdir_np(&actions_, path.c_str()); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

private:
  posix_spawn_file_actions_t actions_;
};

// command[0] is looked up in PATH unless it has a slash. Returns an errno (ENOENT: no such program) or 0 and sets
// `child`, whose group has the same number. Thread-safe.
int spawnInGroup(const std::vector<std::string>& command, const SpawnFiles& files, pid_t& child);

}  // namespace zefuse
