// Runs an outside tool with a deadline.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace zefuse {

struct ToolOutput {
  std::string text;  // stdout and stderr, as they came
};

// Runs `command` (command[0] is looked up in PATH) and waits. Its process group is killed at the deadline. Errors name
// the tool, how it ended (exit code, signal, deadline), what it printed and a command line that repeats it:
//   not_found  the tool is not installed
//   deadline   it was killed
//   device     it failed or crashed
// Thread-safe. Leaves no child behind.
Result<ToolOutput> runTool(const std::vector<std::string>& command, std::chrono::milliseconds deadline);

// For a POSIX shell.
std::string commandLine(const std::vector<std::string>& command);

}  // namespace zefuse
