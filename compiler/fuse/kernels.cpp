// Grouping: every compute operation (graph.h) ends in exactly one zefuse.kernel.
//
// A group is a set of compute operations that one launch can hold. Groups start as single operations and merge along
// producer-consumer edges, consumers in graph order, while (1) the schedule accepts the union (whyNotOneKernel: one
// iteration space, see lowering/schedule/fusible.h) and (2) no path leaves the union and comes back. Free operations
// (views, empties, sizes) belong to no group: each kernel clones those it needs.
#include <algorithm>
#include <functional>
#include <list>

#include "compiler/dialect/Zefuse.h"
#include "compiler/dialect/shape.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/passes.h"
#include "lowering/schedule/fusible.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace zefuse {
namespace {

/// The operations that `op` reads from, with free operations looked through.
void producersOf(Operation* op, llvm::SetVector<Operation*>& producers) {
  auto visit = [&](Value operand) {
    Operation* producer = operand.getDefiningOp();
    if (!producer)
      return;
    if (isFree(producer))
      producersOf(producer, producers);
    else
      producers.insert(producer);
  };
  for (Value operand : op->getOperands())
    visit(operand);
  // A body reads tensors from outside too: tensor.extract of a table.
  for (Region& region : op->getRegions())
    region.walk([&](tensor::ExtractOp extract) {
      if (!region.isAncestor(extract.getTensor().getParentRegion()))
        visit(extract.getTensor());
    });
}

/// The operations that read `op`'s results, with free operations looked through.
void consumersOf(Operation* op, llvm::SetVector<Operation*>& consumers) {
  for (Operation* user : op->getUsers()) {
    Operation* top = op->getBlock()->findAncestorOpInBlock(*user);
    if (isFree(top))
      consumersOf(top, consumers);
    else
      consumers.insert(top);
  }
}

/// Copies each cheap producer into each of its consumers, so that no memory holds what can be had from an index.
void repeatCheapProducers(func::FuncOp graph) {
  SmallVector<Operation*> cheap;
  for (Operation& op : graph.getBody().front())
    if (isCompute(&op) && isCheapToRepeat(&op))
      cheap.push_back(&op);
  for (Operation* op : llvm::reverse(cheap)) {
    bool first = true;
    for (OpOperand& use : llvm::make_early_inc_range(op->getUses())) {
      Operation* user = graph.getBody().front().findAncestorOpInBlock(*use.getOwner());
      if (!isCompute(user) && !isa<ViewOp>(user))
        continue;
      if (std::exchange(first, false))
        continue;
      OpBuilder builder(user);
      use.set(builder.clone(*op)->getResult(0));
    }
  }
  // A view with several users would tie its consumers to one copy: give each its own.
  for (Operation& op : llvm::make_early_inc_range(llvm::reverse(graph.getBody().front()))) {
    auto view = dyn_cast<ViewOp>(&op);
    if (!view || view->hasOneUse())
      continue;
    Operation* source = throughViews(view.getResult()).getDefiningOp();
    if (!isCompute(source) || !isCheapToRepeat(source))
      continue;
    for (OpOperand& use : llvm::make_early_inc_range(llvm::drop_begin(view->getUses()))) {
      OpBuilder builder(use.getOwner());
      IRMapping mapping;
      SmallVector<Operation*> chain = {view};
      for (Value v = view.getSource(); v.getDefiningOp() != source; v = v.getDefiningOp<ViewOp>().getSource())
        chain.push_back(v.getDefiningOp());
      chain.push_back(source);
      for (Operation* link : llvm::reverse(chain))
        builder.clone(*link, mapping);
      use.set(mapping.lookup(view.getResult()));
    }
  }
}

class Grouping {
public:
  explicit Grouping(func::FuncOp graph) : block_(graph.getBody().front()) {
    for (Operation& op : block_) {
      order_[&op] = order_.size();
      if (isCompute(&op))
        group_[&op] = &groups_.emplace_back(Group{{&op}});
    }
  }

  void mergeAll() {
    for (Operation& op : block_) {
      if (!isCompute(&op))
        continue;
      llvm::SetVector<Operation*> producers;
      producersOf(&op, producers);
      // The nearest producer first: it shares most with the consumer.
      SmallVector<Operation*> nearest(producers.begin(), producers.end());
      llvm::sort(nearest, [&](Operation* a, Operation* b) { return order_[a] > order_[b]; });
      for (Operation* producer : nearest)
        if (isCompute(producer))
          tryMerge(*group_[producer], *group_[&op]);
    }
  }

  /// Groups in graph order, each with its operations in graph order.
  std::vector<SmallVector<Operation*>> groups() {
    std::vector<SmallVector<Operation*>> result;
    for (Group& group : groups_)
      if (!group.ops.empty())
        result.push_back(group.ops);
    llvm::sort(result, [&](auto& a, auto& b) { return order_[a.back()] < order_[b.back()]; });
    return result;
  }

private:
  struct Group {
    SmallVector<Operation*> ops;  // in graph order
  };

  void tryMerge(Group& producer, Group& consumer) {
    if (&producer == &consumer)
      return;
    SmallVector<Operation*> both;
    std::merge(producer.ops.begin(), producer.ops.end(), consumer.ops.begin(), consumer.ops.end(),
               std::back_inserter(both), [&](Operation* a, Operation* b) { return order_[a] < order_[b]; });
    if (leavesAndReturns(both))
      return;
    if (whyNotOneKernel(withViewsBetween(both)))
      return;
    for (Operation* op : producer.ops)
      group_[op] = &consumer;
    consumer.ops = std::move(both);
    producer.ops.clear();
  }

  /// Whether some path goes from the set to another operation and back: then the set cannot be one launch. Groups are
  /// atomic: passing one operation of a group means waiting for all of it.
  bool leavesAndReturns(ArrayRef<Operation*> ops) {
    llvm::SmallPtrSet<Operation*, 16> inside(ops.begin(), ops.end()), seen;
    size_t last = order_[ops.back()];
    SmallVector<Operation*> work;
    auto push = [&](Operation* op) {
      if (auto it = group_.find(op); it != group_.end() && !inside.contains(op)) {
        for (Operation* member : it->second->ops)
          if (seen.insert(member).second)
            work.push_back(member);
      } else if (!inside.contains(op) && seen.insert(op).second) {
        work.push_back(op);
      }
    };
    for (Operation* op : ops) {
      llvm::SetVector<Operation*> consumers;
      consumersOf(op, consumers);
      for (Operation* consumer : consumers)
        push(consumer);
    }
    while (!work.empty()) {
      Operation* op = work.pop_back_val();
      llvm::SetVector<Operation*> consumers;
      consumersOf(op, consumers);
      for (Operation* consumer : consumers) {
        if (inside.contains(consumer))
          return true;
        // Later groups can still lead back through a member that comes earlier, so only plain operations are cut.
        if (order_[consumer] <= last || group_.count(consumer))
          push(consumer);
      }
    }
    return false;
  }

  /// The set with the free operations on paths between its members, in graph order: what the schedule sees.
  SmallVector<Operation*> withViewsBetween(ArrayRef<Operation*> ops) {
    llvm::SetVector<Operation*> all;
    std::function<void(Operation*)> add = [&](Operation* op) {
      for (Value operand : op->getOperands())
        if (Operation* producer = operand.getDefiningOp(); producer && isFree(producer))
          add(producer);
      all.insert(op);
    };
    for (Operation* op : ops)
      add(op);
    SmallVector<Operation*> sorted(all.begin(), all.end());
    llvm::sort(sorted, [&](Operation* a, Operation* b) { return order_[a] < order_[b]; });
    return sorted;
  }

  Block& block_;
  llvm::DenseMap<Operation*, size_t> order_;
  llvm::DenseMap<Operation*, Group*> group_;
  std::list<Group> groups_;
};

/// Moves a group into a zefuse.kernel. Free operations it needs are cloned inside; what others read becomes a result.
void outline(ArrayRef<Operation*> ops, unsigned num_symbols) {
  llvm::SmallPtrSet<Operation*, 16> inside(ops.begin(), ops.end());
  llvm::SetVector<Value> inputs, outputs;
  llvm::SetVector<Operation*> body;
  std::function<void(Operation*)> include;
  auto need = [&](Value value) {
    Operation* producer = value.getDefiningOp();
    if (producer && inside.contains(producer))
      return;
    if (producer && isFree(producer))
      include(producer);
    else
      inputs.insert(value);
  };
  include = [&](Operation* op) {
    if (body.contains(op))
      return;
    for (Value operand : op->getOperands())
      need(operand);
    for (Region& region : op->getRegions())
      region.walk([&](Operation* inner) {
        for (Value operand : inner->getOperands())
          if (!region.isAncestor(operand.getParentRegion()))
            need(operand);
      });
    body.insert(op);
  };
  for (Operation* op : ops) {
    include(op);
    for (Operation* user : op->getUsers()) {
      Operation* top = op->getBlock()->findAncestorOpInBlock(*user);
      if (inside.contains(top))
        continue;
      // A view inside the group's reach is cloned; only readers outside need the value in memory.
      llvm::SetVector<Operation*> readers;
      if (isFree(top))
        consumersOf(top, readers);
      else
        readers.insert(top);
      if (llvm::any_of(readers, [&](Operation* reader) { return !inside.contains(reader); }))
        outputs.insert(op->getResult(0));
    }
  }

  OpBuilder builder(ops.back());
  SmallVector<Location> locations;
  for (Operation* op : ops)
    locations.push_back(op->getLoc());
  SmallVector<Attribute> layouts;
  SmallVector<Type> results;
  for (Value value : llvm::concat<const Value>(inputs.getArrayRef(), outputs.getArrayRef()))
    layouts.push_back(AffineMapAttr::get(contiguousLayout(cast<RankedTensorType>(value.getType()), num_symbols)));
  for (Value value : outputs)
    results.push_back(value.getType());
  auto kernel = KernelOp::create(builder, builder.getFusedLoc(locations), results, inputs.getArrayRef(),
                                 kernelName(ops), builder.getArrayAttr(layouts));
  Block& block = kernel.getBody().emplaceBlock();
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, block.addArgument(input.getType(), input.getLoc()));
  builder.setInsertionPointToEnd(&block);
  for (Operation* op : body)
    builder.clone(*op, mapping);
  SmallVector<Value> yielded;
  for (Value output : outputs)
    yielded.push_back(mapping.lookup(output));
  YieldOp::create(builder, kernel.getLoc(), yielded);
  for (auto [i, result] : llvm::enumerate(kernel.getResults()))
    Value(outputs[i]).replaceUsesWithIf(result, [&](OpOperand& use) {
      Operation* top = kernel->getBlock()->findAncestorOpInBlock(*use.getOwner());
      return !inside.contains(top) && top != kernel;
    });
}

void eraseDead(Block& block) {
  for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op) || (isCompute(&op) && op.use_empty()))
      op.erase();
}

}  // namespace

LogicalResult fuseKernels(func::FuncOp graph, bool merge) {
  Block& block = graph.getBody().front();
  unsigned num_symbols = graph->getAttrOfType<ArrayAttr>("zefuse.symbols").size();
  eraseDead(block);
  repeatCheapProducers(graph);
  std::vector<SmallVector<Operation*>> groups;
  {
    Grouping grouping(graph);
    if (merge)
      grouping.mergeAll();
    groups = grouping.groups();
  }
  for (ArrayRef<Operation*> group : groups)
    outline(group, num_symbols);
  // Kernels stand where their last operation stood, so a reader of an earlier one may now come first.
  sortTopologically(&block);
  eraseDead(block);
  return success();
}

}  // namespace zefuse
