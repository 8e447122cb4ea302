#include "lowering/schedule/core/short_pieces.h"

#include "lowering/schedule/core/op_cost.h"
#include "lowering/schedule/core/strategy.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace zefuse {

namespace {

using Seen = llvm::DenseSet<std::pair<Value, AffineMap>>;

class Counter {
public:
  Counter(Domain& domain, const KernelGraph& graph, unsigned lanes_dim, unsigned lanes)
      : space_(domain.space), graph_(graph), dim_(lanes_dim), lanes_(lanes) {}

  // Of an element, in operations of a vector.
  double work(ArrayRef<DomainOutput> outputs) {
    double sum = 0;
    Seen seen;
    for (const DomainOutput& output : outputs)
      sum += access(graph_.output_offset(space_, output)) + work(output.node, seen);
    return sum / lanes_;
  }
  bool mixesPieces() const { return mixes_; }

private:
  // Lanes that are apart touch a line of the caches each.
  double access(AffineExpr offset) const {
    constexpr int64_t elements_of_line = 16;
    auto step = constantOf(space_.strideAlong(offset, dim_));
    if (step && (*step == 0 || *step == 1))
      return 1;
    const int64_t apart = step ? std::min(std::abs(*step), elements_of_line) : elements_of_line;
    return lanes_ + double(int64_t(lanes_) * apart) / elements_of_line;
  }

  double work(Node root, Seen& seen) {
    double sum = 0;
    walkNodes(space_, root, seen, graph_, [&](Node node) {
      if (graph_.is_input(node.value)) {
        sum += access(graph_.offset(space_, node));
        return false;
      }
      Operation* op = node.value.getDefiningOp();
      if (auto concat = dyn_cast_or_null<tensor::ConcatOp>(op)) {
        sum += ofPieces(concat, node.at, seen);
        return false;
      }
      if (op && !isa<RankedTensorType>(node.value.getType()))
        sum += opCost(op);
      return true;
    });
    return sum;
  }

  // What several pieces share counts as the first one's.
  double ofPieces(tensor::ConcatOp op, AffineMap at, Seen& seen) {
    const SmallVector<Piece> pieces = piecesOf(op);
    auto step = constantOf(space_.strideAlong(at.getResult(op.getDim()), dim_));
    auto whole = [&](AffineExpr expr) { return constantOf(expr) && *constantOf(expr) % lanes_ == 0; };
    const bool long_pieces = step == 1 && llvm::all_of(pieces, [&](const Piece& piece) {
                               return constantOf(piece.size).value_or(0) >= int64_t(whole_piece) * lanes_;
                             });
    const bool mixed = (!step || *step != 0) && !long_pieces &&
                       !llvm::all_of(pieces, [&](const Piece& piece) { return whole(piece.offset); });
    mixes_ |= mixed;
    double elements = 0, sum = 0;
    for (const Piece& piece : pieces)
      elements += estimated(space_, piece.size);
    for (const Piece& piece : pieces) {
      const double of_piece = work({piece.value, pieceIndices(space_, op, piece, at)}, seen);
      sum += mixed ? of_piece : of_piece * estimated(space_, piece.size) / std::max(elements, 1.0);
    }
    return sum;
  }

  IndexSpace& space_;
  const KernelGraph& graph_;
  const unsigned dim_, lanes_;
  bool mixes_ = false;
};

}  // namespace

unsigned lanesOfOnePiece(Domain& domain, ArrayRef<unsigned> dims, unsigned lanes, const KernelGraph& graph,
                         const TargetDescription& target) {
  Counter before(domain, graph, lanes, lanesFor(domain.space, lanes, target));
  double least = 0.8 * before.work(domain.outputs);
  if (!before.mixesPieces())
    return lanes;
  unsigned best = lanes;
  for (unsigned dim : dims)
    if (dim != lanes) {
      const double work = Counter(domain, graph, dim, lanesFor(domain.space, dim, target)).work(domain.outputs);
      if (work < least) {
        least = work;
        best = dim;
      }
    }
  return best;
}

bool vectorsAreOfOnePiece(IndexSpace& space, AffineExpr along, ArrayRef<Piece> pieces, unsigned lanes_dim,
                          unsigned lanes) {
  auto whole = [&](AffineExpr expr) { return constantOf(expr) && *constantOf(expr) % lanes == 0; };
  if (constantOf(space.strideAlong(along, lanes_dim)) != 1)
    return false;
  LinearForm form = space.linear(along);
  return whole(form.constant) && llvm::all_of(pieces, [&](const Piece& piece) { return whole(piece.offset); }) &&
         llvm::all_of(form.terms, [&](const LinearForm::Term& term) {
           return term.atom == space.dim(lanes_dim) || whole(term.coefficient);
         });
}

bool hasVectorsOfOnePiece(Domain& domain, const KernelGraph& graph, unsigned lanes_dim, unsigned lanes) {
  IndexSpace& space = domain.space;
  bool found = false;
  Seen seen;
  for (const DomainOutput& output : domain.outputs)
    walkNodes(space, output.node, seen, graph, [&](Node node) {
      if (found || graph.is_input(node.value))
        return false;
      if (auto concat = dyn_cast_or_null<tensor::ConcatOp>(node.value.getDefiningOp())) {
        const SmallVector<Piece> pieces = piecesOf(concat);
        found |= pieces.size() > 1 &&
                 vectorsAreOfOnePiece(space, node.at.getResult(concat.getDim()), pieces, lanes_dim, lanes);
      }
      return !found;
    });
  return found;
}

}  // namespace zefuse
