// Many calls of one graph with mostly the same tensors: a language model's weights and cache, of which each token's
// step has hundreds. Looking at each of them costs a call that has read its weights in between a tenth of a
// millisecond and more, since nothing of them is in a cache of the processor any more.
#pragma once

#include <memory>
#include <vector>

#include <pybind11/pybind11.h>

#include "python/csrc/compiled_graph.h"

namespace zefuse::python {

// Calls take `open` arguments, which stand between `before` and `after`. What is bound is looked at once: as long as
// this object lives its memory stays, as it lay then; a weight that gets other memory is not seen. Writes to the memory
// are, but for packed copies of weights that library calls read. The graph must outlive this object.
class BoundCall {
public:
  // Nothing where a graph's calls cannot be bound: for a GPU, of a package, with lazy tensors or numbers among what is
  // to be bound.
  static std::unique_ptr<BoundCall> bind(CompiledGraph& graph, const pybind11::list& before, size_t open,
                                         const pybind11::list& after);

  // As CompiledGraph::call; the list is not emptied.
  pybind11::tuple call(const pybind11::list& arguments);

private:
  BoundCall(CompiledGraph& graph, Arguments bound, size_t first, size_t open)
      : graph_(graph), bound_(std::move(bound)), first_(first), open_(open) {}

  CompiledGraph& graph_;
  Arguments bound_;
  size_t first_, open_;  // where the open ones stand, and how many
  bool in_use_ = false;  // guarded by the GIL
};

}  // namespace zefuse::python
