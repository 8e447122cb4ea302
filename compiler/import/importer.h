// Stage 1: an FX graph as MLIR (docs/ir.md, "Stage 1"). python/import reads graph modules into such graphs.
#pragma once

#include "compiler/import/fx_graph.h"
#include "compiler/import/import_options.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace zefuse {

// The same module whatever the target: what not every target takes stands there in several forms (zefuse.alternatives).
// Builds the module and verifies it (MLIR's verifier and the stage-1 contract). The context must have zefuse's dialects
// loaded. Throws ImportError naming the node when the graph cannot be expressed; an operator without a lowering is not
// an error but a zefuse.aten with its reason. Thread-safe for different contexts.
mlir::OwningOpRef<mlir::ModuleOp> importGraph(mlir::MLIRContext& context, const fx::Graph& graph,
                                              const ImportOptions& options);

}  // namespace zefuse
