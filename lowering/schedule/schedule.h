// Stage 2 to stage 3: one kernel to one scheduled function.
#pragma once

#include <optional>
#include <string>

#include "compiler/dialect/Zefuse.h"
#include "lowering/lower.h"
#include "lowering/schedule/batch.h"
#include "lowering/schedule/strategy.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace zefuse {

struct ScheduledKernel {
  mlir::OwningOpRef<mlir::ModuleOp> module;  // holds one func.func, named as the kernel
  LoweredKernel launch;                      // everything but the SPIR-V words
};

// Emits diagnostics at the offending op.
mlir::FailureOr<ScheduledKernel> scheduleKernel(KernelOp kernel, const TargetDescription& target);

// Why scheduleKernel finds no iteration space for the kernel and its layouts; no emission.
std::optional<std::string> whyNotScheduled(KernelOp kernel);

// Whether the CPU's kernel may store `result` where `input` lies (numbers in the body; equal layouts are the caller's
// to see to): every element is computed once, and read where it is written only.
bool mayWriteInPlace(KernelOp kernel, unsigned input, unsigned result);

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

  mlir::OpBuilder& builder() const { return evaluator.builder(); }
  // A work-item function of OpenCL, as an index.
  mlir::Value workItem(llvm::StringRef function_name, unsigned dimension = 0) const;
  void storeOutput(const DomainOutput& output) const;
  // CPU: the outputs with column dims that the stage of this level stores.
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

// Opens a loop over the vectors number first..last of a dim, binds the dim to each one's lanes and calls `body` with
// its number; a symbolic size gets a second loop, for the vector whose last lanes repeat.
void overBlocks(const ScheduleContext& context, unsigned dim, mlir::Value first, mlir::Value last,
                llvm::function_ref<void(mlir::Value)> body);
// The reductions and outputs of the vectors of rows number first..last, Strategy::strip at a time. `memory`: see
// makeStripMemory.
void scheduleStrips(const ScheduleContext& context, mlir::Value memory, mlir::Value first, mlir::Value last);
// Private memory for one strip, in the function's entry block.
mlir::Value makeStripMemory(const ScheduleContext& context);

void scheduleScatter(const ScheduleContext& context);  // both targets
void scheduleSort(const ScheduleContext& context);
void scheduleGpuSort(const ScheduleContext& context);

// zefuse.matmul where no library computes it. `layouts`: of its operands in order, then of the result.
mlir::FailureOr<ScheduledKernel> scheduleMatmul(MatmulOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                                const TargetDescription& target);
mlir::FailureOr<ScheduledKernel> scheduleConvolution(ConvolutionOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                                     const TargetDescription& target);
mlir::FailureOr<ScheduledKernel> scheduleAttention(mlir::Operation* op, const AttentionCall& call,
                                                   const TargetDescription& target);
mlir::FailureOr<ScheduledKernel> scheduleAttentionGradient(mlir::Operation* op, const AttentionGradientCall& call,
                                                           const TargetDescription& target);

void scheduleCpu(const ScheduleContext& context);
void scheduleGpu(const ScheduleContext& context);

}  // namespace zefuse
