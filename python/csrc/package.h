// Packages from Python: a compiled graph with its weights to one file, and back.
#pragma once

#include <pybind11/pybind11.h>

#include "python/csrc/compiled_graph.h"

namespace zefuse::python {

// `weights`: name to tensor. `convention`: JSON, returned as it is by loadPackage. Raises what zefuse.errors names.
void writePackage(const std::string& path, const CompiledGraph& graph, const pybind11::dict& weights,
                  const std::string& convention);

// (graph, {name: tensor}, convention). The tensors lie in the mapped file; writing to one changes this process' copy.
pybind11::tuple loadPackage(const std::string& path, const ExecutableOptions& options);

}  // namespace zefuse::python
