// zefuse._C.cache_*: looking after the cache folder. Plain functions on a folder's name; errors as everywhere.
#pragma once

#include <pybind11/pybind11.h>

namespace zefuse::python {

void defineCacheFunctions(pybind11::module_& module);

}  // namespace zefuse::python
