// Packages from Python: sections to one file, and a file back to a compiled graph with its weights.
#pragma once

#include <pybind11/pybind11.h>

#include "python/csrc/compiled_graph.h"
#include "runtime/package/package.h"

namespace zefuse::python {

// `sections`: name to bytes (any buffer). Raises what zefuse.errors names.
void writePackage(const std::string& path, const pybind11::dict& sections);

// Native code of a graph's kernels for `targets` (runtime/package/ahead.h) as sections: name to bytes. `progress`:
// None, or called with (kernel, target, seconds, done, all); returning False ends the work. What it raises comes out.
pybind11::dict nativeSections(const pybind11::bytes& plan, const std::vector<std::string>& targets,
                              const ExecutableOptions& options, const pybind11::object& progress);

// A package of a file, mapped; or a copy of one in memory (contiguous bytes), which need not be aligned.
std::shared_ptr<package::Reader> openPackage(const std::string& path);
std::shared_ptr<package::Reader> copyPackage(const pybind11::buffer& bytes);

// {"plans": [(graph, [weight name, user number or None (a constant) per input], [("user"|"weight"|"mutates", ...) per
// output], a function that checks the user's list of arguments, or None)],
// "weights": {name: tensor}, "in_spec", "out_spec", "check": a function that compares the weights' hash}. The tensors
// lie in the reader's memory; writing to one changes this process' copy. `place`: where the graphs' tensors lie.
pybind11::dict loadPackage(const std::shared_ptr<package::Reader>& reader, const ExecutableOptions& options,
                           const TorchPlace& place);

}  // namespace zefuse::python
