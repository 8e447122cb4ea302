#include "lowering/schedule/core/interleaved_rows.h"

#include "lowering/dialect/Zefuse.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t long_piece = 8;      // vectors: a piece of so many keeps a walk along one row busy
constexpr int64_t fewest_places = 32;  // pieces of a row: fewer do not pay for combining their parts
constexpr int64_t good_walk = 64;      // elements that lie together, from which on memory is read as it lies
constexpr int64_t longest_walk = 512;  // elements, of which partial results stay in a first-level cache

class Interleaving {
public:
  Interleaving(Domain& domain, const KernelGraph& graph, const TargetDescription& target, Decisions& decisions)
      : domain_(domain), space_(domain.space), graph_(graph), target_(target), decisions_(decisions) {}

  // Of rows that are pieces among the column dims.
  std::optional<InterleavedRows> run(bool few) {
    few_ = few;
    if (!mayChange())
      return std::nullopt;
    collectOffsets();
    for (unsigned row : domain_.rows)
      if (findPieces(row))
        return changed(row);
    return std::nullopt;
  }

  // Of pieces that are rows themselves, along dim `piece`.
  std::optional<unsigned> joined(unsigned piece) {
    auto size = constantOf(space_.size(piece));
    if (!mayChange(/*of_rows=*/true) || !size || *size < 2 || *size >= long_piece * target_.vector_width)
      return std::nullopt;
    collectOffsets();
    for (unsigned row : domain_.rows)
      if (auto rows = constantOf(space_.size(row)); row != piece && rows && *rows >= 2 && stepsThrough(piece, row))
        return joinedWith(row, piece, *rows * *size);
    return std::nullopt;
  }

private:
  bool mayChange(bool of_rows = false) const {
    return graph_.offset && (of_rows || !domain_.instances.empty()) && !domain_.scan_dim && space_.numOpaques() == 0;
  }

  // Calls `visit` with each node that is evaluated; false: no further.
  void walk(llvm::function_ref<bool(Node)> visit) {
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    for (const Instance& instance : domain_.instances)
      walkNodes(space_, instance.element(), seen, graph_, visit);
    for (const DomainOutput& output : domain_.outputs)
      walkNodes(space_, output.node, seen, graph_, visit);
  }

  void collectOffsets() {
    walk([&](Node node) {
      if (graph_.is_input(node.value)) {
        offsets_.push_back(graph_.offset(space_, node));
        return false;
      }
      Operation* op = node.value.getDefiningOp();
      return !op || !isReduction(op);
    });
    for (const DomainOutput& output : domain_.outputs)
      offsets_.push_back(graph_.output_offset(space_, output));
  }

  std::optional<int64_t> stride(AffineExpr offset, unsigned dim) const {
    AffineExpr along = space_.strideAlong(offset, dim);
    return along ? constantOf(along) : std::nullopt;
  }

  // Whether every access steps by one along `piece` and from piece to piece along `row`, or not along `piece` at all.
  bool stepsThrough(unsigned piece, unsigned row) const {
    const int64_t size = *constantOf(space_.size(piece));
    bool found = false;
    for (AffineExpr offset : offsets_) {
      auto step = stride(offset, piece);
      if (!step || (*step != 0 && *step != 1))
        return false;
      if (*step == 1 && stride(offset, row) != size)
        return false;
      found |= *step == 1;
    }
    return found;
  }

  std::optional<unsigned> pieceAmong(ArrayRef<unsigned> dims, unsigned row) const {
    for (unsigned dim : dims)
      if (auto size = constantOf(space_.size(dim)); size && *size >= 2 && stepsThrough(dim, row))
        return dim;
    return std::nullopt;
  }

  // The dim of a row's pieces in each axis set that has dims: all pieces as long, and one set with many places.
  bool findPieces(unsigned row) {
    pieces_.clear();
    int64_t most_places = 0;
    if (!constantOf(space_.size(row)))
      return false;
    for (const AxisSet& set : domain_.axis_sets) {
      if (set.dims.empty())
        continue;
      auto piece = pieceAmong(set.dims, row);
      if (!piece || (!pieces_.empty() && space_.size(pieces_.front()) != space_.size(*piece)))
        return false;
      pieces_.push_back(*piece);
      int64_t places = 1;
      for (unsigned dim : set.dims)
        if (dim != *piece)
          places *= constantOf(space_.size(dim)).value_or(fewest_places);
      most_places = std::max(most_places, places);
    }
    const bool whole = llvm::all_of(
        domain_.instances, [&](const Instance& instance) { return !domain_.axis_sets[instance.axes].dims.empty(); });
    return whole && most_places >= fewest_places && pieceSize() < long_piece * target_.vector_width;
  }

  int64_t pieceSize() const { return *constantOf(space_.size(pieces_.front())); }

  // Rows to walk together: as many as there are, so that memory is read as it lies, where units of them have full
  // vectors. Else, and where few are asked for: what they have of a place is long enough, and vectors of it are full
  // ones where that is possible. 0: none.
  int64_t rowsTogether(int64_t rows, int64_t piece) {
    SmallVector<int64_t> all{0};
    for (int64_t together = 1; together <= rows; ++together)
      if (rows % together == 0 && together * piece <= longest_walk)
        all.push_back(together);
    int64_t model = all.back();
    if (few_ || model * piece % target_.vector_width != 0)
      for (bool full : {false, true})
        for (int64_t together : llvm::reverse(all))
          if (together * piece >= good_walk && (!full || together * piece % target_.vector_width == 0))
            model = together;
    return decisions_.take("rows walked together", model, all);
  }

  // Elements of the rows of which each thread has some: the fewest that are full vectors.
  int64_t unitOf(int64_t together, int64_t piece) const {
    for (int64_t rows = 1; rows < together; ++rows)
      if (together % rows == 0 && rows * piece % target_.vector_width == 0)
        return rows * piece;
    return together * piece;
  }

  std::optional<InterleavedRows> changed(unsigned row_dim) {
    const int64_t piece = pieceSize(), rows = *constantOf(space_.size(row_dim)), together = rowsTogether(rows, piece);
    if (together == 0 || space_.numDims() + 2 > IndexSpace::max_dims)
      return std::nullopt;
    InterleavedRows result{0, piece, together * piece, unitOf(together, piece)};
    const Parts before = parts();
    std::optional<unsigned> outer;
    if (together != rows)
      outer = space_.addDim(space_.constant(rows / together));
    result.dim = space_.addDim(space_.constant(result.size));
    AffineExpr row = space_.dim(result.dim).floorDiv(piece), part = space_.dim(result.dim) % piece;
    if (outer)
      row = space_.dim(*outer) * together + row;
    for (unsigned dim : pieces_) {
      replace(dim, part);
      for (AxisSet& set : domain_.axis_sets)
        llvm::erase(set.dims, dim);
    }
    replace(row_dim, row);
    if (outer)
      *llvm::find(domain_.rows, row_dim) = *outer;
    else
      llvm::erase(domain_.rows, row_dim);
    domain_.rows.push_back(result.dim);
    if (holds())
      return result;
    restore(before);
    return std::nullopt;
  }

  std::optional<unsigned> joinedWith(unsigned row, unsigned piece, int64_t size) {
    if (space_.numDims() + 1 > IndexSpace::max_dims || !decisions_.take("rows of pieces as one", true))
      return std::nullopt;
    const Parts before = parts();
    const int64_t length = *constantOf(space_.size(piece));
    const unsigned dim = space_.addDim(space_.constant(size));
    replace(piece, space_.dim(dim) % length);
    replace(row, space_.dim(dim).floorDiv(length));
    llvm::erase(domain_.rows, row);
    *llvm::find(domain_.rows, piece) = dim;
    if (holds())
      return dim;
    restore(before);
    return std::nullopt;
  }

  // What a change of dims touches.
  struct Parts {
    SmallVector<DomainOutput> outputs;
    SmallVector<unsigned> rows;
    SmallVector<AxisSet> axis_sets;
    std::vector<Instance> instances;
  };

  Parts parts() const { return {domain_.outputs, domain_.rows, domain_.axis_sets, domain_.instances}; }

  void restore(const Parts& before) {
    domain_.outputs = before.outputs;
    domain_.rows = before.rows;
    domain_.axis_sets = before.axis_sets;
    domain_.instances = before.instances;
  }

  void replace(unsigned dim, AffineExpr with) {
    for (DomainOutput& output : domain_.outputs)
      output.node.at = space_.substitute(output.node.at, dim, with);
    for (Instance& instance : domain_.instances) {
      instance.kept = space_.substitute(instance.kept, dim, with);
      instance.iteration = space_.substitute(instance.iteration, dim, with);
    }
    for (AxisSet& set : domain_.axis_sets)
      for (AffineExpr& index : set.indices)
        index = space_.simplify(index.replace(space_.dim(dim), with));
  }

  // Whether the nodes over the new dims are found again: simplified from their readers' indices and from their own they
  // are the same.
  bool holds() {
    bool fine = true;
    walk([&](Node node) {
      Operation* op = graph_.is_input(node.value) ? nullptr : node.value.getDefiningOp();
      if (!op || !isReduction(op))
        return fine && !graph_.is_input(node.value);
      fine &= domain_.find(node) != nullptr;
      return false;
    });
    return fine;
  }

  Domain& domain_;
  IndexSpace& space_;
  const KernelGraph& graph_;
  const TargetDescription& target_;
  Decisions& decisions_;
  SmallVector<AffineExpr> offsets_;
  SmallVector<unsigned> pieces_;  // the dims along pieces
  bool few_ = false;
};

}  // namespace

std::optional<InterleavedRows> interleaveRows(Domain& domain, bool few, const KernelGraph& graph,
                                              const TargetDescription& target, Decisions& decisions) {
  return Interleaving(domain, graph, target, decisions).run(few);
}

std::optional<unsigned> joinRows(Domain& domain, unsigned lanes, const KernelGraph& graph,
                                 const TargetDescription& target, Decisions& decisions) {
  return Interleaving(domain, graph, target, decisions).joined(lanes);
}

}  // namespace zefuse
