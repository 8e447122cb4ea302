// A process that gets no more large blocks of memory, for tests of what happens then.
#pragma once

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace zefuse::test {

// While it lives, blocks of 40 MiB and more are refused; small ones come from what the process has.
class LittleMemory {
public:
  LittleMemory() {
    getrlimit(RLIMIT_DATA, &before_);
    std::ifstream status("/proc/self/status");
    rlim_t held = 0;
    for (std::string line; std::getline(status, line);)
      if (line.rfind("VmData:", 0) == 0)
        held = std::stoull(line.substr(7)) << 10;
    const rlimit little{held + (rlim_t{24} << 20), before_.rlim_max};
    setrlimit(RLIMIT_DATA, &little);
  }
  ~LittleMemory() { setrlimit(RLIMIT_DATA, &before_); }
  LittleMemory(const LittleMemory&) = delete;

private:
  rlimit before_{};
};

}  // namespace zefuse::test
