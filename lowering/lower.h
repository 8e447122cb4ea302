// One zefuse.kernel to one SPIR-V module, for one target. The compiler's only door into lowering/.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lowering/targets.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/ArrayRef.h"

namespace zefuse {

class KernelOp;
class MatmulOp;
class ConvolutionOp;
class AttentionOp;
class AttentionGradientOp;

// The registers that the device's compiler would keep in memory; none: nobody here can tell.
using SpillCheck = std::function<std::optional<int64_t>(std::span<const uint32_t> spirv)>;
// The same of several kernels, which differ: one answer for each, in their order.
using SpillSurvey = std::function<std::vector<std::optional<int64_t>>(std::span<const std::vector<uint32_t>> kernels)>;

// What the schedule knows of a target. Constants come from named factories, so that equal targets make equal code.
struct TargetDescription {
  enum class Kind { cpu, intel_gpu };
  std::string name;  // "cpu", "dg2-g11": also the plan's and the cache's name of it
  Kind kind = Kind::cpu;
  int vector_width = 16;                 // lanes of explicit vectors in the kernel (SPIR-V allows 2, 3, 4, 8, 16)
  int64_t private_row_bytes = 16 << 10;  // a row value up to this size may be kept instead of recomputed
  // intel_gpu
  int subgroup_size = 0;  // of kernels that reduce or tile
  int max_group_size = 1;
  int64_t local_memory_bytes = 0;
  int64_t resident_items = 1;     // work-items that the largest variant runs at a time
  int64_t accumulator_bytes = 0;  // of a hardware thread's registers, that a product may fill
  bool f64 = true;
  MatrixEngine matrix;
  int64_t engine_accumulator_bytes = 0;  // as accumulator_bytes, on the matrix engine

  static TargetDescription cpu();
  // A product of gpuTargets(); none for another name.
  static std::optional<TargetDescription> intelGpu(std::string_view product);
};

struct KernelCheck {
  std::string error;  // "index_error", ...
  std::string message;
};

// Argument order: plan.fbs, table Launch.
struct LoweredKernel {
  std::string name;  // the entry point
  std::vector<uint32_t> spirv;
  std::vector<unsigned> symbols;  // graph symbols passed as i64, in order
  bool chunked = true;            // plan.fbs, Distribution
  mlir::AffineExpr extent;        // units of work, over graph symbols
  int64_t grain = 1;
  std::array<uint32_t, 3> group_size = {1, 1, 1};
  mlir::AffineExpr scratch_bytes;  // per group; null: none
  std::vector<KernelCheck> checks;
  std::string schedule;  // the choice and its reason, one line
};

// Called with each stage's text ("scheduled.mlir", "kernel.ll", "kernel.spvasm") when dumping.
using StageDump = std::function<void(std::string_view stage, std::string_view text)>;

// Fails with a diagnostic at the offending op ("zefuse.kernel ...: arith.foo on f80 has no SPIR-V lowering"). Never
// ends the process. Deterministic: the same kernel and target give the same bytes. Thread-safe for different
// MLIRContexts.
mlir::FailureOr<LoweredKernel> lowerKernel(KernelOp kernel, const TargetDescription& target,
                                           const StageDump& dump = nullptr);

// A library operation as a kernel, for targets without the library (GPUs). `layouts`: for each operand in order, then
// the result, the map from indices (and graph symbols) to the element offset in its buffer; all must be strided.
mlir::FailureOr<LoweredKernel> lowerMatmul(MatmulOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                           const TargetDescription& target, const StageDump& dump = nullptr);

mlir::FailureOr<LoweredKernel> lowerConvolution(ConvolutionOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                                const TargetDescription& target, const StageDump& dump = nullptr);

// softmax(scale * q @ k^T + mask) @ v as one kernel (scaled dot product attention), the scores never in memory. Shapes:
// q [batch..., M, D], k [batch..., N, D], v [batch..., N, E], mask [batch..., M, N] or none, result [batch..., M, E]; D
// and E constants. A batch dimension of k and v may divide q's (grouped queries); sizes of 1 in mask broadcast.
struct AttentionCall {
  mlir::RankedTensorType q, k, v, mask, result;  // mask: null without; floats are added, i1 keeps where true
  // [batch..., M], f32: the logarithm of each row's sum of exponentials, for the derivative. -inf: it sees no key.
  mlir::RankedTensorType log_sums;  // null without
  llvm::SmallVector<mlir::AffineMap> layouts =
      {};  // of q, k, v, mask if any, result, log_sums if any: as lowerMatmul's
  double scale = 1;
  bool causal = false;               // key j is seen by rows i >= j only
  bool empty_rows_are_zero = false;  // rows that see no key; else they are NaN
};
// Why lowerAttention refuses such a call, from its types alone; empty: it takes it, in any strided layouts.
std::string whyNoAttentionKernel(const AttentionCall& call, const TargetDescription& target);
// Diagnostics are about `op`.
mlir::FailureOr<LoweredKernel> lowerAttention(mlir::Operation* op, const AttentionCall& call,
                                              const TargetDescription& target, const StageDump& dump = nullptr);

// zefuse.attention with `kernel`; `layouts` as for lowerMatmul.
mlir::FailureOr<LoweredKernel> lowerAttention(AttentionOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                              const TargetDescription& target, const StageDump& dump = nullptr);

// A derivative of softmax(scale * q @ k^T + mask) @ v from its rows' log-sum-exps, the scores never in memory (Dao,
// "FlashAttention-2", 2023, section 3.1.2; without its atomics: one kernel for the queries' and one for the keys' and
// values'). With P the softmax, dP = grad @ v^T and dS = P * (dP - delta):
//   of the queries  scale * dS @ k
//   of the keys     scale * dS^T @ q, and of the values P^T @ grad; summed over the query heads that share a head
// Shapes as AttentionCall's: grad as its result, log_sums and delta (the rows' sums of grad * result) [batch..., M],
// f32. k and v have q's batches, but fewer heads (the dimension before the rows) may divide q's.
struct AttentionGradientCall {
  bool of_keys = false;  // and of the values: two results; else of the queries, one
  mlir::RankedTensorType q, k, v, grad, log_sums, delta, mask;  // mask: null without
  llvm::SmallVector<mlir::RankedTensorType, 2> results;
  llvm::SmallVector<mlir::AffineMap> layouts = {};  // of q, k, v, grad, log_sums, delta, mask if any, the results
  double scale = 1;
  bool causal = false;
};
// As whyNoAttentionKernel.
std::string whyNoAttentionGradient(const AttentionGradientCall& call, const TargetDescription& target);
mlir::FailureOr<LoweredKernel> lowerAttentionGradient(mlir::Operation* op, const AttentionGradientCall& call,
                                                      const TargetDescription& target, const StageDump& dump = nullptr);
mlir::FailureOr<LoweredKernel> lowerAttentionGradient(AttentionGradientOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                                      const TargetDescription& target, const StageDump& dump = nullptr);

// lower(target), and again with half the registers for accumulators while `spills` finds that there are too few: three
// times at most. The schedule's line then says what was given up, and what still spills. A null check asks nobody.
mlir::FailureOr<LoweredKernel>
lowerWithoutSpills(const TargetDescription& target, const SpillCheck& spills,
                   llvm::function_ref<mlir::FailureOr<LoweredKernel>(const TargetDescription&)> lower);

// Whether one kernel can hold these ops, for the fusion pass: see lowering/schedule/fusible.h.
}  // namespace zefuse
