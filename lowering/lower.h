// One zefuse.kernel to one SPIR-V module, for one target. The compiler's only door into lowering/.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/toolchain/target_description.h"
#include "lowering/schedule/core/lowered_kernel.h"
#include "lowering/schedule/products/attention_gradient_call.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/spill_survey.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/ArrayRef.h"

namespace zefuse {

class KernelOp;
class MatmulOp;
class AttentionGradientOp;
struct ProductLimits;  // analysis/product_form.h

// Called with each stage's text ("scheduled.mlir", "kernel.ll", "kernel.spvasm") when dumping.
using StageDump = std::function<void(std::string_view stage, std::string_view text)>;

// The target of this name, of a pass's option. Where there is none, `op` gets the error, and the pass fails.
std::optional<TargetDescription> targetNamed(mlir::Operation* op, llvm::StringRef name);

// Starts what the first kernel would wait for; returns at once. Thread-safe.
void prepareToLower();

// Fails with a diagnostic at the offending op ("zefuse.kernel ...: arith.foo on f80 has no SPIR-V lowering"). Never
// ends the process. Deterministic: the same kernel and target give the same bytes. Thread-safe for different
// MLIRContexts.
// `tuning`: what was measured, in place of the cost model's choice (schedule/core/decisions.h); what is no choice of
// this kernel is passed over.
mlir::FailureOr<LoweredKernel> lowerKernel(KernelOp kernel, const TargetDescription& target,
                                           const StageDump& dump = nullptr, const Tuning& tuning = {});

// Why no kernel for `target` holds this product (analysis/product_form.h), from its types alone; empty: one does, with
// what stands around it (analysis/fusible.h).
std::string whyNoProductKernel(mlir::Operation* op, const TargetDescription& target);
// Whether the CPU's library multiplies numbers of f16 as f32 (a processor without instructions for f16) in less time
// than a kernel of ours, and than eager.
bool libraryMultipliesF16(MatmulOp op);
// Of sizes that are not known, as of 256.
double multiplications(MatmulOp op);
// Whether the right side is a transposed view, as a linear layer's weight.
bool rightLiesAlongSum(MatmulOp op);
ProductLimits productLimits(mlir::Operation* op, const TargetDescription& target);

// Why lowerAttentionGradient refuses such a call, from its types alone; empty: it takes it, in any strided layouts.
std::string whyNoAttentionGradient(const AttentionGradientCall& call, const TargetDescription& target);
// Whether the three derivatives that it takes are better one launch (AttentionGradientCall::all) than two.
bool joinsAttentionGradients(const AttentionGradientCall& call, const TargetDescription& target);
// Diagnostics are about `op`.
mlir::FailureOr<LoweredKernel> lowerAttentionGradient(mlir::Operation* op, const AttentionGradientCall& call,
                                                      const TargetDescription& target, const StageDump& dump = nullptr);
// `layouts`: for each operand in order, then the results, the map from indices (and graph symbols) to the element
// offset in its buffer; all must be strided.
mlir::FailureOr<LoweredKernel> lowerAttentionGradient(AttentionGradientOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                                      const TargetDescription& target, const StageDump& dump = nullptr);

// lower(target), and again with half the registers for accumulators while `spills` finds that there are too few: three
// times at most. The schedule's record then has what was given up, and what still spills. A null check asks nobody.
mlir::FailureOr<LoweredKernel>
lowerWithoutSpills(const TargetDescription& target, const SpillCheck& spills,
                   llvm::function_ref<mlir::FailureOr<LoweredKernel>(const TargetDescription&)> lower);

// Whether one kernel can hold these ops, for the fusion pass: see lowering/analysis/fusible.h.
}  // namespace zefuse
