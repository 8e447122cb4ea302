// zefuse.matmul in a kernel for the CPU, in the types that its library does not take: blocks of rows and columns whose
// parts of both operands are packed, in the accumulator's type, for some of what is summed over.
//
//   unit          a block of rows, up to `most_rows`, of one tile of columns
//   tile          as many columns as two cache lines hold; a small matrix has narrower vectors
//   sub-tile      `register_rows` rows of a tile: what registers hold while k is walked
//
// Rows past the last are computed as the last one is and not stored; a last tile of columns overlaps the one before.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/cpu_inner_products.h"
#include "lowering/schedule/products/cpu_product.h"
#include "lowering/schedule/products/products.h"

using namespace mlir;

namespace zefuse {
namespace {

class CpuMatmul : CpuProduct {
public:
  static constexpr int64_t some_rows = 32, most_rows = 64, few_rows = 32, block_depth = 128, run_bytes = 512;

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
    tile_ = tileOf(constantOf(m), rowsOfBlock(constantOf(m)), lanes,
                   std::clamp<int64_t>(tile_bytes / bytes() / lanes, 1, 2));
    // Fewer rows leave registers for more columns, which then lie in fewer pages.
    if (packsLeftAlone() && columnsLieAlong())
      for (int64_t rows = tile_.sub_rows; rows * 2 <= register_rows && tile_.columns() * bytes() < run_bytes; rows *= 2)
        tile_.vectors *= 2;
    while (known && tile_.vectors > 1 && tile_.columns() > *known)
      tile_.vectors /= 2;
    // Integers' sums wait for one addition alone: half as many of them keep AVX2's registers free for what is loaded.
    if (!packsLeftAlone() && isa<IntegerType>(type_) && tile_.sub_rows == register_rows)
      tile_.sub_rows /= 2;
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
    if (!packsLeftAlone())
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
  // Known rows make blocks of like sizes.
  int64_t rowsOfBlock(std::optional<int64_t> rows) const {
    if (!rows)
      return some_rows;
    if (*rows <= few_rows && columnsLieAlong())
      return register_rows;
    const int64_t blocks = (*rows + most_rows - 1) / most_rows, each = (*rows + blocks - 1) / blocks;
    return (each + register_rows - 1) / register_rows * register_rows;
  }

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
      packLeft(row, first, depth);
      if (packsLeftAlone()) {
        multiply(
            tile_, packed_a_, strides_,
            [&](Value k, int64_t v) { return loadColumns(column, i_.add(first, k), v, aligned); }, depth, sums_, zero);
        return;
      }
      loop(zero, depth, 1, [&](Value k) {
        for (int64_t v = 0; v < tile_.vectors; ++v)
          store(packed_b_, i_.add(i_.multiply(k, columns), v * tile_.lanes),
                loadColumns(column, i_.add(first, k), v, aligned));
      });
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

  bool columnsLieAlong() const { return nodes_.accessOf(1, rank_ - 2, rank_ - 1).dimension == rank_ - 1; }

  // A right side that is read by few blocks of as many rows as registers hold is not packed: its columns come from the
  // caches each time.
  bool packsLeftAlone() const { return tile_.rows == tile_.sub_rows; }

  Value loadColumns(Value column, Value deep, int64_t vector, bool aligned) {
    Value at = i_.add(column, vector * tile_.lanes);
    return widened(nodes_.load(1, {{rank_ - 2, deep}, {rank_ - 1, at}}, {rank_ - 1, tile_.lanes, aligned}));
  }

  void packLeft(Value row, Value first, Value depth) {
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

void scheduleCpuMatmul(const ScheduleContext& context) {
  if (!scheduleCpuInnerProducts(context))
    CpuMatmul(context).run();
}

}  // namespace zefuse
