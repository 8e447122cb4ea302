// Convolutions by the library of a GPU's vendor: what a bound launch asks for.
#pragma once

#include <optional>

#include "common/ze_extension/convolution.h"
#include "runtime/executor/binding.h"

namespace zefuse::executor {

// The convolution of these values, where it has at least `work` multiplications and the library can describe it.
std::optional<ze_extension::ConvolutionDesc> libraryConvolution(const Binding& binding,
                                                                const plan::ConvolutionT& convolution, int64_t work);

// The addresses of the plan's input, weight, bias, what is added (null: none) and out in the library's words.
ze_extension::ConvolutionOperands libraryOperands(plan::ConvolutionKind kind, void* input, void* weight,
                                                  const void* bias, const void* residual, void* out);

}  // namespace zefuse::executor
