#include "lowering/schedule/core/pieces.h"

#include "lowering/analysis/element_types.h"
#include "lowering/schedule/core/interleaved_rows.h"
#include "lowering/schedule/core/op_cost.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr double many_places = 32;           // that share what is loaded once for them
constexpr int64_t values_budget = 16 << 10;  // bytes of it, beside what streams through the nearest cache

SmallVector<Node> inputsOf(Domain& domain, const KernelGraph& graph) {
  SmallVector<Node> nodes;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (const DomainOutput& output : domain.outputs)
    walkNodes(domain.space, output.node, seen, graph, [&](Node node) {
      const bool input = graph.is_input(node.value);
      if (input)
        nodes.push_back(node);
      return !input;
    });
  return nodes;
}

// The row dim that steps from piece to piece.
const unsigned* rowOfPieces(Domain& domain, unsigned piece, const KernelGraph& graph) {
  IndexSpace& space = domain.space;
  const auto length = constantOf(space.size(piece));
  const AffineExpr offset = graph.output_offset(space, domain.outputs.front());
  return llvm::find_if(domain.rows, [&](unsigned row) {
    return length && row != piece && constantOf(space.size(row)) &&
           constantOf(space.strideAlong(offset, row)) == length;
  });
}

// Whether what a piece has one of is the same in all places, has slots in memory, and is little.
bool shareValues(Domain& domain, unsigned piece, unsigned row, Dims places, const KernelGraph& graph) {
  IndexSpace& space = domain.space;
  int64_t bytes = 0;
  for (Node node : inputsOf(domain, graph)) {
    const AffineExpr offset = graph.offset(space, node);
    if (constantOf(space.strideAlong(offset, piece)) != 0 || constantOf(space.strideAlong(offset, row)) == 0)
      continue;
    const int64_t element = bytesInMemory(cast<ShapedType>(node.value.getType()).getElementType());
    if (element < 4 || space.dimsOf(offset).anyCommon(places))
      return false;
    bytes += element * *constantOf(space.size(piece)) * *constantOf(space.size(row));
  }
  return bytes <= values_budget;
}

}  // namespace

std::optional<JoinedPieces> joinPieces(Domain& domain, unsigned lanes, const KernelGraph& graph,
                                       const TargetDescription& target, Decisions& decisions) {
  IndexSpace& space = domain.space;
  const unsigned* row = rowOfPieces(domain, lanes, graph);
  if (row == domain.rows.end())
    return std::nullopt;
  Dims places;
  double count = 1;
  for (unsigned dim : ArrayRef<unsigned>(row + 1, domain.rows.end()))
    if (dim != lanes) {
      places.set(dim);
      count *= estimated(space, space.size(dim));
    }
  const unsigned outer =
      llvm::count_if(ArrayRef<unsigned>(domain.rows.begin(), row), [&](unsigned dim) { return dim != lanes; });
  if (count < many_places || !shareValues(domain, lanes, *row, places, graph))
    return std::nullopt;
  auto joined = joinRows(domain, lanes, graph, target, decisions);
  if (!joined)
    return std::nullopt;
  JoinedPieces result{*joined, outer, {}};
  for (Node node : inputsOf(domain, graph))
    if (constantOf(space.strideAlong(graph.offset(space, node), *joined)).value_or(2) > 1)
      result.values.push_back(node);
  return result;
}

}  // namespace zefuse
