// What an imported graph is, whoever traced it: the form in which a graph of torch.compile and one of torch.export can
// be compared, which have their inputs in different orders and under different names.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

// Two graphs compute the same when inputs, outputs and text are equal; a plan of one then runs the other's calls, its
// inputs put in order by `arguments` and `symbols`. Left out: names, source lines, the order of the inputs and of
// operations that do not depend on each other, inputs that nobody reads. Parameters and constants of the module are
// one kind ("static"): a plan takes both as inputs whose packed forms it may keep.
struct GraphIdentity {
  std::vector<std::string> inputs;   // "static f32[16, 8]", "f32[s0, 8]", with strides where not row-major
  std::vector<std::string> outputs;  // "f32[s0, 8]", with what it is a view of or shares memory with
  std::string operations;            // "linalg.generic 12, zefuse.matmul 3": for people
  std::string text;                  // the operations themselves

  std::vector<int64_t> arguments;  // for each of `inputs`: its number among the graph's inputs (zefuse.inputs)
  std::vector<int64_t> symbols;    // for each symbol: the number of the integer input that is it; -1: from a tensor

  // Inputs that nobody reads, as `inputs` would say them, with their numbers: no part of what the graph is, but its
  // plan may want a tensor there. Those with sizes that nothing else mentions are left out.
  std::vector<std::pair<std::string, int64_t>> unread;
};

// Of a stage-1 module (docs/ir.md), which is left as it is. Deterministic. Thread-safe for different contexts.
GraphIdentity identify(mlir::ModuleOp module);

}  // namespace zefuse
