// What the work-items of a row do between its first element and its results: they walk over the reduced dims, once for
// each stage, and combine.
#pragma once

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/core/long_sums.h"
#include "lowering/schedule/gpu/access_lanes.h"

namespace zefuse {

// This work-item takes positions first, first + team, ... of what is walked.
struct Walk {
  mlir::Value first;
  int64_t team = 1;
  bool vectors = false;  // along the axis set's laned dim; else lanes, if any, are bound by the rows
};

class RowWalk {
public:
  RowWalk(const ScheduleContext& context, const AccessLanes& access);

  // What is better kept in registers from one stage to the next is, from here on. Wants a walk in vectors.
  void holdRows(const Walk& walk);

  // Combines over the team: partial results, one for each reduction.
  using Meet = llvm::function_ref<llvm::SmallVector<mlir::Value>(llvm::ArrayRef<const Instance*>,
                                                                 llvm::SmallVector<mlir::Value>)>;
  // All stages of the rows that are bound, `row_lanes` of them in a vector. `stores_rows`: whether this work-item
  // stores what there is one of for a row; null: it does.
  void stages(const Walk& walk, int64_t row_lanes, mlir::Value stores_rows, Meet meet);

private:
  // What all stages have in registers: of an axis set's vectors the first `rounds` that each work-item takes, in
  // straight-line code.
  struct InRegisters {
    int64_t rounds = 0;
    std::vector<std::unique_ptr<Evaluator::Frame>> frames;  // by round, once a stage was there
  };
  using Bind = llvm::function_ref<void(mlir::Value)>;
  using Step = llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange)>;

  llvm::SmallVector<mlir::Value> positions(const Walk& walk, mlir::AffineExpr count,
                                           llvm::SmallVector<mlir::Value> carried, const LongTotals* sums,
                                           InRegisters* held, Bind bind, Step emit);
  int64_t roundsTogether(int64_t trips);
  llvm::SmallVector<mlir::Value> inFrame(InRegisters& held, int64_t round, llvm::function_ref<void()> bind, Step emit,
                                         mlir::ValueRange carried);
  void bindAxes(unsigned axes, mlir::Value position, int64_t lanes, bool rest);
  int64_t axisLanes(const Walk& walk, unsigned axes) const;
  llvm::SmallVector<mlir::Value>
  walkAxes(const Walk& walk, unsigned axes, llvm::SmallVector<mlir::Value> vectors, const LongTotals* sums,
           llvm::function_ref<llvm::SmallVector<mlir::Value>(llvm::SmallVector<mlir::Value>)> between, Step emit);
  llvm::SmallVector<mlir::Value> reduceWalk(const Walk& walk, unsigned axes, llvm::ArrayRef<const Instance*> instances,
                                            int64_t row_lanes);

  bool readsOnce(llvm::ArrayRef<const Instance*> instances) const;
  Dims elementDims(unsigned axes) const;

  mlir::Value emitted(mlir::AffineExpr expr);
  mlir::Value number(int64_t value) { return i_.number(value); }
  mlir::Value add(mlir::Value a, mlir::Value b) { return i_.add(a, b); }
  mlir::Value multiply(mlir::Value a, int64_t b) { return i_.multiply(a, b); }

  const ScheduleContext& c_;
  const AccessLanes& access_;
  Evaluator& e_;
  IndexSpace& space_;
  mlir::OpBuilder& b_;
  IndexMath i_;
  std::vector<InRegisters> held_;  // per axis set; empty: nothing
};

}  // namespace zefuse
