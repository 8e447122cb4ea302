// zefuse.matmul in a kernel for the CPU where both operands lie along what is summed over, as a linear layer's do: each
// element of the result is the inner product of a row and a column as they lie, with a vector of partial sums that are
// added up at its end. Nothing is packed: a block's columns pass through the first-level cache.
//
//   unit          `block_rows` rows of a tile of columns
//   tile          as many columns, by strips of rows, as registers hold partial sums for
//
// Rows and columns past the last are those, once more.
#include "lowering/schedule/products/cpu_inner_products.h"

#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/cpu_product.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

class CpuInnerProducts : CpuProduct {
public:
  static constexpr int64_t block_rows = 32, vector_bytes = 64;
  static constexpr int64_t few_vectors = 4;  // of a sum: adding up their elements takes as long

  explicit CpuInnerProducts(const ScheduleContext& context)
      : CpuProduct(context,
                   cast<RankedTensorType>(context.domain.product->op->getResult(0).getType()).getElementType()),
        op_(cast<MatmulOp>(context.domain.product->op)), nodes_(context), rank_(unsigned(op_.getType().getRank())) {
    const int64_t most = std::min<int64_t>(c_.target.vector_width, vector_bytes / bytes());
    lanes_ = std::min(nodes_.lanesOfOperand(0, rank_ - 1, most), nodes_.lanesOfOperand(1, rank_ - 2, most));
  }

  bool fits() {
    return lanes_ > 1 && constantOf(depth()).value_or(lanes_ * few_vectors) >= lanes_ * few_vectors &&
           !element_.isBF16() && nodes_.accessOf(0, rank_ - 2, rank_ - 1).dimension == rank_ - 1 &&
           nodes_.accessOf(1, rank_ - 2, rank_ - 1).dimension == rank_ - 2;
  }

  void run() {
    const SmallVector<AffineExpr> sizes = shapeOf(op_.getType());
    const AffineExpr m = sizes[rank_ - 2], n = sizes[rank_ - 1];
    AffineExpr batches = c_.domain.space.constant(1);
    for (AffineExpr size : ArrayRef(sizes).drop_back(2))
      batches = batches * size;
    // What AVX2's sixteen registers hold beside what is loaded.
    const bool narrow = lanes_ * bytes() < vector_bytes, one = constantOf(m) == 1;
    rows_ = one ? 1 : narrow ? 4 : 2;
    columns_ = one ? 4 : 3;
    if (auto known = constantOf(n))
      columns_ = std::min(columns_, *known);

    AffineExpr tiles = n.ceilDiv(columns_), blocks = m.ceilDiv(block_rows);
    c_.launch.schedule.add(choice::InnerProducts{rows_, columns_, lanes_});
    Value group = c_.workItem("_Z12get_group_idj");
    const double depth_of_sum = double(constantOf(depth()).value_or(256));
    const double rows_of_block = double(std::min(constantOf(m).value_or(block_rows), block_rows));
    auto [begin, end] = shareOfGroup(c_, group, c_.domain.space.simplify(batches * tiles * blocks),
                                     rows_of_block * double(columns_) * std::max(depth_of_sum, 1.0) / 4);
    m_ = nodes_.expression(m);
    n_ = nodes_.expression(n);
    k_ = nodes_.expression(depth());
    Value tile_count = nodes_.expression(tiles), block_count = nodes_.expression(blocks);
    auto units = e_.openLoop(begin, end, i_.number(1));
    // A block's rows stay in the second-level cache.
    Value tile = i_.modulo(units.index(), tile_count), rest = i_.divide(units.index(), tile_count);
    Value block = i_.modulo(rest, block_count);
    nodes_.bindBatch(i_.divide(rest, block_count));
    e_.toInnermost();
    Value column = i_.multiply(tile, columns_), row = i_.multiply(block, block_rows);
    loop(row, i_.smaller(i_.add(row, block_rows), m_), rows_, [&](Value strip) { emitStrip(strip, column); });
    e_.closeLoop(units);
  }

private:
  AffineExpr depth() { return shapeOf(op_.getA().getType())[rank_ - 1]; }

  void emitStrip(Value row, Value column) {
    SmallVector<Value> at_rows, at_columns;
    for (int64_t r = 0; r < rows_; ++r)
      at_rows.push_back(i_.smaller(i_.add(row, r), i_.subtract(m_, i_.number(1))));
    for (int64_t c = 0; c < columns_; ++c)
      at_columns.push_back(i_.smaller(i_.add(column, c), i_.subtract(n_, i_.number(1))));
    Value zero = i_.number(0), whole = i_.multiply(i_.divide(k_, lanes_), lanes_);
    SmallVector<Value> sums = walk(at_rows, at_columns, zero, whole, lanes_, {});
    for (Value& sum : sums)
      sum = total(sum);
    if (auto known = constantOf(depth()); !known || *known % lanes_ != 0)
      sums = walk(at_rows, at_columns, whole, k_, 1, sums);
    for (auto [r, at_row] : llvm::enumerate(at_rows))
      for (auto [c, at_column] : llvm::enumerate(at_columns)) {
        e_.toInnermost();
        nodes_.open(nullptr);
        nodes_.bindResult(rank_ - 2, at_row);
        nodes_.bindResult(rank_ - 1, at_column);
        e_.toInnermost();
        Value sum = sums[r * at_columns.size() + c];
        if (double alpha = op_.getAlpha().convertToFloat(); alpha != 1)
          sum = arith::MulFOp::create(b_, loc_, sum, constantOfType(b_, loc_, b_.getFloatAttr(type_, alpha), 1));
        nodes_.store(narrowed(withBias(sum, nodes_)));
        nodes_.close();
      }
  }

  // The sums of all pairs of rows and columns, with those from `from` to `to`.
  SmallVector<Value> walk(ArrayRef<Value> rows, ArrayRef<Value> columns, Value from, Value to, int64_t lanes,
                          SmallVector<Value> sums) {
    if (sums.empty())
      sums.assign(rows.size() * columns.size(), constantOfType(b_, loc_, b_.getZeroAttr(type_), unsigned(lanes)));
    e_.toInnermost();
    auto made = e_.openLoop(from, to, i_.number(lanes), sums);
    SmallVector<Value> next(made.carried()), right;
    for (Value column : columns)
      right.push_back(widened(nodes_.load(1, {{rank_ - 2, made.index()}, {rank_ - 1, column}}, {rank_ - 2, lanes})));
    for (auto [r, row] : llvm::enumerate(rows)) {
      Value left = widened(nodes_.load(0, {{rank_ - 2, row}, {rank_ - 1, made.index()}}, {rank_ - 1, lanes}));
      for (size_t c = 0; c < columns.size(); ++c) {
        Value& sum = next[r * columns.size() + c];
        sum = multiplyAdd(left, right[c], sum);
      }
    }
    ValueRange results = e_.closeLoop(made, next);
    e_.toInnermost();
    return SmallVector<Value>(results);
  }

  Value add(Value a, Value b) {
    return isa<FloatType>(type_) ? arith::AddFOp::create(b_, loc_, a, b).getResult()
                                 : arith::AddIOp::create(b_, loc_, a, b).getResult();
  }

  // Of a vector's elements: halves are added, in an order that is the same for each sum.
  Value total(Value sums) {
    for (int64_t half = lanesOf(sums) / 2; half > 1; half /= 2) {
      const auto low = llvm::to_vector(llvm::seq<int64_t>(0, half)), high = llvm::to_vector(llvm::seq(half, 2 * half));
      sums = add(vector::ShuffleOp::create(b_, loc_, sums, sums, low),
                 vector::ShuffleOp::create(b_, loc_, sums, sums, high));
    }
    return add(vector::ExtractOp::create(b_, loc_, sums, 0), vector::ExtractOp::create(b_, loc_, sums, 1));
  }

  MatmulOp op_;
  ProductNodes nodes_;
  unsigned rank_;
  int64_t lanes_ = 1, rows_ = 1, columns_ = 1;  // of a vector; of a strip
  Value m_, n_, k_;
};

}  // namespace

bool scheduleCpuInnerProducts(const ScheduleContext& context) {
  CpuInnerProducts products(context);
  if (!products.fits())
    return false;
  products.run();
  return true;
}

}  // namespace zefuse
