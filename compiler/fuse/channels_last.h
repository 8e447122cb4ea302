// Images that lie with their channels innermost: which do (layouts.cpp), and which will (before layouts are assigned).
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"

namespace zefuse {

// Strides of [N, C, spatial...] with the channels innermost in memory.
llvm::SmallVector<mlir::AffineExpr> channelsLastStrides(llvm::ArrayRef<mlir::AffineExpr> sizes,
                                                        mlir::MLIRContext* context);

// Whether images of these shapes may be stages of one: the same channels, or the same places. Otherwise dimensions
// were exchanged on the way, [N, C, L] to [N, L, C], and what is innermost in one is not in the other.
bool sameChannelsOrPlaces(mlir::RankedTensorType a, mlir::RankedTensorType b);

// Of values of a graph in stage 1, whether layout assignment will have them channels last, as far as it can be told
// before kernels are made: what a convolution makes, rows of channels seen as an image, and what is computed from such
// images alone. For choices of speed:
// nothing wrong comes of an error. Answers are kept, so one is for a graph that does not change meanwhile.
class ChannelsLastForecast {
public:
  explicit ChannelsLastForecast(mlir::func::FuncOp graph) : graph_(graph) {}
  bool operator()(mlir::Value value);

private:
  bool find(mlir::Value value);

  mlir::func::FuncOp graph_;
  llvm::DenseMap<mlir::Value, bool> known_;
};

}  // namespace zefuse
