// Runs an outside tool within limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/cancel_check.h"
#include "common/base/status.h"

namespace zefuse {

struct ToolOutput {
  std::string text;  // stdout and stderr, as they came
};

struct ToolLimits {
  std::chrono::milliseconds deadline{60'000};
  uint64_t memory_bytes = 0;   // of each process of the tool, address space kept in reserve apart; 0: no limit
  std::string directory;       // where it runs; empty: here
  bool any_exit_code = false;  // an exit code other than 0, or one that the host reaped, is no failure
  CancelCheck cancelled;
};

// Runs `command` (command[0] is looked up in PATH) and waits. Its process group is killed at the deadline or when it is
// cancelled. Errors name the tool, how it ended (exit code, signal, deadline), the most memory it held, what it printed
// and a command line that repeats it:
//   not_found  the tool is not installed
//   deadline   it was killed: late
//   cancelled  it was killed: nobody waits for it any more
//   device     it failed or crashed
// Thread-safe, and meant to be called by several threads at a time. Leaves no child behind.
Result<ToolOutput> runTool(const std::vector<std::string>& command, const ToolLimits& limits);

// For a POSIX shell.
std::string commandLine(const std::vector<std::string>& command);

}  // namespace zefuse
