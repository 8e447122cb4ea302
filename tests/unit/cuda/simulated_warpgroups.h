// wgmma on the host, for simulated_groups.cpp: written from the PTX ISA's text, not from what our kernels do.
//
// A product's sums are tokens (NaNs with a number) until they are waited for, so who reads them too early gets NaN. Its
// operands in local memory are read twice, when it is asked for and as late as a wait lets it: they must be the same,
// and bytes that asynchronous copies wrote must have been published to the asynchronous proxy by who copied them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "llvm/IR/Module.h"

namespace zefuse::cuda::testing {

// Before a group begins.
void resetWarpgroups();
// An asynchronous copy of the current item's wrote these 16 bytes.
void noteCopied(const std::byte* to);

// Inline assembly becomes calls of functions of this file. Returns what is not simulated; empty: nothing.
std::string replaceAssembly(llvm::Module& module);

}  // namespace zefuse::cuda::testing
