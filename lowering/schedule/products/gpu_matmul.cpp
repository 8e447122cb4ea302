// zefuse.matmul in a kernel for a GPU: a group per tile of the result. The evaluator makes what the tiles are loaded
// from, and what the sums become.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/fragment_side.h"
#include "lowering/schedule/products/gpu_product.h"
#include "lowering/schedule/products/product_nodes.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/schedule/products/products.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

class MatmulSchedule {
public:
  explicit MatmulSchedule(const ScheduleContext& context)
      : c_(context), op_(cast<MatmulOp>(context.domain.product->op)), e_(context.evaluator), b_(context.builder()),
        loc_(b_.getUnknownLoc()), i_{b_, loc_}, nodes_(context) {}

  void run() {
    auto sizes = shapeOf(op_.getType());
    size_t rank = sizes.size();
    AffineExpr m = sizes[rank - 2], n = sizes[rank - 1], depth = shapeOf(op_.getA().getType())[rank - 1];
    AffineExpr batches = c_.domain.space.constant(1);
    for (AffineExpr size : ArrayRef(sizes).drop_back(2))
      batches = batches * size;

    Type element = op_.getType().getElementType();
    type_ = element.isF64() ? b_.getF64Type() : b_.getF32Type();
    const Type a = op_.getA().getType().getElementType(), other = op_.getB().getType().getElementType();
    const MatrixOperation* engine = matrixOperation(a, other, c_.target);
    const bool wide = !engine && (engine = splitOperation(a, other, c_.target));
    ProductTile tile = chooseTile(constantOf(m), constantOf(n), constantOf(batches), type_.getIntOrFloatBitWidth() / 8,
                                  c_.target, bool(engine), &c_.decisions, wide);
    AffineExpr tiles_m = m.ceilDiv(tile.rows()), tiles_n = n.ceilDiv(tile.columns());
    LoweredKernel& launch = c_.launch;
    launch.extent = batches * tiles_m * tiles_n;
    launch.grain = 1;
    launch.schedule.add(
        choice::Product{tile.rows(), tile.columns(), tile.subgroups_m * tile.subgroups_n, engine != nullptr,
                        registersOf(tile, type_.getIntOrFloatBitWidth() / 8, c_.target, engine != nullptr)});
    WorkGroup group(b_, c_.function, launch, tile.items(), tile.lanes);

    Value count_n = nodes_.expression(tiles_n), count_m = nodes_.expression(tiles_m);
    Value tile_n = i_.modulo(group.group(), count_n), rest = i_.divide(group.group(), count_n);
    Value tile_m = i_.modulo(rest, count_m);
    nodes_.bindBatch(i_.divide(rest, count_m));

    Product product;
    product.m = rows_ = {nodes_.expression(m), constantOf(m)};
    product.n = columns_ = {nodes_.expression(n), constantOf(n)};
    product.k = {nodes_.expression(depth), constantOf(depth)};
    product.type = type_;
    product.engine = engine;
    product.a = source(0, engine && !wide);
    product.b = source(1, engine && !wide);
    // One with an epilogue has a branch for each row, even where all exist: what the device's compiler would mix takes
    // more registers than there are.
    bool plain = c_.domain.outputs.size() == 1 && c_.domain.outputs[0].node.value == op_.getResult();
    guard_rows_ = !plain || !rows_.constant || *rows_.constant % tile.rows() != 0;
    guard_columns_ = !plain || !columns_.constant || *columns_.constant % tile.columns() != 0;
    emitProduct(b_, group, tile, product, c_.target, i_.multiply(tile_m, tile.rows()),
                i_.multiply(tile_n, tile.columns()), [&](const ProductPart& part) {
                  part.of_row ? storeRow(unsigned(rank), part) : storeColumn(unsigned(rank), part);
                });
  }

private:
  ProductSource source(unsigned operand, bool bits) {
    Type element = cast<RankedTensorType>(op_->getOperand(operand).getType()).getElementType();
    ProductSource found = nodes_.matrixSource(operand, /*runs_of_rows=*/true, [this, bits, element](Value value) {
      return bits ? value : widened(value, element);
    });
    if (!bits && element != type_)
      found.address = nullptr;  // local memory has it widened
    return found;
  }

  // From a register to the accumulator's type.
  Value widened(Value value, Type element) {
    if (element.isF16() || element.isBF16())
      value = widenToF32(b_, loc_, value, element);
    if (type_.isF64() && !element.isF64())
      value = arith::ExtFOp::create(b_, loc_, withLanes(type_, lanesOf(value)), value);
    return value;
  }

  // The epilogue of a block's 8 rows, one after the other.
  void storeColumn(unsigned rank, const ProductPart& part) {
    nodes_.open(i_.less(part.column, columns_.value));
    nodes_.bindResult(rank - 1, part.column);
    for (int64_t block_row = 0; block_row < column_rows; ++block_row) {
      e_.toInnermost();
      Value row = i_.add(part.row, block_row);
      nodes_.open(guard_rows_ ? i_.less(row, rows_.value) : Value());
      nodes_.bindResult(rank - 2, row);
      e_.toInnermost();
      finish(vector::ExtractOp::create(b_, loc_, part.value, block_row), 1);
      nodes_.close();
    }
    nodes_.close();
  }

  // Of neighbours in a row: as many together as divide it, and are neighbours in one dim.
  void storeRow(unsigned rank, const ProductPart& part) {
    const int64_t count = cast<VectorType>(part.value.getType()).getNumElements();
    unsigned lanes = columns_.constant ? unsigned(nodes_.lanesOfResult(rank - 1, count)) : 1;
    while (lanes > 1 && *columns_.constant % lanes != 0)
      lanes /= 2;
    nodes_.open(guard_rows_ ? i_.less(part.row, rows_.value) : Value());
    nodes_.bindResult(rank - 2, part.row);
    for (int64_t lane = 0; lane < count; lane += lanes) {
      e_.toInnermost();
      Value column = i_.add(part.column, lane);
      nodes_.open(guard_columns_ ? i_.less(column, columns_.value) : Value());
      nodes_.bindResult(rank - 1, column, lanes);
      e_.toInnermost();
      Value some = lanes == 1   ? vector::ExtractOp::create(b_, loc_, part.value, lane).getResult()
                   : lanes == 2 ? pairOf(b_, part.value, lane)
                                : part.value;
      finish(some, lanes);
      nodes_.close();
    }
    nodes_.close();
  }

  // What becomes of sums, where their indices are bound.
  void finish(Value element, unsigned lanes) {
    if (double alpha = op_.getAlpha().convertToFloat(); alpha != 1)
      element =
          arith::MulFOp::create(b_, loc_, element, constantOfType(b_, loc_, b_.getFloatAttr(type_, alpha), lanes));
    if (Value bias = nodes_.bias()) {
      Type type = cast<RankedTensorType>(op_.getBias().getType()).getElementType();
      element = arith::AddFOp::create(b_, loc_, element, splat(b_, widened(bias, type), lanes));
    }
    Type result = op_.getType().getElementType();
    if (result.isF16() || result.isBF16())
      element = narrowFromF32(b_, loc_, element, result);
    nodes_.store(element);
  }

  const ScheduleContext& c_;
  MatmulOp op_;
  Evaluator& e_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  ProductNodes nodes_;
  Type type_;  // of the accumulators
  Extent rows_, columns_;
  bool guard_rows_ = true, guard_columns_ = true;
};

}  // namespace

void scheduleGpuMatmul(const ScheduleContext& context) { MatmulSchedule(context).run(); }

}  // namespace zefuse
