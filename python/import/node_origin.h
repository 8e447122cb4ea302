// Where in the user's program an FX node comes from, as its metadata (`node.meta`) says. The GIL is held.
#pragma once

#include <pybind11/pybind11.h>

#include "compiler/import/fx_graph.h"

namespace zefuse {

// The innermost frame outside torch itself: `File "model.py", line 12, in forward`.
void readLocation(const pybind11::dict& metadata, fx::Node& into);
// The innermost module on the stack, of a backward node its forward's: ("L['self'].encoder.0", class) -> "encoder.0".
void readModule(const pybind11::dict& metadata, fx::Node& into);

}  // namespace zefuse
