// Programs of ours that a library starts: what may crash or hang runs in one of them.
#pragma once

#include <string>

namespace zefuse {

// The path of the program of this name beside our libraries, or where this build puts them (for test programs, which
// are linked elsewhere in it). Whether it is there shows when it is started. Thread-safe.
std::string companionProgram(const char* name);

}  // namespace zefuse
