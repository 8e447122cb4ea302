// Operators without a lowering: zefuse.aten, with the reason.
#pragma once

#include "compiler/import/op.h"

namespace zefuse {

// `values`: each FX node's results. Throws ImportError when not even ATen can be called from a plan (an argument or
// result that a plan cannot hold). Results of the node that are not tensors (None) have a null value.
Values emitFallback(const fx::Graph& graph, const fx::Node& node, llvm::ArrayRef<Values> values, TensorBuilder& build,
                    llvm::StringRef reason);

}  // namespace zefuse
