// A pointwise operation as x * scale + shift + residual, with a scale and a shift per channel (dimension 1): a bias, a
// batch norm in inference, a layer scale, a skip connection.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/DenseSet.h"

namespace zefuse {

class ChannelAffine {
public:
  // Of `op`, which reads `x`.
  ChannelAffine(mlir::Value x, mlir::linalg::GenericOp op);
  ChannelAffine(const ChannelAffine&) = delete;
  ~ChannelAffine();  // scalars that perChannel() was not asked for are erased again

  // Whether it is of that form; one of the three at least is there.
  bool found() const { return found_; }
  // Scalars of f32 in the operation's body; null: 1 and 0.
  mlir::Value scale() const { return scale_; }
  mlir::Value shift() const { return shift_; }
  // A tensor of x's type; null: none.
  mlir::Value residual() const;
  // What else it reads: of one number, or one per channel.
  llvm::SmallVector<mlir::Value> channelInputs();

  // A tensor [channels] of such a scalar, before the operation.
  mlir::Value vector(mlir::Value scalar);
  // The same as [1, channels, 1...]. Null of null.
  mlir::Value perChannel(mlir::Value scalar);

private:
  struct Form {
    mlir::Value scale, shift;
    mlir::BlockArgument residual;
  };
  bool read();
  bool varies(mlir::Value value);
  bool dependsOnX(mlir::Value value);
  mlir::BlockArgument residualOf(mlir::Value value);
  std::optional<Form> affine(mlir::Value value);
  mlir::Value widened(mlir::Value value, mlir::Type type);
  template <typename Op> mlir::Value make(mlir::Value a, mlir::Value b);

  mlir::Value of_;
  mlir::linalg::GenericOp op_;
  mlir::OpBuilder builder_;
  mlir::Value x_;  // as the body has it
  llvm::SmallDenseSet<mlir::Value> full_;
  llvm::SmallVector<mlir::Operation*> added_;
  mlir::Value scale_, shift_;
  mlir::BlockArgument residual_;
  bool found_ = false;
};

}  // namespace zefuse
