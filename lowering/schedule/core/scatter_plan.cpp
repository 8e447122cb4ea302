#include "lowering/schedule/core/scatter_plan.h"

#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t few_rows = 32;          // fewer are held by each group
constexpr double fewest_updates = 64;     // fewer are as quick one after the other
constexpr int64_t most_items = 512;       // of a group
constexpr int64_t most_bytes = 32 << 10;  // of local memory, so that several groups run at a time
constexpr int64_t fewest_of_team = 8;     // updates of a slice

// old + new, of 16-bit floats perhaps in f32.
bool sums(ScatterOp op) {
  Block& body = op.getBody().front();
  Value yielded = body.getTerminator()->getOperand(0);
  if (auto rounded = yielded.getDefiningOp<arith::TruncFOp>())
    yielded = rounded.getIn();
  Operation* sum = yielded.getDefiningOp();
  if (!isa_and_nonnull<arith::AddFOp, arith::AddIOp>(sum))
    return false;
  Value terms[2];
  for (auto [term, operand] : llvm::zip_equal(terms, sum->getOperands())) {
    auto extended = operand.getDefiningOp<arith::ExtFOp>();
    term = extended ? extended.getIn() : operand;
  }
  Value present = body.getArgument(0), update = body.getArgument(1);
  return (terms[0] == present && terms[1] == update) || (terms[0] == update && terms[1] == present);
}

}  // namespace

Type partialSumType(Type element) {
  return element.isF16() || element.isBF16() ? Float32Type::get(element.getContext()) : element;
}

std::optional<ScatterSumsPlan> planScatterSums(const Domain& domain, unsigned laned, double updates,
                                               const TargetDescription& target) {
  const ScatterForm& form = *domain.scatter;
  const IndexSpace& space = domain.space;
  Type element = cast<RankedTensorType>(ScatterOp(form.op).getType()).getElementType();
  const bool summable = isa<FloatType>(element) || element.isInteger(32) || element.isInteger(64);
  if (!summable || !sums(form.op) || form.in_place || form.fill.size() != 1 || updates < fewest_updates)
    return {};
  auto rows = constantOf(space.size(form.fill.front()));
  const auto* at = llvm::find(form.init_at.getResults(), space.dim(form.fill.front()));
  if (!rows || at == form.init_at.getResults().end())
    return {};
  ScatterSumsPlan plan;
  plan.position = unsigned(at - form.init_at.getResults().begin());
  int64_t columns = 1;
  for (unsigned dim : domain.rows) {
    auto size = constantOf(space.size(dim));
    if (!size || space.dimsOf(form.target.getResult(plan.position)).test(dim))
      return {};
    columns *= *size;
  }
  if (*rows == 0 || columns == 0 || columns * 4 > target.resident_items)
    return {};
  const int64_t subgroup = target.subgroup_size, bytes = bytesInMemory(partialSumType(element));
  plan.all = *rows < few_rows;
  if (laned != ~0u && !plan.all) {
    plan.lanes = std::max<int64_t>(1, target.access_bytes / bytesInMemory(element));
    while (plan.lanes > 1 && *constantOf(space.size(laned)) % plan.lanes != 0)
      plan.lanes /= 2;
  }
  plan.vectors = columns / plan.lanes;
  // Who looks which updates are its own is a whole sub-group.
  plan.width = plan.all ? std::min<int64_t>(subgroup, int64_t(llvm::PowerOf2Ceil(uint64_t(plan.vectors)))) : subgroup;
  plan.blocks = (plan.vectors + plan.width - 1) / plan.width;
  const double slices = updates / double(plan.all ? fewest_of_team : subgroup);
  plan.teams = most_items / plan.width;
  while (plan.teams > 1 && double(plan.teams) > slices)
    plan.teams /= 2;
  const int64_t fewest = std::max<int64_t>(2, subgroup / plan.width);  // whole sub-groups
  for (; plan.teams >= fewest; plan.teams /= 2) {
    const int64_t groups = std::max<int64_t>(1, target.resident_items / (plan.items() * plan.blocks));
    plan.rows = plan.all ? *rows : (*rows + groups - 1) / groups;
    if (plan.items() * plan.rows * plan.lanes * bytes > most_bytes)
      continue;
    plan.ranges = (*rows + plan.rows - 1) / plan.rows;
    return plan;
  }
  return {};
}

}  // namespace zefuse
