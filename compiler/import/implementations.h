// Who carries an operator out, where a measurement chose (`zefuse tune`): the cost model's answer, eager's operator, a
// kernel of our own, or one of the ways that the CPU's library has.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/import/fx_graph.h"
#include "compiler/tuning/tuned_kernels.h"
#include "mlir/IR/Operation.h"

namespace zefuse {

// The numbers are those of a tuned row, and stay. From `blocked` on they are plan::LibraryWay's names.
enum class Implementation : uint8_t {
  modelled,
  eager,
  kernel,
  blocked,
  gemm,
  inner_product,
  direct,
  by_product,
  padded,
  split,
  blas,
  panels,
  winograd
};

// The decision's name in a tuned row.
inline constexpr const char* implementation_decision = "implementation";

llvm::StringRef nameOf(Implementation implementation);  // "by_product"
std::string wordsFor(Implementation implementation);    // "the library's convolution by a product"

// What an operator computes: its name, constants, and its tensors' types, sizes, strides and whether they are
// parameters; no names and lines. `parameters`: the graph's nodes that are.
std::string operatorKey(const fx::Graph& graph, const fx::Node& node, llvm::ArrayRef<bool> parameters);

// Whether eager's operator could stand in for what we make of the node: results of its own, no effect, no random
// numbers.
bool mayRunInEager(const fx::Node& node);

// The measured implementation; nothing: the cost model decides.
std::optional<Implementation> implementationOf(const TunedKernel& row);

// "eager's operator, 12.5 µs instead of 40 (zefuse tune)"
std::string whyMeasured(Implementation implementation, const TunedKernel& row);

// Marks the products and convolutions that an operator became, in regions too; `first`: the first of its operations.
void markImplementation(llvm::ArrayRef<mlir::Operation*> operations, Implementation implementation,
                        const TunedKernel& row);

// What there is to try for the operations that an operator became.
std::vector<Implementation> implementationsFor(const fx::Node& node, llvm::ArrayRef<mlir::Operation*> operations);

}  // namespace zefuse
