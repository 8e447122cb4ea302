#include "lowering/schedule/core/strategy.h"

#include "lowering/analysis/element_types.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/schedule/core/kept_values.h"
#include "lowering/schedule/core/op_cost.h"
#include "lowering/schedule/core/pieces.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "lowering/schedule/core/short_pieces.h"
#include "lowering/schedule/core/sort_plan.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

unsigned lanesFor(const IndexSpace& space, unsigned dim, const TargetDescription& target) {
  auto size = constantOf(space.size(dim));
  unsigned lanes = target.vector_width;
  while (size && int64_t(lanes) > *size && lanes > 1)
    lanes /= 2;
  return lanes;
}

namespace {

constexpr double long_update = 64;         // elements of one update of a scatter, from which on ranges are shared
constexpr double many_indices = 256;       // of a scatter's result, to share
constexpr double some_indices = 32;        // the same, and of its updates, of work-groups
constexpr double long_reduction = 32;      // elements: fewer stay in registers, and need no strips
constexpr int64_t strip_budget = 8 << 10;  // bytes of partial results, beside what streams through the L1 cache

constexpr int64_t whole_rows_budget = 16 << 10;  // the same, of strips that leave nothing of a place out

constexpr double strip_places_budget = 1 << 20;  // bytes of a strip's elements that several stages walk
constexpr int64_t fewest_vectors = 4;
constexpr double many_places = 32;           // that share what is loaded once for them
constexpr double recomputed_in_strips = 24;  // operations for an element, an exponential say: less than memory's pace
constexpr double scattered_load = 8;         // of lanes that load one by one, beside a vector's

constexpr int64_t same_set = 4 << 10;  // bytes apart, lines fall into one set of a first-level cache

using Seen = llvm::DenseSet<std::pair<Value, AffineMap>>;

class Chooser {
public:
  Chooser(Domain& domain, const KernelGraph& graph, const TargetDescription& target, Decisions& decisions)
      : domain_(domain), space_(domain.space), graph_(graph), target_(target), decisions_(decisions) {}

  Strategy run() {
    Strategy strategy;
    if (domain_.scatter)
      return scatter();
    if (domain_.sort)
      return sort();
    if (domain_.product)
      return strategy;  // chosen with its tiles
    chooseLanes(strategy);
    if (!target_.hasWorkGroups() && domain_.instances.empty())
      choosePieces(strategy);
    else if (!target_.hasWorkGroups())
      chooseInterleaved(strategy);
    strategy.output_levels.assign(domain_.outputs.size(), domain_.levels);
    if (!target_.hasWorkGroups()) {  // all stages of a row are one work-item's
      chooseOutputLevels(strategy);
      chooseKept(strategy);
      chooseStrip(strategy);
    }
    strategy.unit_cost = unitCost(domain_, graph_);
    if (domain_.scan_dim)
      strategy.unit_cost *= estimate(space_.size(*domain_.scan_dim));
    return strategy;
  }

private:
  double estimate(AffineExpr size) const { return estimated(space_, size); }

  struct Access {
    AffineExpr offset;
    double weight;
    int64_t bytes;  // of an element
  };

  static int64_t bytesOf(Value tensor) { return bytesInMemory(cast<ShapedType>(tensor.getType()).getElementType()); }

  // What computing `roots` reads.
  SmallVector<Access> accesses(ArrayRef<Node> roots) const {
    SmallVector<Access> result;
    Seen seen;
    for (Node root : roots)
      walkNodes(space_, root, seen, graph_, [&](Node node) {
        if (graph_.is_input(node.value)) {
          result.push_back({graph_.offset(space_, node), 1, bytesOf(node.value)});
          return false;
        }
        Operation* op = node.value.getDefiningOp();
        return !op || !isReduction(op);
      });
    return result;
  }

  // What the stage of a level computes: the elements of its reductions, and the outputs stored there.
  SmallVector<Node> rootsOf(unsigned level, const Strategy& strategy) const {
    SmallVector<Node> roots;
    for (const Instance& instance : domain_.instances)
      if (instance.level == level)
        roots.push_back(instance.element());
    for (auto [number, output] : llvm::enumerate(domain_.outputs))
      if (!output.per_row && strategy.output_levels[number] == level)
        roots.push_back(output.node);
    return roots;
  }

  SmallVector<Access> outputAccesses(bool per_row) const {
    SmallVector<Access> result;
    SmallVector<Node> roots;
    for (const DomainOutput& output : domain_.outputs)
      if (output.per_row == per_row) {
        result.push_back({graph_.output_offset(space_, output), 1.5, bytesOf(output.node.value)});
        roots.push_back(output.node);
      }
    llvm::append_range(result, accesses(roots));
    return result;
  }

  // Relative time per element with the lanes along `dim`; 1 for scalar code.
  double cost(ArrayRef<Access> accesses, unsigned dim) const {
    double lanes = target_.hasWorkGroups() ? target_.subgroup_size : lanesFor(space_, dim, target_);
    double sum = 0.5;
    for (const Access& access : accesses) {
      AffineExpr stride = space_.strideAlong(access.offset, dim);
      auto step = constantOf(stride);
      if (step && *step == 0)
        sum += 0.3 * access.weight;
      else if (step && *step == 1)
        sum += access.weight;
      else
        sum += lanes * access.weight;
    }
    return sum / lanes;
  }

  unsigned best(ArrayRef<Access> accesses, ArrayRef<unsigned> dims, double& best_cost) const {
    unsigned chosen = Strategy::none;
    best_cost = 1e30;
    for (unsigned dim : llvm::reverse(dims)) {
      double mine = cost(accesses, dim);
      if (mine < best_cost * 0.999) {
        best_cost = mine;
        chosen = dim;
      }
    }
    return chosen;
  }

  // Sums whose lanes are far apart in memory: at every step each lane has a cache line of its own, which with rows of
  // 2^n bytes all fall into one set of the cache. One row after the other streams, and an addition a step is no chain
  // to hide. (What takes longer per step, a running maximum or log-sum-exp, has its lanes all the same.)
  bool sumsFarApart(unsigned dim) const {
    bool cheap = llvm::all_of(domain_.scans, [](Node scan) {
      Block& body = scan.value.getDefiningOp<ScanOp>().getBody().front();
      return llvm::all_of(body.without_terminator(),
                          [](Operation& op) { return isa<arith::AddFOp, arith::AddIOp>(op); });
    });
    return cheap && llvm::any_of(domain_.outputs, [&](const DomainOutput& output) {
             return constantOf(space_.strideAlong(graph_.output_offset(space_, output), dim)) != 1;
           });
  }

  SmallVector<Access> stageAccesses(unsigned axes) const {
    SmallVector<Node> roots;
    for (const Instance& instance : domain_.instances)
      if (instance.axes == axes)
        roots.push_back(instance.element());
    SmallVector<Access> result = accesses(roots);
    if (axes == 0)
      llvm::append_range(result, outputAccesses(false));
    return result;
  }

  void chooseLanes(Strategy& strategy) {
    strategy.axis_lanes.assign(domain_.axis_sets.size(), Strategy::none);
    double rows_cost = 0, axes_cost = 0;
    if (domain_.instances.empty()) {
      SmallVector<Access> all = outputAccesses(false);
      strategy.row_lanes = best(all, domain_.parallelRows(), rows_cost);
      bool past_pieces = false;
      if (strategy.row_lanes != Strategy::none && !target_.hasWorkGroups()) {
        const unsigned other = lanesOfOnePiece(domain_, domain_.parallelRows(), strategy.row_lanes, graph_, target_);
        past_pieces = other != strategy.row_lanes && decisions_.take("lanes of one piece", true);
        if (past_pieces)
          strategy.row_lanes = other;
      }
      bool row_at_a_time = false;
      if (domain_.scan_dim && strategy.row_lanes != Strategy::none && !target_.hasWorkGroups() &&
          decisions_.take("scans a row at a time", sumsFarApart(strategy.row_lanes))) {
        strategy.row_lanes = Strategy::none;
        row_at_a_time = true;
      }
      if (domain_.scan_dim)
        strategy.choices.push_back(choice::Scan{row_at_a_time});
      else
        strategy.choices.push_back(choice::Pointwise{past_pieces});
      strategy.lanes_in_rows = strategy.row_lanes != Strategy::none;
      if (strategy.lanes_in_rows && !domain_.scan_dim && !past_pieces)
        chooseTile(strategy, all);
      return;
    }
    SmallVector<Access> everything;
    for (unsigned axes = 0; axes < domain_.axis_sets.size(); ++axes) {
      if (domain_.axis_sets[axes].dims.empty())
        continue;
      SmallVector<Access> mine = stageAccesses(axes);
      double set_cost;
      strategy.axis_lanes[axes] = best(mine, domain_.axis_sets[axes].dims, set_cost);
      axes_cost += set_cost;
      llvm::append_range(everything, mine);
    }
    strategy.row_lanes = best(everything, domain_.rows, rows_cost);
    unsigned sets = llvm::count_if(domain_.axis_sets, [](auto& set) { return !set.dims.empty(); });
    strategy.lanes_in_rows = strategy.row_lanes != Strategy::none && (sets == 0 || rows_cost * sets < axes_cost * 0.8);
    if (sets != 0 && strategy.row_lanes != Strategy::none)
      strategy.lanes_in_rows = decisions_.take("lanes across rows", strategy.lanes_in_rows);
    strategy.choices.push_back(choice::Reduction{strategy.lanes_in_rows, rows_cost, axes_cost});
  }

  // Sums that registers hold otherwise than memory have no slots in strips.
  bool sumsHaveSlots() const {
    return llvm::all_of(domain_.instances, [](const Instance& instance) {
      return registerType(combinerOf(instance.op).op->getResult(0).getType()).getIntOrFloatBitWidth() >= 32;
    });
  }

  // Whether a later stage may find something kept that the first has computed.
  bool mayKeep() const {
    bool expensive = false;
    Seen seen;
    for (const Instance& instance : domain_.instances)
      walkNodes(space_, instance.element(), seen, graph_, [&](Node node) {
        expensive |= !graph_.is_input(node.value) && isExpensive(node.value);
        return !domain_.find(node) && !graph_.is_input(node.value);
      });
    return expensive;
  }

  void choosePieces(Strategy& strategy) {
    if (!strategy.lanes_in_rows || domain_.scan_dim || strategy.tile_dim != Strategy::none)
      return;
    auto pieces = joinPieces(domain_, strategy.row_lanes, graph_, target_, decisions_);
    if (!pieces)
      return;
    strategy.row_lanes = pieces->dim;
    strategy.lane_values_outer = pieces->outer;
    strategy.lane_values = std::move(pieces->values);
    if (!strategy.lane_values.empty())
      strategy.choices.push_back(choice::LaneValues{int64_t(strategy.lane_values.size())});
  }

  void chooseInterleaved(Strategy& strategy) {
    if (strategy.lanes_in_rows && sumsHaveSlots())
      strategy.row_lanes =
          joinRows(domain_, strategy.row_lanes, graph_, target_, decisions_).value_or(strategy.row_lanes);
    if (strategy.lanes_in_rows || !sumsHaveSlots())
      return;
    strategy.interleaved = interleaveRows(domain_, mayKeep(), graph_, target_, decisions_);
    if (!strategy.interleaved)
      return;
    strategy.lanes_in_rows = true;
    strategy.row_lanes = strategy.interleaved->dim;
    for (Choice& choice : strategy.choices)
      if (auto* reduction = std::get_if<choice::Reduction>(&choice))
        reduction->across_rows = true;
    strategy.choices.push_back(choice::Interleaved{strategy.interleaved->rows(), strategy.interleaved->piece});
  }

  // Lanes along a row dim on which no index depends and along which the result's elements are neighbours: lanes then
  // change different elements.
  Strategy scatter() {
    ScatterForm& form = *domain_.scatter;
    Strategy strategy;
    strategy.kept_bytes = space_.constant(0);
    AffineExpr target = graph_.output_offset(space_, domain_.outputs[0]);
    SmallVector<Access> all = accesses({form.init(), form.update()});
    all.push_back({target, 3, bytesOf(domain_.outputs[0].node.value)});
    double cost = 0;
    strategy.row_lanes = best(all, rowsAlong(target), cost);
    double updates = 1, fills = 1;
    for (unsigned dim : form.sequential)
      updates *= estimate(space_.size(dim));
    for (unsigned dim : form.fill)
      fills *= form.in_place ? 0 : estimate(space_.size(dim));
    strategy.unit_cost = updates * 16 + fills * 8;
    using Parallel = choice::Scatter::Parallel;
    choice::Scatter choice{domain_.rows.empty() ? Parallel::nothing : Parallel::free_dims, 1, updates};
    for (unsigned dim : domain_.rows)
      choice.row_elements *= estimate(space_.size(dim));
    chooseRange(strategy, choice, fills);
    chooseSums(strategy, choice);
    chooseFill(strategy, choice, fills);
    strategy.choices.push_back(choice);
    return strategy;
  }

  // The row dims along which the elements at `offset` are neighbours.
  SmallVector<unsigned> rowsAlong(AffineExpr offset) const {
    SmallVector<unsigned> dims;
    for (unsigned dim : domain_.rows)
      if (constantOf(space_.strideAlong(offset, dim)) == 1)
        dims.push_back(dim);
    return dims;
  }

  // Where indices differ along a row dim whose elements lie together, a row by itself would be filled a cache line for
  // each element: vectors of rows fill memory as it lies.
  void chooseFill(Strategy& strategy, choice::Scatter& choice, double fills) const {
    ScatterForm& form = *domain_.scatter;
    if (target_.hasWorkGroups() || strategy.row_lanes != Strategy::none || strategy.scatter_range != Strategy::none ||
        form.in_place || form.fill.empty())
      return;
    AffineExpr offset = graph_.output_offset(space_, {0, {domain_.outputs[0].node.value, form.init_at}, false});
    SmallVector<Access> all = accesses({form.init()});
    all.push_back({offset, 1.5, bytesOf(domain_.outputs[0].node.value)});
    double cost = 0;
    strategy.row_lanes = best(all, rowsAlong(offset), cost);
    strategy.scatter_fill_lanes = choice.fill_lanes = strategy.row_lanes != Strategy::none;
    if (strategy.scatter_fill_lanes)
      strategy.unit_cost = choice.updates * 16 * lanesFor(space_, strategy.row_lanes, target_) + fills * 8;
  }

  // Each group owns a range of the result's outermost addressed dimension: it fills memory as it lies, and applies the
  // updates that land there, in order. Every group reads all indices: worth it when an update is long.
  void chooseRange(Strategy& strategy, choice::Scatter& choice, double fills) const {
    ScatterForm& form = *domain_.scatter;
    if (form.fill.empty())
      return;
    Dims free;
    for (unsigned dim : domain_.rows)
      free.set(dim);
    double size = estimate(space_.size(form.fill.front()));
    const auto* at = llvm::find(form.init_at.getResults(), space_.dim(form.fill.front()));
    unsigned position = at - form.init_at.getResults().begin();
    // Work-groups share ranges unless there is a row for most work-items that run at a time.
    const bool few = target_.hasWorkGroups() ? size < some_indices || choice.updates < some_indices ||
                                                   choice.row_elements * 4 > double(target_.resident_items)
                                             : choice.row_elements < long_update || size < many_indices ||
                                                   (form.in_place && choice.updates < many_indices);
    if (few || space_.dimsOf(form.target.getResult(position)).anyCommon(free))
      return;
    strategy.scatter_range = position;
    strategy.unit_cost = choice.row_elements / size * (choice.updates * 16 + fills * 8) / target_.vector_width;
    choice.over = choice::Scatter::Parallel::ranges;
  }

  void chooseSums(Strategy& strategy, choice::Scatter& choice) {
    if (!target_.hasWorkGroups())
      return;
    auto plan = planScatterSums(domain_, strategy.row_lanes, choice.updates, target_);
    if (!plan || !decisions_.take("sums of slices of the updates", true))
      return;
    choice.slices = plan->teams;
    strategy.scatter_range = plan->position;
    strategy.scatter_sums = plan;
  }

  Strategy sort() const {
    SortPlan plan = (target_.hasWorkGroups() ? planGroupSort : planSort)(*domain_.sort, space_);
    Strategy strategy;
    strategy.unit_cost = plan.cost;
    strategy.kept_bytes = plan.bytes;
    auto bytes = constantOf(plan.bytes);
    strategy.kept_static =
        bytes && *bytes <= (target_.hasWorkGroups() ? target_.local_memory_bytes : target_.private_row_bytes);
    strategy.choices.push_back(plan.choice);
    return strategy;
  }

  void chooseTile(Strategy& strategy, ArrayRef<Access> accesses) {
    for (const Access& access : accesses) {
      AffineExpr along = space_.strideAlong(access.offset, strategy.row_lanes);
      if (along && constantOf(along) && *constantOf(along) >= 0 && *constantOf(along) <= 4)
        continue;
      for (unsigned dim : domain_.rows)
        if (dim != strategy.row_lanes && constantOf(space_.strideAlong(access.offset, dim)) == 1) {
          if (decisions_.take("tiles for a transposed load", true)) {
            strategy.tile_dim = dim;
            auto apart = along ? constantOf(along) : std::nullopt;
            strategy.lanes_collide = !target_.hasWorkGroups() && apart && *apart * access.bytes % same_set == 0;
            strategy.choices.push_back(choice::TransposedLoad{dim, strategy.lanes_collide});
          }
          return;
        }
    }
  }

  // An output whose elements a stage meets anyway, when all that they need is known, is stored there: what leads to
  // it is read and computed once.
  void chooseOutputLevels(Strategy& strategy) {
    for (auto [number, output] : llvm::enumerate(domain_.outputs)) {
      unsigned ready = 0;
      Seen seen;
      walkNodes(space_, output.node, seen, graph_, [&](Node node) {
        const Instance* instance = domain_.find(node);
        ready = instance ? std::max(ready, instance->level + 1) : ready;
        return !instance;
      });
      unsigned& level = strategy.output_levels[number];
      for (const Instance& instance : domain_.instances)
        if (!output.per_row && instance.axes == 0 && instance.level >= ready)
          level = std::min(level, instance.level);
    }
  }

  // Vectors of rows whose elements a second-level cache still holds when a later stage walks them again; but as many as
  // make memory be read as it lies.
  int64_t cachedVectors(const Strategy& strategy, unsigned lanes) const {
    const bool again = domain_.levels > 1 || llvm::any_of(llvm::enumerate(domain_.outputs), [&](const auto& output) {
                         return !output.value().per_row && strategy.output_levels[output.index()] == domain_.levels;
                       });
    if (!again)
      return std::numeric_limits<int64_t>::max();
    double bytes = 0;
    for (const auto& set : domain_.axis_sets) {
      double places = 1;
      for (unsigned dim : set.dims)
        places *= estimate(space_.size(dim));
      bytes = std::max(bytes, places * lanes * 4);
    }
    return std::max<int64_t>(int64_t(strip_places_budget / bytes), fewest_vectors);
  }

  // In strips: it is computed once per vector of rows and not at each place, or loaded element by element. What a load
  // and an operation make is as quick as a load of what is held.
  bool isWorthHolding(const Strategy& strategy, Node node) const {
    if (!isa<RankedTensorType>(node.value.getType()))
      return false;
    double work = 0;
    Seen seen;
    walkNodes(space_, node, seen, graph_, [&](Node part) {
      const bool input = graph_.is_input(part.value), result = domain_.find(part) != nullptr;
      if (input) {
        auto step = constantOf(space_.strideAlong(graph_.offset(space_, part), strategy.row_lanes));
        work += !step || *step > 1 ? scattered_load : 1;
      } else if (result) {
        work += 1;
      } else if (Operation* op = part.value.getDefiningOp(); op && !isa<RankedTensorType>(part.value.getType())) {
        work += opCost(op);
      }
      return !input && !result;
    });
    return work > 2;
  }

  // One vector of rows at a time steps through memory by whole rows, a cache line from each: pages and lines come late.
  // Many at a time read what lies together.
  void chooseStrip(Strategy& strategy) const {
    const bool interleaved = strategy.interleaved.has_value();
    if (!strategy.lanes_in_rows || domain_.instances.empty() || domain_.scan_dim ||
        (!interleaved && costOfKept(strategy, domain_, graph_) > recomputed_in_strips))
      return;
    unsigned lanes = lanesFor(space_, strategy.row_lanes, target_);
    int64_t bytes = 0;
    auto blocks = constantOf(space_.size(strategy.row_lanes).ceilDiv(lanes));
    if (blocks && *blocks < 2 && !interleaved)
      return;
    auto bits = [](Value value) { return registerType(getElementTypeOrSelf(value.getType())).getIntOrFloatBitWidth(); };
    auto hasSlot = [&](Value value) { return bits(value) >= 32; };  // narrower ones lie otherwise in memory
    auto slot = [&](Value value) { bytes += lanes * bits(value) / 8; };
    bool fits = true;
    double longest = 0;
    for (const Instance& instance : domain_.instances) {
      double elements = 1;
      for (unsigned dim : domain_.axis_sets[instance.axes].dims)
        elements *= estimate(space_.size(dim));
      longest = std::max(longest, elements);
      slot(combinerOf(instance.op).op->getResult(0));
      fits &= hasSlot(combinerOf(instance.op).op->getResult(0));
    }
    fits &= longest >= long_reduction || interleaved;
    Dims rows;
    for (unsigned dim : domain_.rows)
      rows.set(dim);
    std::vector<std::vector<Node>> values(domain_.levels + 1);
    for (unsigned level = 0; level <= domain_.levels && fits; ++level) {
      Seen seen;
      for (Node root : rootsOf(level, strategy))
        walkNodes(space_, root, seen, graph_, [&](Node node) {
          Dims dims = space_.dimsOf(node.at);
          if (!dims.test(strategy.row_lanes) || dims.without(rows).any() || !isWorthHolding(strategy, node))
            return !domain_.find(node) && !graph_.is_input(node.value);
          const bool mine = hasSlot(node.value);
          fits &= mine || costOf(node.value) < 4;
          if (mine) {
            slot(node.value);
            values[level].push_back(node);
          }
          return !mine;
        });
    }
    if (interleaved) {
      strategy.strip = unsigned(*blocks);
      strategy.strip_values = std::move(values);
      return;
    }
    if (!fits)
      return;
    int64_t vectors = std::max<int64_t>(std::min(strip_budget / bytes, cachedVectors(strategy, lanes)), 2);
    if (blocks && *blocks * bytes <= whole_rows_budget)  // memory is read as it lies
      vectors = *blocks;
    SmallVector<int64_t> others{0};  // one vector at a time
    for (int64_t other : {vectors / 4, vectors / 2, vectors * 2, vectors * 4})
      if (other >= 2)
        others.push_back(other);
    strategy.strip = unsigned(decisions_.take("vectors of a strip", vectors, others));
    if (!strategy.strip)
      return;
    strategy.strip_values = std::move(values);
    keepNothing(strategy, space_);
    strategy.choices.push_back(choice::Strips{strategy.strip, bytes, strip_budget});
  }

  // Expensive nodes that a later stage needs again are kept from the first.
  void chooseKept(Strategy& strategy) {
    strategy.kept_bytes = space_.constant(0);
    if (domain_.instances.empty())
      return;
    Seen before;  // nodes evaluated in earlier stages
    llvm::DenseSet<std::pair<Value, AffineMap>> chosen;
    for (unsigned level = 0; level <= domain_.levels; ++level) {
      Seen mine;
      for (Node root : rootsOf(level, strategy))
        walkNodes(space_, root, mine, graph_, [&](Node node) {
          std::pair<Value, AffineMap> key(node.value, node.at);
          Operation* op = node.value.getDefiningOp();
          // Under a concat or pad a node may be evaluated in one stage and skipped in another.
          if (op && (isReduction(op) || isa<tensor::ConcatOp, PadOp>(op)))
            return false;
          if (!before.contains(key) || !isExpensive(node.value))
            return true;
          int axes = axisSetOf(domain_, node.at);
          if (axes < 0)
            return true;
          if (chosen.insert(key).second)
            addKept(strategy, domain_, node, axes, target_);
          return false;
        });
      before.insert(mine.begin(), mine.end());
    }
    if (!strategy.kept.empty() && !decisions_.take("keeps a row's values", true))
      keepNothing(strategy, space_);
    auto bytes = constantOf(strategy.kept_bytes);
    strategy.kept_static = bytes && *bytes <= target_.private_row_bytes;
    if (!strategy.kept.empty())
      strategy.choices.push_back(
          choice::Kept{int64_t(strategy.kept.size()), !strategy.kept_static, bytes, target_.private_row_bytes});
  }

  Domain& domain_;
  IndexSpace& space_;
  const KernelGraph& graph_;
  const TargetDescription& target_;
  Decisions& decisions_;
};

}  // namespace

Strategy chooseStrategy(Domain& domain, const KernelGraph& graph, const TargetDescription& target,
                        Decisions& decisions) {
  return Chooser(domain, graph, target, decisions).run();
}

}  // namespace zefuse
