// Products, convolutions and attention as kernels, for targets whose library does not take them.
#pragma once

#include "lowering/schedule/core/context.h"
#include "lowering/schedule/products/attention_call.h"

namespace zefuse {

// Why a kernel for `target` cannot hold this product (analysis/product_form.h), from its types alone; empty: it can.
std::string whyNoProductKernel(mlir::Operation* op, const TargetDescription& target);
ProductLimits productLimits(const TargetDescription& target);
// A kernel with a product, for which there is no such reason.
void scheduleProduct(const ScheduleContext& context);
void scheduleCpuMatmul(const ScheduleContext& context);
void scheduleGpuMatmul(const ScheduleContext& context);
void scheduleGpuConvolution(const ScheduleContext& context);

mlir::FailureOr<ScheduledKernel> scheduleAttention(mlir::Operation* op, const AttentionCall& call,
                                                   const TargetDescription& target);
mlir::FailureOr<ScheduledKernel> scheduleAttentionGradient(mlir::Operation* op, const AttentionGradientCall& call,
                                                           const TargetDescription& target);

}  // namespace zefuse
