#include "lowering/analysis/placement.h"

#include <utility>

#include "lowering/dialect/shape.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace zefuse {
/// What the walks of the domain meet, found out once for all outputs: there may be as many of these as operations.
struct OutputPlaces::Met {
  llvm::DenseMap<Value, SmallVector<AffineMap, 1>> by_main;  // by what computing the main output evaluates
  llvm::DenseMap<Value, SmallVector<AffineMap, 2>> by_outputs, by_instances;  // tensors alone
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;                           // for by_outputs
  size_t outputs = 0;                                                         // those that are in it
  bool main = false, instances = false;
};

namespace {

using Seen = llvm::DenseSet<std::pair<Value, AffineMap>>;

class Placement {
public:
  Placement(Domain& domain, const KernelGraph& graph, OutputPlaces::Met& met, Value output)
      : domain_(domain), space_(domain.space), graph_(graph), met_(met), output_(output),
        shape_(shapeOf(cast<RankedTensorType>(output.getType()))) {}

  std::optional<AffineMap> run() {
    if (auto met = metOnTheWay())
      return met;
    if (auto rows = byRowsOfProduct())
      return rows;
    bool clash = false;
    if (auto shared = bySharedRead(clash))
      return shared;
    if (clash)
      return std::nullopt;
    const Node& main = domain_.outputs[0].node;
    if (ArrayRef(shape_) == ArrayRef(shapeOf(cast<RankedTensorType>(main.value.getType()))))
      return main.at;
    return byRows();
  }

private:
  std::optional<AffineMap> metOnTheWay() {
    if (!std::exchange(met_.main, true)) {
      Seen seen;
      walkNodes(space_, domain_.outputs[0].node, seen, graph_, [&](Node node) {
        met_.by_main[node.value].push_back(node.at);
        return true;
      });
    }
    if (auto it = met_.by_main.find(output_); it != met_.by_main.end())
      for (AffineMap at : it->second)
        if (isBijection(at))
          return at;
    for (const Instance& instance : domain_.instances)
      if (instance.op->getResult(0) == output_ && covers(instance.kept, domain_.rows))
        return instance.kept;
    return std::nullopt;
  }

  // The rows of the product's first result, for what has one element of its second for each of them.
  std::optional<AffineMap> byRowsOfProduct() {
    if (!domain_.product || domain_.product->at.size() < 2 || !domain_.product->at[0])
      return std::nullopt;
    IndexSpace probe(space_.context(), space_.graphSymbols());
    const SmallVector<AffineExpr> at = dimsFor(probe);
    if (probe.tooManyDims())
      return std::nullopt;
    AffineMap theirs;
    Seen seen;
    walkNodes(probe, {output_, probe.indices(at)}, seen, graph_, [&](Node node) {
      if (node.value == domain_.product->op->getResult(1))
        theirs = node.at;
      return !theirs;
    });
    if (!theirs)
      return std::nullopt;
    const AffineMap rows = space_.indices(domain_.product->at[0].getResults().drop_back());
    auto place = inverted(at, probe.numDims(), theirs, rows);
    return place && covers(*place, space_.dimsOf(rows).numbers()) ? place : std::nullopt;
  }

  // An index of the output in each of its dimensions: a dim of `probe`, which is new.
  SmallVector<AffineExpr> dimsFor(IndexSpace& probe) const {
    return llvm::map_to_vector(shape_, [&](AffineExpr size) {
      return constantOf(size) == 1 ? probe.constant(0) : probe.dim(probe.addDim(size));
    });
  }

  //===-- by what both read --------------------------------------------------------------------===//

  // Visits the tensors that the computation of `root` reads, with the indices; reductions are entered with `enter`,
  // making dims. Returns false where `visit` did: nothing more is visited then.
  bool visitReads(IndexSpace& space, Node root, Seen& seen, bool enter, llvm::function_ref<bool(Node)> visit) {
    SmallVector<Node> roots{root};
    bool on = true;
    while (on && !roots.empty()) {
      walkNodes(space, roots.pop_back_val(), seen, graph_, [&](Node node) {
        if (!on || !isa<RankedTensorType>(node.value.getType()))
          return on;
        on = visit(node);
        Operation* op = node.value.getDefiningOp();
        if (graph_.is_input(node.value) || !op || !isReduction(op))
          return on && !graph_.is_input(node.value);
        if (enter)
          if (auto element = elementOf(space, cast<linalg::GenericOp>(op), node.at))
            roots.push_back(*element);
        return false;
      });
    }
    return on;
  }

  // What a reduction's result at `kept` is reduced from, over dims made for it.
  static std::optional<Node> elementOf(IndexSpace& space, linalg::GenericOp op, AffineMap kept) {
    Combiner combiner = combinerOf(op);
    if (!combiner.op || space.numDims() + op.getNumLoops() > IndexSpace::max_dims)
      return std::nullopt;
    SmallVector<AffineExpr> iteration(op.getNumLoops());
    for (auto [expr, index] : llvm::zip(op.getIndexingMapsArray().back().getResults(), kept.getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        iteration[dim.getPosition()] = index;
    for (OpOperand& operand : op->getOpOperands())
      for (auto [expr, size] : llvm::zip(op.getMatchingIndexingMap(&operand).getResults(),
                                         shapeOf(cast<RankedTensorType>(operand.get().getType()))))
        if (auto dim = dyn_cast<AffineDimExpr>(expr); dim && !iteration[dim.getPosition()])
          iteration[dim.getPosition()] = constantOf(size) == 1 ? space.constant(0) : space.dim(space.addDim(size));
    if (llvm::is_contained(iteration, AffineExpr()))
      return std::nullopt;
    return Node{combiner.element, space.indices(iteration)};
  }

  // What the outputs so far and the instances read: what a walk met before is not walked again.
  void meetReads() {
    for (; met_.outputs < domain_.outputs.size(); ++met_.outputs)
      visitReads(space_, domain_.outputs[met_.outputs].node, met_.seen, false, [&](Node node) {
        met_.by_outputs[node.value].push_back(node.at);
        return true;
      });
    if (std::exchange(met_.instances, true))
      return;
    Seen seen;
    for (const Instance& instance : domain_.instances)
      visitReads(space_, instance.element(), seen, false, [&](Node node) {
        met_.by_instances[node.value].push_back(node.at);
        return true;
      });
  }

  // Where the domain reads `value`.
  SmallVector<AffineMap> readsOf(Value value) const {
    SmallVector<AffineMap> reads(met_.by_outputs.lookup(value));
    llvm::append_range(reads, met_.by_instances.lookup(value));
    return reads;
  }

  // `clash`: some tensor says where the output belongs, and that is no place in this domain.
  std::optional<AffineMap> bySharedRead(bool& clash) {
    IndexSpace probe(space_.context(), space_.graphSymbols());
    const SmallVector<AffineExpr> at = dimsFor(probe);
    if (probe.tooManyDims())
      return std::nullopt;
    meetReads();
    const SharedRead shared{probe, at, probe.numDims(), probe.simplify(positionIn(shape_, at))};
    // Most outputs have their place by the first tensor that is shared, which is near: then the walk ends there.
    llvm::SmallMapVector<Value, SmallVector<AffineMap, 2>, 16> theirs;
    std::optional<AffineMap> place;
    bool first = true;
    Seen seen;
    visitReads(probe, {output_, probe.indices(at)}, seen, true, [&](Node node) {
      theirs[node.value].push_back(node.at);
      if (auto ours = first ? readsOf(node.value) : SmallVector<AffineMap>(); !ours.empty()) {
        first = false;
        place = placeBy(shared, node, ours, clash);
      }
      return !place;
    });
    if (place || first)
      return place;
    for (auto& [value, reads] : theirs)
      if (auto ours = readsOf(value); !ours.empty())
        for (AffineMap theirs_at : reads)
          if (auto found = placeBy(shared, {value, theirs_at}, ours, clash))
            return found;
    return std::nullopt;
  }

  // The output's own indices, dims of a space of its own, and the number of its element there.
  struct SharedRead {
    const IndexSpace& probe;
    ArrayRef<AffineExpr> at;
    unsigned output_dims;
    AffineExpr position;
  };

  // The place by a tensor that the output reads as `theirs` and the domain at `ours`.
  std::optional<AffineMap> placeBy(const SharedRead& shared, Node theirs, ArrayRef<AffineMap> ours, bool& clash) {
    const auto shape = shapeOf(cast<RankedTensorType>(theirs.value.getType()));
    const bool same_position = shared.probe.simplify(positionIn(shape, theirs.at.getResults())) == shared.position;
    for (AffineMap ours_at : ours) {
      auto place = inverted(shared.at, shared.output_dims, theirs.at, ours_at);
      if (!place && same_position)
        place = delinearized(positionIn(shape, ours_at.getResults()));
      if (!place || !refused_.insert(*place).second)
        continue;
      // What a concatenation reads of a piece lies inside of the piece's part of the indices only.
      if (!isInside(*place))
        place = delinearized(positionIn(shape_, place->getResults()));
      if (isPlace(*place))
        return place;
      clash = true;
    }
    return std::nullopt;
  }

  // Output indices that make `theirs` (over the probe's dims) equal `ours`: where `theirs` names each dim alone.
  std::optional<AffineMap> inverted(ArrayRef<AffineExpr> at, unsigned output_dims, AffineMap theirs,
                                    AffineMap ours) const {
    SmallVector<AffineExpr> value(output_dims);
    for (auto [their, our] : llvm::zip(theirs.getResults(), ours.getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(their); dim && dim.getPosition() < output_dims)
        value[dim.getPosition()] = our;
    SmallVector<AffineExpr> exprs;
    for (AffineExpr index : at) {
      auto dim = dyn_cast<AffineDimExpr>(index);
      exprs.push_back(dim ? value[dim.getPosition()] : space_.constant(0));
      if (!exprs.back())
        return std::nullopt;
    }
    return space_.indices(exprs);
  }

  AffineExpr positionIn(ArrayRef<AffineExpr> shape, ArrayRef<AffineExpr> at) const {
    AffineExpr position = space_.constant(0);
    for (auto [index, stride] : llvm::zip(at, contiguousStrides(shape, space_.context())))
      position = position + index * stride;
    return position;
  }

  // The indices of the output's element number `position`.
  AffineMap delinearized(AffineExpr position) const {
    SmallVector<AffineExpr> exprs;
    for (auto [size, stride] : llvm::zip(shape_, contiguousStrides(shape_, space_.context())))
      exprs.push_back(constantOf(size) == 1 ? space_.constant(0) : position.floorDiv(stride) % size);
    return space_.indices(exprs);
  }

  bool isPlace(AffineMap at) {
    if (isBijection(at))
      return true;
    if (!domain_.instances.empty())
      return covers(at, domain_.rows);
    SmallVector<unsigned> dims = space_.dimsOf(at).numbers();
    return covers(at, dims) && reducesTheRest({output_, at});
  }

  //===-- by shape -----------------------------------------------------------------------------===//

  // The row dims (or, before there are rows, some of the main output's dims) in order.
  std::optional<AffineMap> byRows() {
    SmallVector<AffineExpr> at;
    bool any = domain_.instances.empty();  // x and sum(x): the reduction keeps some of the main output's dims
    unsigned next = 0;
    for (AffineExpr size : shape_) {
      if (constantOf(size) == 1) {
        at.push_back(space_.constant(0));
        continue;
      }
      while (any && next < domain_.rows.size() && space_.size(domain_.rows[next]) != size)
        ++next;
      if (next == domain_.rows.size() || space_.size(domain_.rows[next]) != size)
        return std::nullopt;
      at.push_back(space_.dim(domain_.rows[next++]));
    }
    AffineMap place = space_.indices(at);
    if (any)
      return reducesTheRest({output_, place}) ? std::optional(place) : std::nullopt;
    return next == domain_.rows.size() ? std::optional(place) : std::nullopt;
  }

  //===-- checks -------------------------------------------------------------------------------===//

  // Whether a reduction over exactly the dims that the place leaves out makes the output.
  bool reducesTheRest(Node output) {
    bool reduces = false;
    Seen seen;
    walkNodes(space_, output, seen, graph_, [&](Node node) {
      if (!graph_.is_input(node.value) && node.value.getDefiningOp() && isReduction(node.value.getDefiningOp())) {
        reduces |= space_.dimsOf(node.at) == space_.dimsOf(output.at);
        return false;
      }
      return true;
    });
    return reduces;
  }

  // Whether the row-major position of `at` in the output takes each value once over all dims of the domain.
  bool isBijection(AffineMap at) {
    SmallVector<unsigned> dims = domain_.rows;
    llvm::append_range(dims, domain_.axis_sets[0].dims);
    return covers(at, dims);
  }
  // Whether each index stays below its size for all of the domain: a position is no proof of it.
  bool isInside(AffineMap at) const {
    return llvm::all_of(llvm::zip(at.getResults(), shape_), [&](auto pair) {
      auto [index, size] = pair;
      if (auto dim = dyn_cast<AffineDimExpr>(index); dim && space_.simplify(space_.size(dim.getPosition())) == size)
        return true;
      if (auto binary = dyn_cast<AffineBinaryOpExpr>(index);
          binary && binary.getKind() == AffineExprKind::Mod && binary.getRHS() == size)
        return true;
      return constantOf(space_.simplify(index.floorDiv(size))) == 0;
    });
  }
  bool covers(AffineMap at, ArrayRef<unsigned> dims) {
    if (!isInside(at))
      return false;
    LinearForm form = space_.linear(space_.simplify(positionIn(shape_, at.getResults())));
    if (constantOf(form.constant) != 0 || form.terms.size() != dims.size())
      return false;
    // The strides, sorted, must be 1, n0, n0 * n1, ...
    AffineExpr expected = space_.constant(1);
    SmallVector<unsigned> left(dims);
    while (!left.empty()) {
      bool advanced = false;
      for (unsigned i = 0; i < left.size() && !advanced; ++i)
        for (const LinearForm::Term& term : form.terms)
          if (term.atom == space_.dim(left[i]) && space_.simplify(term.coefficient) == space_.simplify(expected)) {
            expected = expected * space_.size(left[i]);
            left.erase(left.begin() + i);
            advanced = true;
            break;
          }
      if (!advanced)
        return false;
    }
    return space_.simplify(expected) == space_.simplify(numElements(cast<RankedTensorType>(output_.getType())));
  }

  Domain& domain_;
  IndexSpace& space_;
  const KernelGraph& graph_;
  OutputPlaces::Met& met_;
  Value output_;
  SmallVector<AffineExpr> shape_;
  llvm::DenseSet<AffineMap> refused_;  // places that were looked at: many reads say the same
};

}  // namespace

OutputPlaces::OutputPlaces(Domain& domain, const KernelGraph& graph)
    : domain_(domain), graph_(graph), met_(std::make_unique<Met>()) {}

OutputPlaces::~OutputPlaces() = default;

std::optional<AffineMap> OutputPlaces::of(Value output) { return Placement(domain_, graph_, *met_, output).run(); }

}  // namespace zefuse
