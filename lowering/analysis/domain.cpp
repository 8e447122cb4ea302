#include "lowering/analysis/domain.h"

#include "lowering/analysis/domain_dims.h"

#include "lowering/analysis/placement.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

const Instance* Domain::find(Node result) const {
  for (const Instance& instance : instances)
    if (instance.result() == result)
      return &instance;
  return nullptr;
}

SmallVector<unsigned> Domain::parallelRows() const {
  return llvm::filter_to_vector(rows, [&](unsigned dim) { return dim != scan_dim; });
}

AffineExpr Domain::rowCount() const { return space.product(parallelRows()); }

static thread_local size_t walked = 0;

size_t nodesWalked() { return walked; }

Node behindViews(const IndexSpace& space, const KernelGraph& graph, Node node) {
  while (!graph.is_input(node.value))
    if (auto view = node.value.getDefiningOp<ViewOp>())
      node = {view.getSource(), space.apply(view.getMap(), node.at)};
    else
      break;
  return node;
}

void walkNodes(IndexSpace& space, Node root, llvm::DenseSet<std::pair<Value, AffineMap>>& seen,
               const KernelGraph& graph, llvm::function_ref<bool(Node)> visit) {
  SmallVector<Node> stack{root};
  while (!stack.empty()) {
    Node node = stack.pop_back_val();
    if (!seen.insert({node.value, node.at}).second)
      continue;
    ++walked;
    if (!visit(node) || graph.is_input(node.value))
      continue;
    SmallVector<Node> operands;
    forEachOperand(space, node, [&](Node operand) { operands.push_back(operand); });
    for (Node operand : llvm::reverse(operands))
      stack.push_back(operand);
  }
}

Refusal whyNotElementwise(IndexSpace& space, ArrayRef<Node> roots, const KernelGraph& graph, StringRef op) {
  Refusal refusal;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (Node root : roots)
    walkNodes(space, root, seen, graph, [&](Node node) {
      if (graph.is_input(node.value) || !refusal.reason.empty())
        return false;
      Operation* inner = node.value.getDefiningOp();
      if (inner && isReduction(inner))
        refusal = {inner, "what " + op.str() + " reads does not reduce in the same kernel"};
      else if (isa_and_nonnull<ScanOp>(inner))
        refusal = {inner, op.str() + " and a scan have no kernel in common"};
      else if (isProduct(inner))
        refusal = {inner, op.str() + " and the product that it reads have no kernel in common"};
      else if (auto reason = whyNoPlace(node))
        refusal = {inner, *reason};
      else if (space.numOpaques() >= IndexSpace::max_opaques)
        refusal = {inner, "too many computed indices"};
      return refusal.reason.empty();
    });
  return refusal;
}

/// A bicubic resize reads sixteen elements: of a resized image that is not stored, each is sixteen again, and the code
/// of one kernel takes LLVM minutes.
static bool computesTooOften(const llvm::DenseSet<std::pair<Value, AffineMap>>& nodes) {
  constexpr size_t many = 2048, often = 4;  // nodes; of each value
  if (nodes.size() <= many)
    return false;
  llvm::DenseSet<Value> values;
  for (const auto& node : nodes)
    values.insert(node.first);
  return nodes.size() > often * values.size();
}

bool hasRoom(const IndexSpace& space, Operation* op, Refusal& refusal) {
  if (space.tooManyDims())
    refusal = {op, "it needs more than " + std::to_string(IndexSpace::max_dims) + " loops, which no kernel has"};
  return !space.tooManyDims();
}

std::optional<std::string> whyNoPlace(Node node) {
  Operation* op = node.value.getDefiningOp();
  if (!op || !isa<RankedTensorType>(node.value.getType()))
    return std::nullopt;
  if (isa<tensor::EmptyOp>(op))
    return "reads a tensor that nothing wrote";
  if (isa<ScatterOp>(op))
    return "a scatter's result is read after all of it is written";
  if (isa<SortOp>(op))
    return "a sort's results are read after a row of them is complete";
  if (!isa<linalg::GenericOp, linalg::FillOp, ViewOp, tensor::ConcatOp, PadOp, ScanOp>(op) && !isProduct(op))
    return op->getName().getStringRef().str() + " has no place in a kernel";
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (generic &&
      (generic.getNumResults() != 1 || (!isReduction(op) && !generic.getIndexingMapsArray().back().isIdentity())))
    return "an elementwise linalg.generic needs one result with the identity map";
  return std::nullopt;
}

namespace {

class Analysis {
public:
  Analysis(MLIRContext* context, const KernelGraph& graph, Refusal& refusal)
      : context_(context), graph_(graph), refusal_(refusal) {}

  std::unique_ptr<Domain> run() {
    for (Value output : graph_.outputs)
      if (!isa<RankedTensorType>(output.getType()))
        return refuse(output.getDefiningOp(), "an output is not a ranked tensor");
    for (Value output : graph_.outputs)
      if (auto sort = output.getDefiningOp<SortOp>()) {
        bool alone = llvm::all_of(graph_.outputs, [&](Value other) { return other.getDefiningOp() == sort; });
        return alone ? analyseSort(sort, graph_, refusal_)
                     : refuse(sort, "a sort shares its kernel with no other output");
      }
    for (Value output : graph_.outputs)
      if (auto scatter = output.getDefiningOp<ScatterOp>())
        return graph_.outputs.size() == 1 ? analyseScatter(scatter, graph_, refusal_)
                                          : refuse(scatter, "a scatter shares its kernel with no other output");
    // The output with the widest space drives; when others cannot follow it, another may.
    SmallVector<unsigned> order = llvm::to_vector(llvm::seq<unsigned>(0, graph_.outputs.size()));
    llvm::sort(order, [&](unsigned a, unsigned b) {
      double wa = weight(a), wb = weight(b);
      return wa != wb ? wa > wb : a < b;
    });
    Refusal first;
    for (unsigned main : order) {
      refusal_ = {};
      if (auto domain = attempt(main))
        return domain;
      if (first.reason.empty())
        first = refusal_;
    }
    refusal_ = first;
    return nullptr;
  }

private:
  RankedTensorType typeOf(Value value) const { return cast<RankedTensorType>(value.getType()); }

  double weight(unsigned output) const {
    double elements = 1;
    for (AffineExpr size : shapeOf(typeOf(graph_.outputs[output])))
      elements *= constantOf(size) ? double(*constantOf(size)) : 512.0;
    return elements;
  }

  std::nullptr_t refuse(Operation* op, const Twine& reason) {
    refusal_ = {op, reason.str()};
    return nullptr;
  }

  std::unique_ptr<Domain> attempt(unsigned main) {
    auto domain = std::make_unique<Domain>(context_, graph_.graph_symbols);
    SmallVector<AffineExpr> at;
    for (AffineExpr size : shapeOf(typeOf(graph_.outputs[main])))
      at.push_back(constantOf(size) == 1 ? domain->space.constant(0) : domain->space.dim(domain->space.addDim(size)));
    domain->outputs.push_back({main, {graph_.outputs[main], domain->space.indices(at)}, false});
    domain->axis_sets.emplace_back();
    for (unsigned dim = 0; dim < domain->space.numDims(); ++dim)
      domain->rows.push_back(dim);
    dims_.start(*domain);
    if (!collect(*domain))
      return nullptr;
    // First split: a dim of which a reduction keeps only a part becomes a row dim and a column dim.
    if (!dims_.split(*domain) || !shareColumns(*domain) || !attachOutputs(*domain, main))
      return nullptr;
    if (!checkRows(*domain) || !checkScans(*domain))
      return nullptr;
    if (!dims_.split(*domain) || !dims_.merge(*domain) || !checkProduct(*domain))
      return nullptr;
    markPerRow(*domain);
    llvm::sort(domain->outputs, [](auto& a, auto& b) { return a.number < b.number; });
    return domain;
  }

  // Finds the instances that the outputs need, their axis sets and levels.
  bool collect(Domain& domain) {
    domain.instances.clear();
    domain.scans.clear();
    domain.scan_dim.reset();
    domain.levels = 0;
    if (domain.product)
      llvm::fill(domain.product->at, AffineMap());
    without_reductions_.clear();
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;  // what several outputs need is looked at once
    for (const DomainOutput& output : domain.outputs)
      if (!levelOf(domain, output.node, seen))
        return false;
    if (domain.product) {
      if (!domain.instances.empty() || domain.scan_dim) {
        refuse(domain.product->op, "a product and a reduction or scan have no kernel in common");
        return false;
      }
      completeProduct(domain);
      refusal_ = whyNoOperands(domain, graph_);
      if (!refusal_.reason.empty())
        return false;
    }
    return hasRoom(domain.space, domain.outputs[0].node.value.getDefiningOp(), refusal_);
  }

  // One more than the highest level among the instances that `root` needs (0: none). What was seen is taken to need
  // none, as it is if `seen` is without_reductions_: the elements of many reductions are made of the same.
  std::optional<unsigned> levelOf(Domain& domain, Node root, llvm::DenseSet<std::pair<Value, AffineMap>>& seen) {
    unsigned level = 0;
    bool fine = true;
    SmallVector<Node> fresh;
    SmallVector<Node> reductions;
    walkNodes(domain.space, root, seen, graph_, [&](Node node) {
      fresh.push_back(node);
      if (graph_.is_input(node.value))
        return true;
      Operation* op = node.value.getDefiningOp();
      if (op && isReduction(op)) {
        reductions.push_back(node);
        return false;
      }
      if (auto reason = whyNoPlace(node)) {
        refuse(op, *reason);
        fine = false;
      }
      if (auto scan = dyn_cast_or_null<ScanOp>(op))
        fine &= noteScan(domain, scan, node);
      if (isProduct(op))
        fine &= noteProduct(domain, node);
      if (isa_and_nonnull<tensor::ConcatOp, PadOp>(op)) {
        if (Operation* reduction = reductionAlong(domain, node)) {
          refuse(reduction, "a concatenation or padding takes this reduction's or scan's results for some rows only");
          fine = false;
        }
      }
      if (domain.space.numOpaques() >= IndexSpace::max_opaques) {
        refuse(op, "too many computed indices");
        fine = false;
      }
      return fine;
    });
    if (fine && computesTooOften(seen)) {
      refuse(root.value.getDefiningOp(), "it would compute the same steps at too many places");
      fine = false;
    }
    if (!fine)
      return std::nullopt;
    if (&seen == &without_reductions_ && (!reductions.empty() || domain.product))
      for (Node node : fresh)
        seen.erase({node.value, node.at});
    for (Node node : reductions) {
      auto known = instance(domain, node);
      if (!known)
        return std::nullopt;
      level = std::max(level, *known + 1);
    }
    return level;
  }

  // A scan steps along one whole dim of the domain, the same for all scans.
  bool noteScan(Domain& domain, ScanOp scan, Node node) {
    auto dim = dyn_cast<AffineDimExpr>(node.at.getResult(scan.getDim()));
    unsigned uses = 0;
    for (AffineExpr index : node.at.getResults())
      uses += dim && domain.space.dimsOf(index).test(dim.getPosition());
    if (!dim || uses != 1 || (domain.scan_dim && *domain.scan_dim != dim.getPosition()) ||
        domain.space.size(dim.getPosition()) !=
            shapeOf(cast<RankedTensorType>(scan.getResult().getType()))[scan.getDim()]) {
      refuse(scan, "a scan's result is read in another order than it is made");
      return false;
    }
    domain.scan_dim = dim.getPosition();
    if (!llvm::is_contained(domain.scans, node))
      domain.scans.push_back(node);
    return true;
  }

  // One product, whose elements are needed where they are made.
  bool noteProduct(Domain& domain, Node node) {
    Operation* op = node.value.getDefiningOp();
    if (reducing_ > 0) {
      refuse(op, "tiles of a product make no whole rows, which a reduction of its result wants");
      return false;
    }
    if (domain.product && domain.product->op != op) {
      refuse(op, "two products have no kernel in common");
      return false;
    }
    if (!domain.product) {
      domain.product.emplace().op = op;
      domain.product->at.resize(op->getNumResults());
    }
    AffineMap& at = domain.product->at[cast<OpResult>(node.value).getResultNumber()];
    if (at && at != node.at) {
      refuse(op, "a product's result is needed at several places at once");
      return false;
    }
    at = node.at;
    return true;
  }

  // Of a vector that crosses from one piece into the next, what is computed of a piece is computed at indices inside of
  // it, where no product's sums lie (Evaluator::pieceOfEachLane). The sums themselves are there in all lanes.
  bool computesPieceOfProduct(Domain& domain) {
    bool found = false;
    auto reads_product = [&](Node node) {
      llvm::DenseSet<std::pair<Value, AffineMap>> seen;
      walkNodes(domain.space, node, seen, graph_, [&](Node each) {
        found |= isProduct(each.value.getDefiningOp());
        return !found;
      });
    };
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    for (const DomainOutput& output : domain.outputs)
      walkNodes(domain.space, output.node, seen, graph_, [&](Node node) {
        auto concat = node.value.getDefiningOp<tensor::ConcatOp>();
        if (!concat || graph_.is_input(node.value))
          return !found;
        for (const Piece& piece : piecesOf(concat)) {
          const Node source =
              behindViews(domain.space, graph_, {piece.value, pieceIndices(domain.space, concat, piece, node.at)});
          if (!isProduct(source.value.getDefiningOp()))
            reads_product(source);
        }
        return !found;
      });
    return found;
  }

  bool checkProduct(Domain& domain) {
    if (!domain.product)
      return true;
    if (computesPieceOfProduct(domain)) {
      refuse(domain.product->op, "a product's result is computed with in one piece of a concatenation");
      return false;
    }
    refusal_ = whyNotBound(domain);
    return refusal_.reason.empty();
  }

  bool checkScans(Domain& domain) {
    if (domain.scans.empty())
      return true;
    if (!domain.instances.empty()) {
      refuse(domain.scans.front().value.getDefiningOp(), "a scan and a reduction have no kernel in common");
      return false;
    }
    return true;
  }

  // A reduction or scan that a piece of the concatenation (or what is padded) needs at indices that depend on where in
  // it they lie. A row computes its instances and scans before it is known which piece it takes, and outside of its own
  // piece there are no rows to read.
  Operation* reductionAlong(Domain& domain, Node pieces) {
    Dims along;
    if (auto concat = pieces.value.getDefiningOp<tensor::ConcatOp>())
      along = domain.space.dimsOf(pieces.at.getResult(concat.getDim()));
    else
      for (unsigned dim : paddedDims(pieces.value.getDefiningOp<PadOp>()))
        along |= domain.space.dimsOf(pieces.at.getResult(dim));
    Operation* found = nullptr;
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    forEachOperand(domain.space, pieces, [&](Node piece) {
      walkNodes(domain.space, piece, seen, graph_, [&](Node node) {
        Operation* op = graph_.is_input(node.value) ? nullptr : node.value.getDefiningOp();
        if (!isReduction(op) && !isa_and_nonnull<ScanOp>(op))
          return true;
        if (domain.space.dimsOf(node.at).anyCommon(along))
          found = op;
        return false;
      });
    });
    return found;
  }

  // The level of the instance (op, kept), which is made on first use.
  std::optional<unsigned> instance(Domain& domain, Node result) {
    if (const Instance* known = domain.find(result))
      return known->level;
    auto op = cast<linalg::GenericOp>(result.value.getDefiningOp());
    Combiner combiner = combinerOf(op);
    if (op.getNumResults() != 1 || !combiner.op || !initOf(op)) {
      refuse(op, "a reduction needs one combiner and an init made by linalg.fill");
      return std::nullopt;
    }
    Instance made{op, result.at};
    SmallVector<AffineExpr> sizes(op.getNumLoops());
    for (OpOperand& operand : op->getOpOperands()) {
      AffineMap map = op.getMatchingIndexingMap(&operand);
      for (auto [expr, size] : llvm::zip(map.getResults(), shapeOf(typeOf(operand.get()))))
        if (auto dim = dyn_cast<AffineDimExpr>(expr))
          sizes[dim.getPosition()] = size;
    }
    SmallVector<AffineExpr> reduced, iteration(op.getNumLoops());
    for (auto [dim, kind] : llvm::enumerate(op.getIteratorTypesArray())) {
      if (!sizes[dim]) {
        refuse(op, "a loop's size is not given by an operand");
        return std::nullopt;
      }
      if (kind == utils::IteratorType::reduction)
        reduced.push_back(sizes[dim]);
    }
    made.axes = axisSet(domain, reduced);
    unsigned axis = 0;
    for (auto [dim, kind] : llvm::enumerate(op.getIteratorTypesArray()))
      if (kind == utils::IteratorType::reduction)
        iteration[dim] = domain.axis_sets[made.axes].indices[axis++];
    AffineMap output_map = op.getIndexingMapsArray().back();
    for (auto [expr, index] : llvm::zip(output_map.getResults(), result.at.getResults())) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (!dim) {
        refuse(op, "the result's map is not a projection");
        return std::nullopt;
      }
      iteration[dim.getPosition()] = index;
    }
    if (llvm::is_contained(iteration, AffineExpr())) {
      refuse(op, "the result's map leaves a kept dimension out");
      return std::nullopt;
    }
    made.iteration = domain.space.indices(iteration);
    ++reducing_;
    auto level = levelOf(domain, made.element(), without_reductions_);
    --reducing_;
    if (!level)
      return std::nullopt;
    made.level = *level;
    domain.levels = std::max(domain.levels, made.level + 1);
    domain.instances.push_back(made);
    return made.level;
  }

  unsigned axisSet(Domain& domain, ArrayRef<AffineExpr> sizes) {
    for (auto [number, set] : llvm::enumerate(domain.axis_sets))
      if (!set.sizes.empty() && ArrayRef(set.sizes) == sizes)
        return number;
    AxisSet set;
    set.sizes.assign(sizes.begin(), sizes.end());
    for (AffineExpr size : sizes) {
      if (constantOf(size) == 1) {
        set.indices.push_back(domain.space.constant(0));
        continue;
      }
      set.dims.push_back(domain.space.addDim(size));
      set.indices.push_back(domain.space.dim(set.dims.back()));
    }
    domain.axis_sets.push_back(std::move(set));
    return domain.axis_sets.size() - 1;
  }

  // Row dims are those that an instance keeps, column dims the outputs' others (without reductions all are row dims).
  // Reductions over as much as the columns hold then run over the very same dims.
  bool shareColumns(Domain& domain) {
    if (domain.instances.empty())
      return true;
    Dims kept;
    for (const Instance& instance : domain.instances)
      kept |= domain.space.dimsOf(instance.kept);
    SmallVector<unsigned> all = domain.rows;
    domain.rows.clear();
    domain.axis_sets.assign(1, AxisSet());
    AxisSet& columns = domain.axis_sets[0];
    for (unsigned dim : all)
      (kept.test(dim) ? domain.rows : columns.dims).push_back(dim);
    for (const DomainDims::OfMain& main : dims_.ofMain()) {
      Dims dims = domain.space.dimsOf(main.index);
      if (!dims.anyCommon(kept)) {
        columns.sizes.push_back(main.size);
        columns.indices.push_back(main.index);
        continue;
      }
      for (unsigned dim : columns.dims)
        if (dims.test(dim)) {
          columns.sizes.push_back(domain.space.size(dim));
          columns.indices.push_back(domain.space.dim(dim));
        }
    }
    return collect(domain);
  }

  bool checkRows(Domain& domain) {
    Dims rows;
    for (unsigned dim : domain.rows)
      rows.set(dim);
    for (const Instance& instance : domain.instances) {
      Dims kept = domain.space.dimsOf(instance.kept);
      if (kept.without(rows).any()) {
        refuse(instance.op, "the reduction's result feeds another iteration space: it is needed per "
                            "element of what another reduction runs over");
        return false;
      }
      if (rows.without(kept).any()) {
        refuse(instance.op, "the reduction would be computed again for each index of a dimension that it "
                            "does not depend on");
        return false;
      }
      // Rows that share a result (an index modulo something) would compute it more than once as well.
      AffineExpr results = numElements(typeOf(instance.op->getResult(0)));
      AffineExpr count = domain.rowCount();
      auto few = constantOf(results), many = constantOf(count);
      bool divided = llvm::any_of(instance.kept.getResults(), hasDivisions);
      if (few && many ? *many > *few : divided && domain.space.simplify(results) != count) {
        refuse(instance.op, "a view lets several rows share the reduction's result, which each would compute again");
        return false;
      }
    }
    return true;
  }

  bool attachOutputs(Domain& domain, unsigned main) {
    OutputPlaces places(domain, graph_);
    for (auto [number, output] : llvm::enumerate(graph_.outputs)) {
      if (number == main)
        continue;
      auto at = places.of(output);
      if (!at) {
        refuse(output.getDefiningOp(), "this output's iteration space differs from that of the "
                                       "kernel's largest output");
        return false;
      }
      domain.outputs.push_back({unsigned(number), {output, *at}, false});
    }
    if (domain.outputs.size() > 1) {
      bool had_instances = !domain.instances.empty();
      if (!collect(domain))
        return false;
      // A pointwise main output beside a reduction of the same rows, e.g. x * 2 and sum(x).
      if (!had_instances && !shareColumns(domain))
        return false;
    }
    return true;
  }

  void markPerRow(Domain& domain) {
    if (domain.product) {
      for (DomainOutput& output : domain.outputs)
        output.per_row = isOfProductRows(domain, output);
      return;
    }
    for (DomainOutput& output : domain.outputs) {
      Dims dims = domain.space.dimsOf(output.node.at);
      output.per_row = !domain.instances.empty();
      for (unsigned dim : domain.axis_sets[0].dims)
        output.per_row &= !dims.test(dim);
    }
  }

  /// Whether the output wants nothing of the product's first result, of two, and is one element for each of its rows.
  bool isOfProductRows(Domain& domain, const DomainOutput& output) const {
    const ProductForm& product = *domain.product;
    if (product.at.size() < 2)
      return false;
    if (!product.at[0])
      return true;
    bool rows = !domain.space.dimsOf(output.node.at).anyCommon(domain.space.dimsOf(product.at[0].getResults().back()));
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    walkNodes(domain.space, output.node, seen, graph_, [&](Node node) {
      rows &= !(node == product.result());
      return rows;
    });
    return rows;
  }

  MLIRContext* context_;
  const KernelGraph& graph_;
  Refusal& refusal_;
  DomainDims dims_{graph_, [this](Domain& domain) { return collect(domain); }};
  unsigned reducing_ = 0;                                           // reductions whose element is being analysed
  llvm::DenseSet<std::pair<Value, AffineMap>> without_reductions_;  // nodes of elements, in the domain as it is
};

}  // namespace

std::unique_ptr<Domain> analyseDomain(MLIRContext* context, const KernelGraph& graph, Refusal& refusal) {
  return Analysis(context, graph, refusal).run();
}

}  // namespace zefuse
