// Reads an FX graph module's Python objects, each needed attribute once. Needs Python and pybind11, not torch's
// libraries.
#pragma once

#include <pybind11/pybind11.h>

#include "compiler/import/importer.h"

namespace zefuse {

struct FxGraph {
  fx::Graph graph;
  std::vector<pybind11::object> constants;  // tensors held by the module, in the order of fx::Node::constant
};

// `graph_module`: a torch.fx.GraphModule whose nodes carry meta["val"] (AOTAutograd, make_fx, export). The GIL must be
// held. Throws ImportError, or pybind11::error_already_set when Python itself fails.
FxGraph readGraph(mlir::MLIRContext& context, const pybind11::object& graph_module);

struct ImportedGraph {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<pybind11::object> constants;  // the module's inputs of kind "constant", after the placeholders
};

ImportedGraph importGraph(mlir::MLIRContext& context, const pybind11::object& graph_module,
                          const ImportOptions& options);

}  // namespace zefuse
