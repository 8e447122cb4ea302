// Library calls of every kind, prepared together.
#pragma once

#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "runtime/primitives/attention/attention.h"
#include "runtime/primitives/attention/attention_gradient.h"
#include "runtime/primitives/convolution/convolution.h"
#include "runtime/primitives/matmul/grouped_matmul.h"
#include "runtime/primitives/matmul/matmul.h"
#include "runtime/recurrence/recurrence.h"

namespace zefuse::executor {

using CallDesc =
    std::variant<primitives::MatmulDesc, primitives::ConvolutionDesc, primitives::AttentionDesc,
                 primitives::AttentionGradientDesc, primitives::GroupedMatmulDesc, recurrence::RecurrenceDesc>;

// One result per descriptor, in order, each as the kind's own get() gives it: for the calling thread's team. Those that
// are not in the cache yet are made on as many threads as it has, each once: oneDNN generates code for half a
// millisecond to three per call, and a model has tens of them.
std::vector<Result<std::shared_ptr<const primitives::Primitive>>> getAll(std::span<const CallDesc> descs);

}  // namespace zefuse::executor
