#include "compiler/fuse/grouping.h"

#include <limits>
#include <map>
#include <set>

#include "compiler/fuse/analysed_groups.h"
#include "compiler/fuse/graph.h"
#include "compiler/fuse/group_graph.h"
#include "compiler/fuse/shared_addresses.h"
#include "lowering/analysis/fusible.h"
#include "lowering/analysis/product_form.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace zefuse {
namespace {

// Analysis is linear in a union, so joining is quadratic in the largest group: this bounds it.
constexpr size_t max_operations = 256;
// A value that k groups read makes k^2 pairs: each group is tried with so many of those before it.
constexpr size_t max_siblings = 8;

class Joining {
public:
  using Id = GroupGraph::Id;

  // `late`: operations that wait for a consumer to take them.
  explicit Joining(Block& block, const llvm::DenseSet<Operation*>& late = {})
      : block_(block), graph_(block), analysed_(block.getParentOp()->getContext()), late_(late),
        shared_addresses_(sharedAddresses(block)), of_parameters_(madeOfParameters(block)) {}

  void run() {
    joinProducers();
    joinSiblings();
  }

  /// The operations of each group, in the block's order; groups in the order of their last operations.
  std::vector<Id> groups() const {
    std::vector<Id> ids = graph_.groups();
    llvm::sort(ids, [&](Id a, Id b) {
      return graph_.orderOf(graph_.opsOf(a).back()) < graph_.orderOf(graph_.opsOf(b).back());
    });
    return ids;
  }
  ArrayRef<Operation*> opsOf(Id group) const { return graph_.opsOf(group); }

  struct Refusal {
    Id first, second;
    std::string reason;
  };
  /// Of groups that live still, in the order of the first refusal.
  std::vector<Refusal> refusals() const {
    llvm::MapVector<std::pair<Id, Id>, std::string> last;
    for (const auto& [ops, reason] : refusals_) {
      Id a = graph_.groupOf(ops.first), b = graph_.groupOf(ops.second);
      if (a != b)
        last[{std::min(a, b), std::max(a, b)}] = reason;
    }
    std::vector<Refusal> result;
    for (const auto& [pair, reason] : last)
      result.push_back({pair.first, pair.second, reason});
    return result;
  }

private:
  void joinProducers() {
    for (Operation& op : block_) {
      if (!isCompute(&op) || late_.contains(&op))
        continue;
      SmallVector<Id> producers = nearestFirst(graph_.producersOf(graph_.groupOf(&op)));
      for (bool joined = true; joined;) {
        joined = false;
        SmallVector<Id> next;
        for (Id id : producers) {
          Id producer = graph_.living(id), mine = graph_.groupOf(&op);
          bool late = late_.contains(graph_.opsOf(producer).front());
          SmallVector<Id> before = late ? graph_.producersOf(producer) : SmallVector<Id>();
          if (tryJoin(producer, mine)) {
            joined = true;
            llvm::append_range(next, before);
          } else if (producer != mine && !graph_.isCall(producer) && graph_.pathBetween(producer, mine)) {
            next.push_back(producer);  // until the step between has joined too
          }
        }
        producers = nearestFirst(next);
      }
    }
  }

  /// The nearest producer shares most with the consumer.
  SmallVector<Id> nearestFirst(ArrayRef<Id> ids) const {
    llvm::SetVector<Id> distinct;
    for (Id id : ids)
      distinct.insert(graph_.living(id));
    SmallVector<Id> producers = distinct.takeVector();
    llvm::sort(producers, [&](Id a, Id b) {
      return graph_.orderOf(graph_.opsOf(a).back()) > graph_.orderOf(graph_.opsOf(b).back());
    });
    return producers;
  }

  /// Groups that read the same value, where that value is most of what one of them reads: it is read once.
  void joinSiblings() {
    llvm::MapVector<Value, SmallVector<Operation*>> readers;
    for (Operation& op : block_) {
      if (!isCompute(&op) || isProduct(&op))
        continue;
      llvm::SetVector<Value> read;
      readsOf(&op, read);
      for (Value value : read)
        readers[value].push_back(&op);
    }
    for (auto& [value, ops] : readers) {
      if (ops.size() < 2)
        continue;
      double shared = estimatedElements(value);
      llvm::SetVector<Id> tried;
      for (Operation* op : ops) {
        Id mine = graph_.groupOf(op);
        if (tried.contains(mine))
          continue;
        size_t left = max_siblings;
        const SmallVector<Id> earlier(tried.begin(), tried.end());
        for (Id other : llvm::reverse(earlier)) {
          if (left-- == 0)
            break;
          Id sibling = graph_.living(other);
          if (sibling == mine || shared * 2 < smallerOf(sibling, mine))
            continue;
          if (auto joined = tryJoin(sibling, mine, true)) {
            tried.remove(other);
            mine = *joined;
          }
        }
        tried.insert(mine);
      }
    }
  }

  /// The tensors in memory that `op` reads, behind views.
  static void readsOf(Operation* op, llvm::SetVector<Value>& read) {
    auto visit = [&](Value value) {
      if (!isa<RankedTensorType>(value.getType()))
        return;
      Value source = throughViews(value);
      if (!source.getDefiningOp() || !isFree(source.getDefiningOp()))
        read.insert(source);
    };
    llvm::for_each(op->getOperands(), visit);
    for (Region& region : op->getRegions())
      region.walk([&](tensor::ExtractOp extract) {
        if (!region.isAncestor(extract.getTensor().getParentRegion()))
          visit(extract.getTensor());
      });
  }

  /// The largest result of the group whose largest result is smaller.
  double smallerOf(Id a, Id b) const {
    auto largest = [&](Id id) {
      double most = 0;
      for (Operation* op : graph_.opsOf(id))
        most = std::max(most, estimatedElements(op->getResult(0)));
      return most;
    };
    return std::min(largest(a), largest(b));
  }

  /// `siblings`: neither reads the other, so that a path between them is no refusal worth telling.
  std::optional<Id> tryJoin(Id a, Id b, bool siblings = false) {
    if (a == b || graph_.isCall(a) || graph_.isCall(b))
      return std::nullopt;
    if (!tried_.insert({std::minmax(a, b), graph_.stampOf(a), graph_.stampOf(b)}).second)
      return std::nullopt;
    auto refuse = [&](std::string reason) -> std::optional<Id> {
      refusals_.emplace_back(std::pair(graph_.opsOf(a).back(), graph_.opsOf(b).back()), std::move(reason));
      return std::nullopt;
    };
    if (graph_.opsOf(a).size() + graph_.opsOf(b).size() > max_operations)
      return refuse("together they hold more than " + std::to_string(max_operations) + " operations");
    if (graph_.pathBetween(a, b))
      return siblings ? std::nullopt : refuse("one reads what a step between them makes of the other's result");
    SmallVector<Operation*> both = graph_.unionOf(a, b);
    if (tensorsOf(both) > max_kernel_tensors)
      return refuse("together they take and make more than " + std::to_string(max_kernel_tensors) + " tensors");
    if (repeatsAddresses(both))
      return refuse("joined, it would compute for each element of a gather the address that many of them share");
    KernelShape shape;
    if (auto reason = analysed_.whyNotOneKernel(both, shape))
      return refuse(*reason);
    if (auto reason = whyWorse(a, b, shape))
      return refuse(*reason);
    if (auto reason = spreadsFewResults(a, b))
      return refuse(*reason);
    if (isWorthKeeping(a, b) || isWorthKeeping(b, a))
      return refuse("what parameters alone decide is made once and kept from call to call");
    if (!siblings && spreadsForReduction(a, b))
      return refuse("joined, it would store for a reduction what that reads while it computes it");
    Id joined = graph_.join(a, b);
    shapes_[joined] = shape;
    return joined;
  }

  bool repeatsAddresses(ArrayRef<Operation*> ops) const {
    double fewest = std::numeric_limits<double>::infinity(), most = 0;
    for (Operation* op : ops) {
      const double elements = estimatedElements(op->getResult(0));
      most = std::max(most, elements);
      if (shared_addresses_.contains(op))
        fewest = std::min(fewest, elements);
    }
    return most >= many_share * fewest;
  }

  /// Inputs and results of a kernel of these operations; a result that only a view reads counts as one.
  size_t tensorsOf(ArrayRef<Operation*> ops) const {
    llvm::SmallPtrSet<Operation*, 32> inside(ops.begin(), ops.end());
    llvm::SetVector<Value> read;
    size_t results = 0;
    for (Operation* op : ops) {
      readsOf(op, read);
      results += llvm::any_of(op->getUsers(), [&](Operation* user) {
        return !inside.contains(op->getBlock()->findAncestorOpInBlock(*user));
      });
    }
    return results + llvm::count_if(read, [&](Value value) { return !inside.contains(value.getDefiningOp()); });
  }

  /// A union may run on fewer threads than its parts: then memory traffic saved is time lost.
  std::optional<std::string> whyWorse(Id a, Id b, const KernelShape& both) {
    constexpr double few_rows = 16, long_row = 64 << 10;
    double rows = estimatedElements(both.rows), columns = estimatedElements(both.columns);
    if (both.kind == KernelShape::Kind::pointwise || rows >= few_rows || columns < long_row)
      return std::nullopt;
    for (Id id : {a, b})
      if (estimatedElements(shapeOfGroup(id).rows) >= std::max(few_rows, 4 * rows))
        return "joined, all work would be in " + std::to_string(int64_t(rows)) + " row(s) of " +
               std::to_string(int64_t(columns)) + " elements: too few for several threads";
    return std::nullopt;
  }

  /// Slices of a reduction were combined by few groups (split_reductions.cpp): they would walk all that is made of it.
  std::optional<std::string> spreadsFewResults(Id a, Id b) const {
    constexpr double much = 32;
    auto elements = [](Operation* op) {
      double most = estimatedElements(op->getResult(0));
      if (!op->hasAttr(few_results))
        for (Value operand : op->getOperands())
          if (isa<RankedTensorType>(operand.getType()))
            most = std::max(most, estimatedElements(operand));
      return most;
    };
    for (auto [few, many] : {std::pair(a, b), std::pair(b, a)}) {
      if (!llvm::is_contained(graph_.producersOf(many), few))
        continue;
      for (Operation* op : graph_.opsOf(few)) {
        if (!op->hasAttr(few_results))
          continue;
        const double results = estimatedElements(op->getResult(0));
        for (Operation* other : graph_.opsOf(many))
          if (!other->hasAttr(with_slices) && elements(other) > much * results)
            return "joined, the few groups that combine " + std::to_string(int64_t(results)) +
                   " result(s) of slices would walk " + std::to_string(int64_t(elements(other))) + " elements";
      }
    }
    return std::nullopt;
  }

  /// Whether `a` is made of parameters alone, and kept, while `b` is made in each call: with more work than to load its
  /// results, which are no larger than what it reads, or small.
  bool isWorthKeeping(Id a, Id b) const {
    constexpr double small = 256 << 10;  // bytes
    auto kept = [&](Id id) {
      return llvm::all_of(graph_.opsOf(id), [&](Operation* op) { return of_parameters_.contains(op); });
    };
    if (of_parameters_.empty() || !kept(a) || kept(b))
      return false;
    llvm::SetVector<Value> read;
    double written = 0, taken = 0;
    bool work = false;
    for (Operation* op : graph_.opsOf(a)) {
      readsOf(op, read);
      for (Value result : op->getResults())
        written += bytesOf(result);
      work |= isReduction(op);
      op->walk([&](Operation* inner) {
        work |=
            isa<math::MathDialect>(inner->getDialect()) || isa<tensor::ExtractOp, arith::DivFOp, arith::DivSIOp>(inner);
      });
    }
    for (Value value : read)
      taken += bytesOf(value);
    return work && written <= std::max(small, taken);
  }

  static double bytesOf(Value value) {
    return estimatedElements(value) *
           std::max(1u, cast<RankedTensorType>(value.getType()).getElementTypeBitWidth() / 8);
  }

  /// `consumer` makes much of `producer`'s few results and of other tensors, for reductions alone: a product's
  /// elements. They belong to the reductions' kernel.
  bool spreadsForReduction(Id producer, Id consumer) const {
    if (llvm::none_of(graph_.opsOf(producer), isReduction))
      return false;
    constexpr double much = 8, costly = 2 << 10;  // elements to store: fewer take less than a launch
    llvm::SetVector<Value> first, second;
    double passed = 0, common = 0;
    for (Operation* op : graph_.opsOf(producer))
      readsOf(op, first);
    for (Operation* op : graph_.opsOf(consumer))
      readsOf(op, second);
    for (Value value : second) {
      Operation* op = value.getDefiningOp();
      if (op && graph_.groupOf(op) == producer)
        passed = std::max(passed, estimatedElements(value));
      else if (first.contains(value))
        common = std::max(common, estimatedElements(value));
    }
    const double most = std::max(costly, much * std::max(passed, common));
    return passed > 0 && llvm::any_of(graph_.opsOf(consumer), [&](Operation* op) {
             auto outside = [&](Operation* user) {
               Operation* at = op->getBlock()->findAncestorOpInBlock(*user);
               return !isCompute(at) || graph_.groupOf(at) != consumer;
             };
             return !isReduction(op) && !op->hasAttr(with_slices) && estimatedElements(op->getResult(0)) > most &&
                    llvm::any_of(op->getUsers(), outside) && onlyReductionsNeed(op);
           });
  }

  /// Through elementwise operations, of which a product's elements need few.
  static bool onlyReductionsNeed(Operation* op) {
    constexpr size_t most = 64;
    llvm::SetVector<Operation*> next;
    next.insert(op);
    for (size_t at = 0; at < next.size(); ++at)
      for (Operation* user : next[at]->getUsers()) {
        if (isReduction(user))
          continue;
        if (!isa<linalg::GenericOp, ViewOp>(user) || next.size() == most)
          return false;
        next.insert(user);
      }
    return true;
  }

  const KernelShape& shapeOfGroup(Id id) {
    auto [it, fresh] = shapes_.try_emplace(id);
    if (fresh)
      analysed_.whyNotOneKernel(graph_.opsOf(id), it->second);
    return it->second;
  }

  Block& block_;
  GroupGraph graph_;
  AnalysedGroups analysed_;
  llvm::DenseSet<Operation*> late_;
  llvm::DenseSet<Operation*> shared_addresses_;
  llvm::DenseSet<Operation*> of_parameters_;  // of a graph that keeps what is made of them
  std::map<Id, KernelShape> shapes_;          // of groups that were asked for
  std::set<std::tuple<std::pair<Id, Id>, unsigned, unsigned>> tried_;
  std::vector<std::pair<std::pair<Operation*, Operation*>, std::string>> refusals_;
};

}  // namespace

Grouping::Grouping(func::FuncOp graph, bool merge) {
  Block& block = graph.getBody().front();
  llvm::DenseSet<Operation*> late;
  for (Operation& op : block)
    if (op.hasAttr("zefuse.late"))
      late.insert(&op);
  Joining joining(block, late);
  if (merge)
    joining.run();
  std::map<GroupGraph::Id, size_t> numbers;
  for (GroupGraph::Id id : joining.groups()) {
    numbers[id] = groups_.size();
    groups_.emplace_back(joining.opsOf(id));
  }
  for (auto& [first, second, reason] : joining.refusals())
    refusals_.push_back({numbers.at(first), numbers.at(second), reason});
}

}  // namespace zefuse
