// What a Python function's code does, as a hash that another process can compare.
#pragma once

#include <pybind11/pybind11.h>
#include <string>

namespace zefuse::python {

// 32 hexadecimal digits of a SHA-256 over all that runs: instructions, names, flags, exception table and constants, of
// which code inside it is part; not the file and its lines. The same in every process of one version of Python. Raises
// TypeError for other objects than code, and what a constant's repr raises. Needs the GIL.
// (zefuse.precompile.descriptions compares hundreds at a first call, where the same in Python took a third of the
// time.)
std::string codeHash(const pybind11::handle& code);

}  // namespace zefuse::python
