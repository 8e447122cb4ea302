// A row passes in pieces of a vector per work-item: a vector is scanned in registers, the vectors' totals over the
// sub-group, the sub-groups' totals over the group by way of local memory, and the pieces' totals are carried on. The
// order of combinations is fixed, but another than eager's: bodies must be associative.
#include "lowering/schedule/gpu/gpu_scan.h"

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "lowering/schedule/gpu/work_group.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/bit.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t short_row = 64;             // elements, up to which a work-item takes it
constexpr int64_t subgroup_rounds = 4;        // pieces of a row, up to which a sub-group takes it
constexpr int64_t subgroup_rows_items = 256;  // work-items of a group whose sub-groups take rows
constexpr int64_t symbolic_row_items = 256;   // of a group, for a row whose length is not known
constexpr int64_t largest_group = 512;

class RowScan {
public:
  RowScan(const ScheduleContext& context, int64_t width)
      : c_(context), e_(context.evaluator), space_(context.domain.space), b_(context.builder()),
        loc_(context.builder().getUnknownLoc()), i_{b_, loc_}, lanes_(width) {
    for (size_t number = 0; number < c_.domain.scans.size(); ++number)
      order(number);
  }

  bool applies() {
    unsigned dim = *c_.domain.scan_dim;
    for (const DomainOutput& output : c_.domain.outputs)
      if (constantOf(space_.strideAlong(c_.graph.output_offset(space_, output), dim)) != 1)
        return false;
    for (Node scan : c_.domain.scans)
      if (!combinerOf(scan))
        return false;
    size_ = constantOf(space_.size(dim));
    return !size_ || *size_ > short_row;
  }

  void run() {
    const int64_t subgroup = c_.target.subgroup_size;
    AffineExpr rows = c_.domain.rowCount();
    auto count = constantOf(rows);
    c_.launch.extent = rows;
    bool many = count && *count * subgroup >= c_.target.resident_items;
    if (size_ && *size_ <= subgroup * lanes_ * (many ? subgroup_rounds : 1)) {
      const int64_t each = subgroup_rows_items / subgroup;
      c_.launch.grain = each;
      c_.launch.schedule.add(choice::RowTeam{choice::RowTeam::Of::subgroup, subgroup, size_, count});
      WorkGroup group(b_, c_.function, c_.launch, subgroup_rows_items, subgroup);
      Value row = i_.add(i_.multiply(group.group(), each), group.subgroupIndex());
      Value end = e_.index(rows);
      e_.toInnermost();
      e_.openIf(i_.less(row, end));
      scanRow(group, row, group.lane(), subgroup);
      e_.closeIf();
      return;
    }
    int64_t items = size_ ? int64_t(llvm::bit_floor(uint64_t(*size_ / lanes_))) : symbolic_row_items;
    items = std::clamp<int64_t>(items, 2 * subgroup, std::min<int64_t>(largest_group, c_.target.max_group_size));
    c_.launch.grain = 1;
    c_.launch.schedule.add(choice::RowTeam{choice::RowTeam::Of::group, items, size_, count});
    WorkGroup group(b_, c_.function, c_.launch, items, subgroup);
    scanRow(group, group.group(), group.item(), items);
  }

private:
  // The one operation of a scan's body, where sub-groups know it; else null.
  static Operation* combinerOf(Node scan) {
    Block& body = scan.value.getDefiningOp<ScanOp>().getBody().front();
    Operation& op = body.front();
    Type type = body.getArgument(0).getType();
    if (&op == body.getTerminator() || op.getNextNode() != body.getTerminator() || op.getNumOperands() != 2 ||
        op.getOperand(0) == op.getOperand(1) || body.getTerminator()->getOperand(0) != op.getResult(0) ||
        !llvm::all_of(op.getOperands(), [](Value operand) { return isa<BlockArgument>(operand); }))
      return nullptr;
    if (isa<arith::AddFOp>(op))
      return type.isF32() || type.isF64() ? &op : nullptr;
    if (isa<arith::AddIOp, arith::MaxSIOp, arith::MinSIOp>(op))
      return type.isInteger(32) || type.isInteger(64) ? &op : nullptr;
    return nullptr;
  }

  // What a scan reads comes first.
  void order(size_t number) {
    if (llvm::is_contained(order_, number))
      return;
    Node node = c_.domain.scans[number];
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    walkNodes(space_, {node.value.getDefiningOp<ScanOp>().getInput(), node.at}, seen, c_.graph, [&](Node inner) {
      auto found = llvm::find(c_.domain.scans, inner);
      if (found != c_.domain.scans.end())
        order(found - c_.domain.scans.begin());
      return found == c_.domain.scans.end();
    });
    order_.push_back(number);
  }

  void scanRow(WorkGroup& group, Value row, Value item, int64_t team) {
    const unsigned dim = *c_.domain.scan_dim;
    c_.bindPosition(c_.domain.parallelRows(), row);
    e_.toInnermost();
    SmallVector<Value> carried;
    for (Node scan : c_.domain.scans)
      carried.push_back(constantOfType(b_, loc_, cast<TypedAttr>(scan.value.getDefiningOp<ScanOp>().getInitial()), 1));
    AffineExpr size = space_.size(dim), pieces = space_.simplify(size.floorDiv(lanes_ * team));
    // Two arrays of the sub-groups' totals take turns, so that a piece has one barrier.
    auto pass = [&](Value first, Value last, int64_t lanes, Value end) {
      SmallVector<Value> arrays;
      if (team > group.subgroup())
        for (Node scan : c_.domain.scans)
          arrays.push_back(group.localArray(typeOf(scan), 2 * group.subgroups()));
      auto loop = e_.openLoop(first, last, i_.number(1), carried);
      e_.toInnermost();
      Value vector = i_.add(i_.multiply(loop.index(), team), item), inside;
      if (lanes > 1) {
        e_.bindLanes(dim, i_.multiply(vector, lanes), lanes, true);
      } else {
        Value position = i_.add(vector, rest_begin_);
        inside = i_.less(position, end);
        e_.bind(dim, i_.smaller(position, i_.subtract(end, i_.number(1))));
      }
      SmallVector<Value> next(loop.carried());
      for (size_t number : order_)
        if (!e_.failed())
          next[number] = scanPiece(group, number, loop.carried()[number], lanes, inside,
                                   arrays.empty() ? Value() : arrays[number], loop.index());
      if (e_.failed())
        return;
      e_.toInnermost();
      if (inside)
        e_.openIf(inside);
      c_.storeAllOutputs();
      if (inside)
        e_.closeIf();
      if (!e_.failed())
        carried = SmallVector<Value>(e_.closeLoop(loop, next));
    };
    if (constantOf(pieces) != 0) {
      Value count = e_.index(pieces);
      e_.toInnermost();
      pass(i_.number(0), count, lanes_, {});
    }
    AffineExpr begin = space_.simplify(pieces * (lanes_ * team));
    AffineExpr rest = space_.simplify((size - begin).ceilDiv(team));
    if (e_.failed() || constantOf(rest) == 0)
      return;
    e_.toInnermost();
    rest_begin_ = e_.index(begin);
    Value end = e_.index(size), rounds = e_.index(rest);
    e_.toInnermost();
    pass(i_.number(0), rounds, 1, end);
  }

  static Type typeOf(Node scan) { return cast<RankedTensorType>(scan.value.getType()).getElementType(); }

  // Binds the scan's elements of a piece; returns what the next one carries on. `inside`: null, or whether this
  // work-item's element exists.
  Value scanPiece(WorkGroup& group, size_t number, Value before, int64_t lanes, Value inside, Value array,
                  Value piece) {
    Node node = c_.domain.scans[number];
    auto scan = node.value.getDefiningOp<ScanOp>();
    Operation* op = combinerOf(node);
    auto combine = [&](Value x, Value y) { return emitScalarOp(b_, op, {x, y}, lanesOf(x)); };
    Value neutral = constantOfType(b_, loc_, neutralElement(op), 1);
    Value elements = e_.evaluate({scan.getInput(), node.at});
    if (!elements)
      return {};
    e_.toInnermost();
    elements = splat(b_, elements, lanes);
    if (inside)
      elements = arith::SelectOp::create(b_, loc_, inside, elements, neutral);
    SmallVector<Value> running;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      Value element = lanes == 1 ? elements : vector::ExtractOp::create(b_, loc_, elements, lane).getResult();
      running.push_back(lane == 0 ? element : combine(running.back(), element));
    }
    Value others = group.scanInSubgroup(op, running.back());  // of the lanes before
    Value total = combine(others, running.back());            // in the last lane the sub-group's
    if (!array) {
      Value whole = group.broadcast(total, group.subgroup() - 1);
      bindRunning(node, combine(before, others), running, combine);
      return combine(before, whole);
    }
    const int64_t subgroups = group.subgroups(), width = group.subgroup();
    Type type = typeOf(node);
    const unsigned align = unsigned(bytesInMemory(type));
    Value line = i_.multiply(i_.modulo(piece, 2), subgroups);
    e_.openIf(i_.equal(group.lane(), i_.number(width - 1)));
    LLVM::StoreOp::create(b_, loc_, total, group.at(array, type, i_.add(line, group.subgroupIndex())), align);
    e_.closeIf();
    group.barrier();
    Value next = before;
    for (int64_t first = 0; first < subgroups; first += width) {
      Value subgroup = i_.add(group.lane(), first);
      Value exists = first + width <= subgroups ? Value() : i_.less(subgroup, i_.number(subgroups));
      Value place = exists ? i_.smaller(subgroup, i_.number(subgroups - 1)) : subgroup;
      Value found = LLVM::LoadOp::create(b_, loc_, type, group.at(array, type, i_.add(line, place)), align);
      auto where = [&](Value condition) -> Value {
        return condition ? arith::SelectOp::create(b_, loc_, condition, found, neutral).getResult() : found;
      };
      before = combine(before, group.reduceInSubgroup(op, where(i_.less(subgroup, group.subgroupIndex()))));
      next = combine(next, group.reduceInSubgroup(op, where(exists)));
    }
    bindRunning(node, combine(before, others), running, combine);
    return next;
  }

  void bindRunning(Node node, Value before, ArrayRef<Value> running, llvm::function_ref<Value(Value, Value)> combine) {
    SmallVector<Value> values;
    for (Value value : running)
      values.push_back(combine(before, value));
    Value bound = values[0];
    if (values.size() > 1)
      bound =
          vector::FromElementsOp::create(b_, loc_, VectorType::get({int64_t(values.size())}, bound.getType()), values);
    e_.bindValue(node, bound);
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  IndexSpace& space_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  int64_t lanes_;
  std::optional<int64_t> size_;  // of a row; none: symbolic
  SmallVector<size_t> order_;    // of the scans
  Value rest_begin_;             // where the elements are that fill no whole piece
};

}  // namespace

bool scheduleScan(const ScheduleContext& context, int64_t width) {
  RowScan scan(context, width);
  if (!scan.applies())
    return false;
  scan.run();
  return true;
}

}  // namespace zefuse
