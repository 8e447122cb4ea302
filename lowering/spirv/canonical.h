// The same module with ids in order of appearance.
//
// LLVM 22's SPIR-V back end keeps the table from basic blocks to label ids in a static object, keyed by the address of
// the MachineFunction and never cleared. When a later module's function lies at a used address its blocks get labels of
// the earlier module: ids that are out of bounds, taken, or just different from run to run (seen in 6 % of modules of
// one process). All other ids are right. So labels are told from values by where they stand, given fresh ids, and then
// everything is numbered anew: equal kernels give equal bytes. Two labels
// of one function with the same id cannot be told apart: that is an error here, and the caller runs the back end again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zefuse {
// An error message when the words are no SPIR-V module, or hold an instruction whose labels are not known here.
std::optional<std::string> canonicaliseIds(std::vector<uint32_t>& words);
}  // namespace zefuse
