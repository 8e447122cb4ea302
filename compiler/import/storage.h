// In whose memory a node's value lies, by the operators' schemas, and where in it: what as_strided and aliases need.
#pragma once

#include <optional>

#include "compiler/import/fx_graph.h"

namespace zefuse {

// The node that a call's results are views of, if they are.
std::optional<unsigned> viewedBy(const fx::Node& node);

// The node whose memory a node's value lies in. Operators that copy when they must (contiguous, reshape, to) count as
// copies: functional graphs have none of them.
unsigned storageOf(const fx::Graph& graph, unsigned index);

// Likewise, but one tensor of the same dtype: the result of an operator with several, not the operator, and the result
// of a view as another dtype.
unsigned tensorBehind(const fx::Graph& graph, unsigned index);

// Where a node's value begins in eager's storage, in elements. What tracing has (meta.tensor.offset) is that, but
// behind as_strided_scatter: eager copies the whole storage of its argument there, tracing only the argument.
mlir::AffineExpr eagerOffset(const fx::Graph& graph, unsigned index);

// Whether as_strided, which may reach anywhere in a storage, is among the views that made a value.
bool hasAsStrided(const fx::Graph& graph, unsigned index);

}  // namespace zefuse
