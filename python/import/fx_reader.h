// Reads an FX graph module's Python objects, each needed attribute once. Needs Python and pybind11: no library of
// torch, no MLIR.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "compiler/import/fx_graph.h"

namespace zefuse {

struct FxGraph {
  fx::Graph graph;
  std::vector<pybind11::object> constants;  // tensors held by the module, in the order of fx::Node::constant: the
                                            // imported module's inputs of kind "constant", after the placeholders
};

// `graph_module`: a torch.fx.GraphModule whose nodes carry meta["val"] (AOTAutograd, make_fx, export). `context` has
// the graph's sizes. The GIL must be held. Throws ImportError, or pybind11::error_already_set when Python itself fails.
FxGraph readGraph(mlir::MLIRContext& context, const pybind11::object& graph_module);

}  // namespace zefuse
