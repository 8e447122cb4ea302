// Where the tensors of a plan lie: its buffers, and the values (sizes, strides, offset) in them.
#pragma once

#include <optional>

#include "common/plan/plan_generated.h"
#include "compiler/plan/exprs.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"

namespace zefuse {

// An element type as plans name it; nothing where they have no name for it.
std::optional<plan::DType> dtypeOf(mlir::Type element);
// Of one element in memory.
int64_t bytesOf(mlir::Type element);

// A buffer and the map from a tensor's indices to the element in it.
struct Place {
  uint32_t buffer;
  mlir::AffineMap layout;
};

// Adds to a plan, which it does not own.
class PlanValues {
public:
  PlanValues(plan::PlanT& plan, ExprTable& exprs, mlir::MLIRContext* context)
      : plan_(plan), exprs_(exprs), context_(context) {}

  // `bytes`: null for what the caller brings.
  uint32_t addBuffer(plan::Storage storage, uint32_t index, mlir::AffineExpr bytes);
  // Memory that a step writes: the next output's own buffer, or a piece of the arena.
  void allocate(mlir::Value value, mlir::AffineMap layout, bool output);
  void put(mlir::Value value, Place place) { places_[value] = place; }
  // Of a value that has one, or of a view of such.
  Place placeOf(mlir::Value value);
  uint32_t bufferOf(mlir::Value value) { return placeOf(value).buffer; }
  // Step number `step` uses the value: its buffer lives until then.
  void use(mlir::Value value, size_t step) { plan_.buffers[bufferOf(value)]->last_step = step; }

  // `exact`: the strides to state, where eager's matter even for dimensions of size one.
  uint32_t addValue(mlir::Value value, std::optional<mlir::AffineMap> exact = std::nullopt,
                    llvm::ArrayRef<mlir::AffineExpr> sizes_override = {});
  uint32_t addValue(uint32_t buffer, mlir::RankedTensorType type, llvm::ArrayRef<mlir::AffineExpr> sizes,
                    llvm::ArrayRef<mlir::AffineExpr> strides, mlir::AffineExpr offset);
  // oneDNN knows no stride of zero: a broadcast batch dimension is stated as one of size 1.
  uint32_t addLibraryOperand(mlir::Value value);

private:
  plan::PlanT& plan_;
  ExprTable& exprs_;
  mlir::MLIRContext* context_;
  llvm::DenseMap<mlir::Value, Place> places_;
  uint32_t num_outputs_ = 0;
};

}  // namespace zefuse
