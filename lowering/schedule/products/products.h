// Products, convolutions and attention as kernels, for targets whose library does not take them.
#pragma once

#include "lowering/schedule/core/context.h"
#include "lowering/schedule/products/attention_gradient_call.h"

namespace zefuse {

// Why a kernel for `target` cannot hold this product (analysis/product_form.h), from its types alone; empty: it can.
std::string whyNoProductKernel(mlir::Operation* op, const TargetDescription& target);
ProductLimits productLimits(mlir::Operation* op, const TargetDescription& target);
// A kernel with a product, for which there is no such reason.
void scheduleProduct(const ScheduleContext& context);
void scheduleCpuMatmul(const ScheduleContext& context);
void scheduleCpuConvolution(const ScheduleContext& context);
void scheduleGpuMatmul(const ScheduleContext& context);
void scheduleGpuConvolution(const ScheduleContext& context);
void scheduleGpuAttention(const ScheduleContext& context);

// The first two for attention on a target with kernels for products; of its tile, how many queries multiply each
// element that is loaded.
std::string whyNoGpuAttention(AttentionOp op, const TargetDescription& target);
int64_t queriesOfTile(AttentionOp op, const TargetDescription& target);

mlir::FailureOr<ScheduledKernel> scheduleAttentionGradient(mlir::Operation* op, const AttentionGradientCall& call,
                                                           const TargetDescription& target);

}  // namespace zefuse
