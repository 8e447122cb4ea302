// The same module with ids in order of appearance.
//
// LLVM 22's SPIR-V back end keeps the table from basic blocks to label ids in a static object, keyed by the address of
// the MachineFunction and never cleared. emit.cpp therefore runs it in a child process, whose table is empty. Labels
// are still told from values by where they stand, and everything is numbered anew: equal kernels give equal bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zefuse {
// An error message when the words are no SPIR-V module, or hold an instruction whose labels are not known here.
std::optional<std::string> canonicaliseIds(std::vector<uint32_t>& words);
}  // namespace zefuse
