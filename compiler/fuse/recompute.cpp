// A value that one kernel makes and a reduction of another reads: stored, or computed again. A few elementwise
// operations whose result only a reduction of another group reads (a layer norm's weight gradient: the sum over the
// rows of what the row kernel happens to make) are cloned before that reduction where less memory is moved so: storing
// counts twice, since a line is read before it is written.
#include "compiler/fuse/graph.h"
#include "compiler/fuse/grouping.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/dataflow.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_RECOMPUTEFORREDUCTIONS
#include "compiler/fuse/Passes.h.inc"

namespace {

constexpr size_t most_operations = 6;
constexpr size_t most_scalar_operations = 16;

double bytesOf(Value value) {
  unsigned bits = cast<RankedTensorType>(value.getType()).getElementTypeBitWidth();
  return estimatedElements(value) * std::max(1u, bits / 8);
}

/// Scalar operations of an elementwise loop without transcendental functions and gathers; nothing for others.
std::optional<size_t> workOf(Operation* op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || generic.getNumReductionLoops() != 0)
    return std::nullopt;
  size_t work = 0;
  for (Operation& inner : generic.getBody()->without_terminator()) {
    if (isa<math::MathDialect>(inner.getDialect()) || isa<tensor::ExtractOp, CheckedIndexOp>(inner))
      return std::nullopt;
    ++work;
  }
  return work;
}

class Recomputing {
public:
  explicit Recomputing(ArrayRef<SmallVector<Operation*>> groups) {
    for (auto [number, group] : llvm::enumerate(groups))
      for (Operation* op : group)
        group_of_[op] = number;
    for (const auto& group : groups)
      llvm::append_range(ops_, group);
  }

  llvm::DenseSet<Operation*> run() {
    for (Operation* op : ops_)
      if (workOf(op))
        consider(op);
    return std::move(clones_);
  }

private:
  /// The one reader, a reduction of another group that reads `op`'s result directly or through views; null otherwise.
  OpOperand* readerOf(Operation* op) const {
    OpOperand* reader = nullptr;
    SmallVector<Value> values(op->getResults());
    while (!values.empty())
      for (OpOperand& use : values.pop_back_val().getUses()) {
        if (auto view = dyn_cast<ViewOp>(use.getOwner())) {
          values.push_back(view.getResult());
          continue;
        }
        auto it = group_of_.find(use.getOwner());
        if (reader || it == group_of_.end() || it->second == group_of_.lookup(op) || !isReduction(use.getOwner()))
          return nullptr;
        reader = &use;
      }
    return reader;
  }

  bool sameGroup(Operation* a, Operation* b) const {
    auto of_a = group_of_.find(a), of_b = group_of_.find(b);
    return of_a != group_of_.end() && of_b != group_of_.end() && of_a->second == of_b->second;
  }

  /// Whether memory holds `op`'s result anyway, since somebody outside of its group reads it.
  bool isStored(Operation* op) const {
    SmallVector<Value> values(op->getResults());
    while (!values.empty())
      for (Operation* user : values.pop_back_val().getUsers()) {
        if (auto view = dyn_cast<ViewOp>(user))
          values.push_back(view.getResult());
        else if (!sameGroup(user, op))
          return true;
      }
    return false;
  }

  void consider(Operation* op) {
    if (OpOperand* use = readerOf(op); use && !recompute(op, *use, /*from_stored=*/false))
      recompute(op, *use, /*from_stored=*/true);
  }

  /// Whether it was worth it. `from_stored`: from what the group stores anyway, where that is less than the result (16
  /// bits that the reduction's f32 was rounded to before), else from what the group reads.
  bool recompute(Operation* op, OpOperand& use, bool from_stored) {
    // The elementwise operations of the group that lead to `op`, and what they read.
    llvm::SetVector<Operation*> cone;
    llvm::SetVector<Value> leaves;
    size_t work = 0;
    cone.insert(op);
    for (size_t next = 0; next < cone.size(); ++next) {
      work += workOf(cone[next]).value_or(0);
      for (OpOperand* input : cast<linalg::GenericOp>(cone[next]).getDpsInputOperands()) {
        Value source = throughViews(input->get());
        Operation* producer = source.getDefiningOp();
        if (producer && sameGroup(producer, op) && workOf(producer) && !(from_stored && isStored(producer)))
          cone.insert(producer);
        else if (isa<RankedTensorType>(source.getType()) && !(producer && isFree(producer)))
          leaves.insert(source);
      }
    }
    if (cone.size() > most_operations || work > most_scalar_operations)
      return false;
    double cost = 0;
    for (Value leaf : leaves) {
      Operation* producer = leaf.getDefiningOp();
      bool mine = producer && sameGroup(producer, op) && !(from_stored && isStored(producer));
      cost += bytesOf(leaf) * (mine ? 3 : 1);
    }
    if (cost >= (from_stored ? 1 : 3) * bytesOf(op->getResult(0)))
      return false;
    repeat(cone, use);
    return true;
  }

  void repeat(const llvm::SetVector<Operation*>& cone, OpOperand& use) {
    OpBuilder builder(use.getOwner());
    IRMapping mapping;
    SmallVector<Operation*> ordered(cone.begin(), cone.end());
    llvm::sort(ordered, [](Operation* a, Operation* b) { return a->isBeforeInBlock(b); });
    auto viewed = [&](auto&& self, Value value) -> void {
      auto view = value.getDefiningOp<ViewOp>();
      if (!view || mapping.contains(value))
        return;
      self(self, view.getSource());
      if (mapping.contains(view.getSource()))
        builder.clone(*view, mapping);
    };
    for (Operation* link : ordered) {
      for (Value operand : link->getOperands())
        viewed(viewed, operand);
      Operation* clone = builder.clone(*link, mapping);
      clone->removeDiscardableAttr("zefuse.output");
      clones_.insert(clone);
    }
    viewed(viewed, use.get());
    use.set(mapping.lookup(use.get()));
  }

  llvm::DenseMap<Operation*, size_t> group_of_;
  SmallVector<Operation*> ops_;
  llvm::DenseSet<Operation*> clones_;
};

class RecomputeForReductions : public impl::RecomputeForReductionsBase<RecomputeForReductions> {
  void runOnOperation() override {
    func::FuncOp graph = getOperation();
    const llvm::DenseSet<Operation*> clones = Recomputing(getAnalysis<Grouping>().groups()).run();
    if (clones.empty())
      return markAllAnalysesPreserved();  // the grouping holds for the next pass
    for (Operation* clone : clones)
      clone->setDiscardableAttr("zefuse.late", UnitAttr::get(graph.getContext()));
    eraseDead(graph.getBody().front());
  }
};

}  // namespace
}  // namespace zefuse
