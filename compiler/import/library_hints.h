// Marks what a library can do itself, for fuseLibraryEpilogues (compiler/fuse).
#pragma once

#include "compiler/import/op.h"

namespace zefuse {

// Sets zefuse.activation on the loop of an operator that is one of oneDNN's activations (docs/ir.md).
void markActivation(const Op& op, const Values& results);

}  // namespace zefuse
