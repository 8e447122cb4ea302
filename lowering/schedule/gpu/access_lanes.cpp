#include "lowering/schedule/gpu/access_lanes.h"

#include <numeric>

#include "lowering/analysis/element_types.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t long_walk = 32;  // elements of a row, beside which the store of its result does not count

int64_t bytesOf(Node node) { return bytesInMemory(cast<RankedTensorType>(node.value.getType()).getElementType()); }

}  // namespace

AccessLanes::AccessLanes(const ScheduleContext& context)
    : c_(context), space_(context.domain.space), width_(context.target.vector_width) {
  // The widest element of which a work-item loads or stores neighbours fills an access with this many.
  Dims laned;
  const bool in_rows = c_.strategy.lanes_in_rows || c_.domain.instances.empty();
  for (unsigned dim : in_rows ? ArrayRef(c_.strategy.row_lanes) : ArrayRef(c_.strategy.axis_lanes))
    if (dim != Strategy::none)
      laned.set(dim);
  SmallVector<Node> roots;
  for (const Instance& instance : c_.domain.instances)
    roots.push_back(instance.element());
  auto fit = [&](Node node) {
    Type type = cast<RankedTensorType>(node.value.getType()).getElementType();
    width_ = std::min(width_, std::max<int64_t>(2, c_.target.access_bytes / bytesInMemory(type)));
  };
  // One value per row is stored one element at a time, or a vector of them after a long walk: in pieces then.
  auto elements = elementsOfRow(c_.domain);
  bool short_walk = elements && *elements < long_walk;
  for (const DomainOutput& output : c_.domain.outputs) {
    if (!output.per_row || (c_.strategy.lanes_in_rows && short_walk))
      fit(output.node);
    if (!output.per_row || c_.domain.instances.empty())
      offsets_.emplace_back(c_.graph.output_offset(space_, output), bytesOf(output.node));
    roots.push_back(output.node);
  }
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (Node root : roots)
    walkNodes(space_, root, seen, c_.graph, [&](Node node) {
      if (c_.graph.is_input(node.value)) {
        AffineExpr offset = c_.graph.offset(space_, node);
        if (c_.domain.scan_dim || !laned.any() || space_.dimsOf(offset).anyCommon(laned))
          fit(node);
        offsets_.emplace_back(offset, bytesOf(node));
      }
      return !c_.graph.is_input(node.value) && !(node.value.getDefiningOp() && isReduction(node.value.getDefiningOp()));
    });
}

int64_t AccessLanes::along(unsigned dim) const {
  auto size = constantOf(space_.size(dim));
  int64_t lanes = width_;
  while (size && lanes > *size && lanes > 1)
    lanes /= 2;
  return lanes;
}

int64_t AccessLanes::aligned(unsigned dim) const {
  int64_t lanes = along(dim);
  Dims rows;
  for (unsigned row : c_.domain.rows)
    rows.set(row);
  for (const auto& [offset, bytes] : offsets_) {
    if (!space_.dimsOf(offset).anyCommon(rows) || constantOf(space_.strideAlong(offset, dim)) != 1)
      continue;
    const LinearForm form = space_.linear(offset);
    if (llvm::any_of(form.terms, [](const LinearForm::Term& term) { return !constantOf(term.coefficient); }))
      continue;
    int64_t known = std::gcd(form.constant.getLargestKnownDivisor() * bytes, c_.target.buffer_alignment);
    for (const LinearForm::Term& term : form.terms)
      if (term.atom != space_.dim(dim))
        known = std::gcd(known, term.coefficient.getLargestKnownDivisor() * term.atom.getLargestKnownDivisor() * bytes);
    while (lanes > 1 && known % std::min<int64_t>(lanes * bytes, c_.target.vector_alignment) != 0)
      lanes /= 2;
  }
  return lanes;
}

std::optional<int64_t> elementsOfRow(const Domain& domain) {
  int64_t longest = 0;
  for (const AxisSet& set : domain.axis_sets) {
    auto size = constantOf(domain.space.product(set.dims));
    if (!size)
      return std::nullopt;
    longest = std::max(longest, *size);
  }
  return longest;
}

}  // namespace zefuse
