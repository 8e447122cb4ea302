// zefuse.matmul in a kernel for the CPU, in the types that its library does not take: blocks of rows and columns whose
// parts of both operands are packed, in the accumulator's type, for some of what is summed over.
//
//   unit          `block_rows` rows of one tile of columns
//   tile          as many columns as two cache lines hold; a small matrix has narrower vectors
//   sub-tile      `register_rows` rows of a tile: what registers hold while k is walked
//
// Rows past the last are computed as the last one is and not stored; a last tile of columns overlaps the one before.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/cpu_product.h"
#include "lowering/schedule/products/products.h"

using namespace mlir;

namespace zefuse {
namespace {

class CpuMatmul : CpuProduct {
public:
  static constexpr int64_t block_rows = 32, block_depth = 128;

  explicit CpuMatmul(const ScheduleContext& context)
      : CpuProduct(context,
                   cast<RankedTensorType>(context.domain.product->op->getResult(0).getType()).getElementType()),
        op_(cast<MatmulOp>(context.domain.product->op)), nodes_(context) {}

  void run() {
    auto sizes = shapeOf(op_.getType());
    rank_ = unsigned(sizes.size());
    AffineExpr m = sizes[rank_ - 2], n = sizes[rank_ - 1], k = shapeOf(op_.getA().getType())[rank_ - 1];
    AffineExpr batches = c_.domain.space.constant(1);
    for (AffineExpr size : ArrayRef(sizes).drop_back(2))
      batches = batches * size;

    // The widest tile that the columns, as they are bound, allow.
    int64_t most = std::min<int64_t>(c_.target.vector_width, tile_bytes / bytes());
    auto known = constantOf(n);
    while (known && most > *known && most > 1)
      most /= 2;
    const int64_t lanes = std::min(nodes_.lanesOfResult(rank_ - 1, most), nodes_.lanesOfOperand(1, rank_ - 1, most));
    int64_t vectors = std::max<int64_t>(1, tile_bytes / bytes() / lanes);
    while (known && vectors > 1 && vectors * lanes > *known)
      vectors /= 2;
    tile_ = tileOf(constantOf(m), block_rows, lanes, std::min<int64_t>(vectors, 2));
    const int64_t columns = tile_.columns(), rows = tile_.rows;
    depth_lanes_ = nodes_.accessOf(0, rank_ - 2, rank_ - 1).dimension == rank_ - 1
                       ? nodes_.lanesOfOperand(0, rank_ - 1, lanesFor16())
                       : 1;

    // A left side whose columns are contiguous is packed by columns: by rows it would be loaded one element at a time.
    if (const int64_t lanes = rowLanes(); depth_lanes_ == 1 && lanes > 1) {
      row_lanes_ = lanes;
      strides_ = {1, rows};
    }

    AffineExpr tiles = n.ceilDiv(columns), blocks = m.ceilDiv(rows);
    c_.launch.schedule.add(choice::PackedProduct{rows, columns});
    packed_a_ = buffer(rows * block_depth);
    packed_b_ = buffer(block_depth * columns);
    sums_ = buffer(rows * columns);
    Value group = c_.workItem("_Z12get_group_idj");
    const double depth = double(constantOf(k).value_or(256));
    auto [begin, end] = shareOfGroup(c_, group, c_.domain.space.simplify(batches * tiles * blocks),
                                     double(rows * columns) * std::max(depth, 1.0) / 4);
    m_ = nodes_.expression(m);
    n_ = nodes_.expression(n);
    k_ = nodes_.expression(k);
    Value tile_count = nodes_.expression(tiles), block_count = nodes_.expression(blocks);
    auto units = e_.openLoop(begin, end, i_.number(1));
    Value block = i_.modulo(units.index(), block_count), rest = i_.divide(units.index(), block_count);
    Value tile = i_.modulo(rest, tile_count);
    nodes_.bindBatch(i_.divide(rest, tile_count));
    e_.toInnermost();
    Value row = i_.multiply(block, rows), column = i_.multiply(tile, columns);
    if (known) {
      bool aligned = *known % columns == 0;
      emitBlock(row, aligned ? column : i_.smaller(column, i_.number(*known - columns)), aligned);
    } else {
      Value fits = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, n_, i_.number(columns));
      Value narrow = arith::XOrIOp::create(b_, loc_, fits, arith::ConstantOp::create(b_, loc_, b_.getBoolAttr(true)));
      e_.openIf(fits);
      emitBlock(row, i_.smaller(column, i_.subtract(n_, i_.number(columns))), false);
      e_.closeIf();
      e_.openIf(narrow);
      const Tile wide = tile_;
      tile_.lanes = tile_.vectors = 1;
      auto loop = e_.openLoop(i_.number(0), n_, i_.number(1));
      emitBlock(row, loop.index(), true);
      e_.closeLoop(loop);
      tile_ = wide;
      e_.closeIf();
    }
    e_.closeLoop(units);
  }

private:
  // Rows of the left side that one load takes; they divide a block.
  int64_t rowLanes() const {
    if (nodes_.accessOf(0, rank_ - 2, rank_ - 1).dimension != rank_ - 2)
      return 1;
    int64_t lanes = nodes_.lanesOfOperand(0, rank_ - 2, c_.target.vector_width);
    while (tile_.rows % lanes != 0)
      lanes /= 2;
    return lanes;
  }

  int64_t lanesFor16() const { return std::min<int64_t>(c_.target.vector_width, block_depth); }

  void emitBlock(Value row, Value column, bool aligned) {
    const int64_t columns = tile_.columns();
    Value zero = i_.number(0);
    clear(sums_, zero, tile_.rows * columns, tile_.lanes);
    loop(zero, k_, block_depth, [&](Value first) {
      Value depth = i_.smaller(i_.number(block_depth), i_.subtract(k_, first));
      pack(row, column, first, depth, aligned);
      multiply(tile_, packed_a_, strides_, packed_b_, depth, sums_, zero);
    });
    Value last = i_.smaller(i_.number(tile_.rows), i_.subtract(m_, row));
    loop(zero, last, 1, [&](Value r) {
      nodes_.bindResult(rank_ - 2, i_.add(row, r));
      for (int64_t v = 0; v < tile_.vectors; ++v) {
        e_.toInnermost();
        nodes_.open(nullptr);
        nodes_.bindResult(rank_ - 1, i_.add(column, v * tile_.lanes), tile_.lanes, aligned);
        e_.toInnermost();
        finish(load(sums_, i_.add(i_.multiply(r, columns), v * tile_.lanes), tile_.lanes));
        nodes_.close();
      }
    });
  }

  void pack(Value row, Value column, Value first, Value depth, bool aligned) {
    const int64_t columns = tile_.columns();
    Value zero = i_.number(0);
    loop(zero, depth, 1, [&](Value k) {
      for (int64_t v = 0; v < tile_.vectors; ++v) {
        Value at = i_.add(column, v * tile_.lanes), deep = i_.add(first, k);
        Value value = nodes_.load(1, {{rank_ - 2, deep}, {rank_ - 1, at}}, {rank_ - 1, tile_.lanes, aligned});
        store(packed_b_, i_.add(i_.multiply(k, columns), v * tile_.lanes), widened(value));
      }
    });
    if (row_lanes_ > 1)
      packColumns(row, first, depth);
    else
      packRows(row, first, depth);
  }

  void copyLeft(Value row, Value r, Value first, Value k, unsigned along, int64_t lanes) {
    Value value = nodes_.load(0, {{rank_ - 2, row}, {rank_ - 1, i_.add(first, k)}}, {along, lanes});
    store(packed_a_, i_.add(i_.multiply(r, strides_.row), i_.multiply(k, strides_.depth)), widened(value));
  }

  void packColumns(Value row, Value first, Value depth) {
    Value fits = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sle, i_.add(row, tile_.rows), m_);
    Value ends = arith::XOrIOp::create(b_, loc_, fits, arith::ConstantOp::create(b_, loc_, b_.getBoolAttr(true)));
    e_.openIf(fits);
    loop(i_.number(0), depth, 1, [&](Value k) {
      for (int64_t r = 0; r < tile_.rows; r += row_lanes_)
        copyLeft(i_.add(row, r), i_.number(r), first, k, rank_ - 2, row_lanes_);
    });
    e_.closeIf();
    e_.openIf(ends);
    loop(i_.number(0), depth, 1, [&](Value k) {
      loop(i_.number(0), i_.number(tile_.rows), 1, [&](Value r) {
        Value present = i_.smaller(i_.add(row, r), i_.subtract(m_, i_.number(1)));
        copyLeft(present, r, first, k, rank_ - 2, 1);
      });
    });
    e_.closeIf();
  }

  void packRows(Value row, Value first, Value depth) {
    Value zero = i_.number(0);
    loop(zero, i_.number(tile_.rows), 1, [&](Value r) {
      Value present = i_.smaller(i_.add(row, r), i_.subtract(m_, i_.number(1)));
      auto copy = [&](Value k, int64_t lanes) { copyLeft(present, r, first, k, rank_ - 1, lanes); };
      Value whole = i_.multiply(i_.divide(depth, depth_lanes_), depth_lanes_);
      loop(zero, whole, depth_lanes_, [&](Value k) { copy(k, depth_lanes_); });
      if (depth_lanes_ > 1)
        loop(whole, depth, 1, [&](Value k) { copy(k, 1); });
    });
  }

  void finish(Value sum) {
    if (double alpha = op_.getAlpha().convertToFloat(); alpha != 1)
      sum = arith::MulFOp::create(b_, loc_, sum, constantOfType(b_, loc_, b_.getFloatAttr(type_, alpha), lanesOf(sum)));
    nodes_.store(narrowed(withBias(sum, nodes_)));
  }

  MatmulOp op_;
  ProductNodes nodes_;
  Tile tile_;
  unsigned rank_ = 0;
  int64_t depth_lanes_ = 1, row_lanes_ = 1;
  Strides strides_{block_depth, 1};   // of packed_a
  Value packed_a_, packed_b_, sums_;  // the latter two: a tile's columns side by side
  Value m_, n_, k_;
};

}  // namespace

void scheduleCpuMatmul(const ScheduleContext& context) { CpuMatmul(context).run(); }

}  // namespace zefuse
