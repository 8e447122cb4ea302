// What Python has to do anyway, done while its thread waits for one that compiles.
#pragma once

#include <pybind11/pybind11.h>

namespace zefuse::python {

// Replaces what meanwhile() calls.
void setMeanwhile(pybind11::object function);
// With the GIL. Raises what the function does.
void meanwhile();

}  // namespace zefuse::python
