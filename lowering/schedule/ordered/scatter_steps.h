// What the schedules of a zefuse.scatter share: one element's (or vector's) init and update, where the dims are bound.
#pragma once

#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/context.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace zefuse {

class ScatterSteps {
protected:
  explicit ScatterSteps(const ScheduleContext& context)
      : c_(context), e_(context.evaluator), space_(context.domain.space), form_(*context.domain.scatter),
        b_(context.builder()), loc_(context.builder().getUnknownLoc()) {}

  mlir::Type element() const { return mlir::cast<mlir::RankedTensorType>(form_.op.getType()).getElementType(); }
  void fill();
  void update();

  template <typename Body> void loops(llvm::ArrayRef<unsigned> dims, Body body) {
    if (dims.empty() || e_.failed())
      return body();
    mlir::Value size = e_.index(space_.size(dims.front()));
    e_.toInnermost();
    auto loop = e_.openLoop(constantIndex(b_, loc_, 0), size, constantIndex(b_, loc_, 1));
    e_.bind(dims.front(), loop.index());
    loops(dims.drop_front(), body);
    e_.closeLoop(loop);
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  IndexSpace& space_;
  ScatterForm& form_;
  mlir::OpBuilder& b_;
  mlir::Location loc_;

  mlir::AffineExpr offset(mlir::AffineMap at) const {
    return c_.graph.output_offset(space_, {0, {form_.op.getResult(), at}, false});
  }
};

}  // namespace zefuse
