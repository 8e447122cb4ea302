// A kernel for one library operation (zefuse.matmul, ...) where no library computes it: its function, and its operands
// as strided tensors in memory.
#pragma once

#include "lowering/schedule/core/context.h"
#include "lowering/schedule/core/index_math.h"

namespace zefuse {

struct StridedTensor {
  mlir::Value pointer;
  mlir::Type element;
  llvm::SmallVector<mlir::AffineExpr> sizes, strides;  // over graph symbols
  mlir::AffineExpr offset;
};

class CallKernel {
public:
  // `operands` in the order of plan.fbs, Launch: inputs, then outputs (the last `outputs`). `layouts`: indices to
  // element offset, as in zefuse.kernel. The function's body is open at builder(). Check ok() first: a layout may not
  // be strided.
  CallKernel(mlir::Operation* op, llvm::StringRef name, mlir::TypeRange operands, unsigned outputs,
             llvm::ArrayRef<mlir::AffineMap> layouts);
  bool ok() const { return refusal_.empty(); }
  const std::string& refusal() const { return refusal_; }

  mlir::OpBuilder& builder() { return builder_; }
  IndexMath math() { return {builder_, builder_.getUnknownLoc()}; }
  mlir::func::FuncOp function() const { return function_; }
  LoweredKernel& launch() { return scheduled_.launch; }
  const StridedTensor& tensor(unsigned number) const { return tensors_[number]; }
  mlir::Value expression(mlir::AffineExpr expr) { return math().expression(expr, symbols_); }

  // The element offset of `indices` (index values, one per dimension; a tensor of lower rank takes the last ones).
  // Dimensions of size 1 broadcast.
  mlir::Value offset(const StridedTensor& tensor, llvm::ArrayRef<mlir::Value> indices);
  // `lanes` neighbours as f32, or as f64 when the element is.
  mlir::Value load(const StridedTensor& tensor, mlir::Value offset, int64_t lanes = 1);
  mlir::Value loadBits(const StridedTensor& tensor, mlir::Value offset, int64_t lanes = 1);  // as they lie in memory
  // f32 or f64: one, or neighbours that lie at a multiple of all their bytes.
  void store(const StridedTensor& tensor, mlir::Value offset, mlir::Value value);
  mlir::Value address(const StridedTensor& tensor, mlir::Value offset);

  ScheduledKernel finish();

private:
  ScheduledKernel scheduled_;
  mlir::OpBuilder builder_;
  mlir::func::FuncOp function_;
  llvm::SmallVector<StridedTensor> tensors_;
  llvm::SmallVector<mlir::Value> symbols_;
  std::string refusal_;
};

}  // namespace zefuse
