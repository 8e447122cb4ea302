// Products, convolutions and attention as kernels, for targets whose library does not take them.
#pragma once

#include "lowering/schedule/core/context.h"
#include "lowering/schedule/products/attention_call.h"

namespace zefuse {

// zefuse.matmul where no library computes it. `layouts`: of its operands in order, then of the result.
mlir::FailureOr<ScheduledKernel> scheduleMatmul(MatmulOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                                const TargetDescription& target);
mlir::FailureOr<ScheduledKernel> scheduleConvolution(ConvolutionOp op, llvm::ArrayRef<mlir::AffineMap> layouts,
                                                     const TargetDescription& target);
mlir::FailureOr<ScheduledKernel> scheduleAttention(mlir::Operation* op, const AttentionCall& call,
                                                   const TargetDescription& target);
mlir::FailureOr<ScheduledKernel> scheduleAttentionGradient(mlir::Operation* op, const AttentionGradientCall& call,
                                                           const TargetDescription& target);

}  // namespace zefuse
