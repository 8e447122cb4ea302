// What every schedule works on: a kernel, what was decided about it, and the function that is being written.
#pragma once

#include <utility>

#include "common/toolchain/target_description.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/schedule/core/batch.h"
#include "lowering/schedule/core/decisions.h"
#include "lowering/schedule/core/lowered_kernel.h"
#include "lowering/schedule/core/strategy.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

struct ScheduledKernel {
  mlir::OwningOpRef<mlir::ModuleOp> module;  // holds one func.func, named as the kernel
  LoweredKernel launch;                      // everything but the SPIR-V words
  unsigned index_bits = 64;                  // of the module's indices, once they are integers (index_width.h)
};

// What the target-specific schedules fill in: the function's body and the launch's extent, grain and group size.
struct ScheduleContext {
  KernelGraph& graph;
  Domain& domain;
  Strategy& strategy;
  const TargetDescription& target;
  Evaluator& evaluator;
  mlir::ModuleOp module;
  mlir::func::FuncOp function;
  const Batch& batch;
  llvm::MutableArrayRef<mlir::Value> outputs;  // pointers, of the current set
  mlir::Value scratch;                         // null without
  bool in_place;                               // some outputs lie where inputs do: no element may be computed twice
  LoweredKernel& launch;
  Decisions& decisions;

  mlir::OpBuilder& builder() const { return evaluator.builder(); }
  // A work-item function of OpenCL, as an index.
  mlir::Value workItem(llvm::StringRef function_name, unsigned dimension = 0) const;
  void storeOutput(const DomainOutput& output) const;
  // In place everything is read before anything is written.
  void storeOutputs(llvm::ArrayRef<const DomainOutput*> outputs) const;
  void storeAllOutputs() const;
  // The outputs with column dims that the stage of this level stores; at the last level those that none does.
  llvm::SmallVector<const DomainOutput*> columnOutputs(unsigned level) const;
  // Binds the dims of a row-major space to the coordinates of `position`.
  void bindPosition(llvm::ArrayRef<unsigned> dims, mlir::Value position) const;
  // A row of a kernel with scans: steps along the scanned dim and stores all outputs at each step.
  void scanRow(unsigned lanes) const;
  // Combines two values of a reduction.
  mlir::Value combine(const Instance& instance, mlir::Value lhs, mlir::Value rhs) const;
  // A vector to one element of it: halves, quarters, ...; always the same tree.
  mlir::Value combineLanes(const Instance& instance, mlir::Value vector) const;
  // The reduction's result from its reduced elements: with its init, in the result's type.
  mlir::Value finish(const Instance& instance, mlir::Value reduced) const;
};

// This group's units of a chunked launch: [first, last). `unit_cost` as in Strategy.
std::pair<mlir::Value, mlir::Value> shareOfGroup(const ScheduleContext& context, mlir::Value group,
                                                 mlir::AffineExpr units, double unit_cost);

// A count by which units are divided. A part of a launch may have none, while others' groups run.
mlir::Value atLeastOne(const ScheduleContext& context, mlir::AffineExpr count);

}  // namespace zefuse
