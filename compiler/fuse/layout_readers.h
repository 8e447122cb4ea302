// Who reads a value and wants it to lie in some way: what layout assignment asks of each use.
#pragma once

#include <optional>

#include "lowering/dialect/Zefuse.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"

namespace zefuse {

// One use of a value in memory by something that cannot take any index map.
struct LayoutReader {
  mlir::OpOperand* use;
  mlir::AffineMap view;                       // from the use's indices to the stored value's
  llvm::SmallVector<mlir::AffineExpr> sizes;  // of the used value
  std::optional<mlir::AffineMap> exact;       // required strides (results, no dimensions); otherwise the library's rule
  bool channels_last = false;                 // that rule for images: dense, channels innermost
  bool rows = false;                          // that rule for attention: contiguous rows that do not overlap
  bool strided = false;  // any strides but negative ones: a kernel addressed as a call is, a convolution's weight
  bool dense = false;    // besides `exact` strides, any without gaps
};

// Whether the value, a kernel's, is the image or the weight of a convolution that a vendor's library takes as well:
// that has quick code for channels-last tensors alone, and other ones are copied for it.
bool readByLibraryConvolution(mlir::Value value);

// Whether the index takes no dimension with a minus, so that strides keep the signs that they have in the layout.
bool stepsForward(mlir::AffineExpr index);

// Whether the reader sees the value as it is, so that a layout of the one is a layout of the other. A view with the
// identity map may still be smaller (x[..., :-2]): with its strides the value's rows would overlap.
bool readsWhole(const LayoutReader& reader, mlir::RankedTensorType type);

// The convolution, alone or in a kernel, whose result's places and channels the value has (a weight's gradient by a
// library too, which writes it channels last).
ConvolutionOp convolutionOf(mlir::Value value, mlir::RankedTensorType type);

}  // namespace zefuse
