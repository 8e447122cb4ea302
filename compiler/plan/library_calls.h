// What a plan says of a call of a library: oneDNN's on the CPU, and those that a GPU's vendor's may make in place of a
// kernel.
#pragma once

#include <memory>
#include <optional>

#include "common/plan/plan_generated.h"
#include "compiler/plan/values.h"
#include "lowering/dialect/Zefuse.h"

namespace zefuse {

// A kernel's result as one call of the device's library, where that is there. One of the two is set.
struct VendorCall {
  std::unique_ptr<plan::MatmulT> product;
  std::unique_ptr<plan::ConvolutionT> convolution;
  int64_t work;  // multiplications from which on the library takes it

  bool inTf32() const { return product ? product->tf32_math : convolution->tf32_math; }
};

// Tensors of the calls become values of `values`, which it does not own.
class LibraryCalls {
public:
  LibraryCalls(PlanValues& values, unsigned num_symbols) : values_(values), num_symbols_(num_symbols) {}

  // Of operations whose results are placed already.
  std::unique_ptr<plan::MatmulT> product(MatmulOp op);
  std::unique_ptr<plan::ConvolutionT> convolution(ConvolutionOp op);
  std::unique_ptr<plan::AttentionT> attention(AttentionOp op);
  std::unique_ptr<plan::AttentionGradientT> attentionGradient(AttentionGradientOp op);

  // Of a kernel that was made for the vendor's library too (zefuse.library), whose results are placed. Nothing: it was
  // not, or a tensor of it lies as the library does not want it.
  std::optional<VendorCall> vendorCall(KernelOp kernel);

private:
  bool isStrided(mlir::Value value);
  template <typename Product> Product productOf(KernelOp kernel);
  std::unique_ptr<plan::MatmulT> vendorProduct(KernelOp kernel, MatmulOp product);
  std::unique_ptr<plan::ConvolutionT> vendorConvolution(KernelOp kernel, ConvolutionOp convolution);
  std::unique_ptr<plan::MatmulT> productAlone(MatmulOp op);
  std::unique_ptr<plan::ConvolutionT> convolutionAlone(ConvolutionOp op);
  template <typename Call> std::vector<std::unique_ptr<plan::PostOpT>> postOps(Call op);

  PlanValues& values_;
  unsigned num_symbols_;
};

}  // namespace zefuse
