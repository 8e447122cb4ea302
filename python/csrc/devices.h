// Targets and devices as plain data.
#pragma once

#include <pybind11/pybind11.h>

namespace zefuse::python {

void defineDeviceFunctions(pybind11::module_& module);

}  // namespace zefuse::python
