// zefuse._C.cache_load, cache_path and cache_store: entries of Python's own kinds. Plain functions on a folder's name;
// errors as everywhere.
#pragma once

#include <pybind11/pybind11.h>

namespace zefuse::python {

void defineCacheFunctions(pybind11::module_& module);

}  // namespace zefuse::python
