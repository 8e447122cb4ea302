// zefuse.matmul on a GPU: a group per tile of the result.
#include "lowering/schedule/products/call_kernel.h"
#include "lowering/schedule/products/epilogue.h"
#include "lowering/schedule/products/gpu_product.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/schedule/products/products.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

std::optional<int64_t> known(AffineExpr expr) { return constantOf(expr); }

class MatmulSchedule {
public:
  MatmulSchedule(MatmulOp op, CallKernel& kernel, const TargetDescription& target)
      : op_(op), k_(kernel), target_(target), b_(kernel.builder()), loc_(b_.getUnknownLoc()), i_(kernel.math()) {}

  void run() {
    const StridedTensor &a = k_.tensor(0), &b = k_.tensor(1);
    result_ = 2 + (op_.getBias() ? 1 : 0) + op_.getOperands_().size();
    const StridedTensor& c = k_.tensor(result_);
    rank_ = c.sizes.size();
    AffineExpr m = c.sizes[rank_ - 2], n = c.sizes[rank_ - 1], depth = a.sizes[rank_ - 1];
    AffineExpr batches = getAffineConstantExpr(1, b_.getContext());
    for (AffineExpr size : ArrayRef(c.sizes).drop_back(2))
      batches = batches * size;

    Type type = c.element.isF64() ? b_.getF64Type() : b_.getF32Type();
    const MatrixOperation* engine = matrixOperation(a.element, b.element, target_);
    ProductTile tile =
        chooseTile(known(m), known(n), known(batches), type.getIntOrFloatBitWidth() / 8, target_, bool(engine));
    AffineExpr tiles_m = m.ceilDiv(tile.rows()), tiles_n = n.ceilDiv(tile.columns());
    LoweredKernel& launch = k_.launch();
    launch.extent = batches * tiles_m * tiles_n;
    launch.grain = 1;
    launch.schedule.add(
        choice::Product{tile.rows(), tile.columns(), tile.subgroups_m * tile.subgroups_n, engine != nullptr,
                        registersOf(tile, type.getIntOrFloatBitWidth() / 8, target_, engine != nullptr)});
    WorkGroup group(b_, k_.function(), launch, tile.items(), tile.block_columns);

    Value count_n = k_.expression(tiles_n), count_m = k_.expression(tiles_m);
    Value tile_n = i_.modulo(group.group(), count_n), rest = i_.divide(group.group(), count_n);
    Value tile_m = i_.modulo(rest, count_m);
    Value batch = i_.divide(rest, count_m);
    indices_.assign(rank_, Value());
    for (size_t dim = rank_ - 2; dim-- > 0;) {
      if (dim == 0) {
        indices_[0] = batch;
        break;
      }
      Value size = k_.expression(c.sizes[dim]);
      indices_[dim] = i_.modulo(batch, size);
      batch = i_.divide(batch, size);
    }

    Product product;
    product.m = {k_.expression(m), known(m)};
    product.n = {k_.expression(n), known(n)};
    product.k = {k_.expression(depth), known(depth)};
    product.type = type;
    product.engine = engine;
    product.a = source(a, bool(engine));
    product.b = source(b, bool(engine));
    rows_ = product.m;
    columns_ = product.n;
    emitProduct(b_, group, tile, product, i_.multiply(tile_m, tile.rows()), i_.multiply(tile_n, tile.columns()),
                [&](Value row, Value column, Value value) { store(tile, row, column, value); });
  }

private:
  SmallVector<Value> at(Value row, Value column) const {
    SmallVector<Value> indices(indices_);
    indices[rank_ - 2] = row;
    indices[rank_ - 1] = column;
    return indices;
  }

  ProductSource source(const StridedTensor& tensor, bool bits) {
    ProductSource source;
    // A transposed operand's rows are neighbours.
    source.columns_contiguous = known(tensor.strides[rank_ - 2]) != 1 || known(tensor.strides[rank_ - 1]) == 1;
    size_t dim = source.columns_contiguous ? rank_ - 1 : rank_ - 2;
    source.run = accessRun(tensor.strides[dim], tensor.sizes[dim], tensor.element);
    source.load = [this, &tensor, bits](Value row, Value column, int64_t run) {
      Value offset = k_.offset(tensor, at(row, column));
      return bits ? k_.loadBits(tensor, offset, run) : k_.load(tensor, offset, run);
    };
    return source;
  }

  // The epilogue of a block's 8 rows, one after the other. One with post-ops has a branch for each, even where all rows
  // exist: what the device's compiler would mix takes more registers than there are.
  void store(const ProductTile& tile, Value first_row, Value column, Value value) {
    Type type = cast<VectorType>(value.getType()).getElementType();
    auto post_ops = llvm::to_vector(op_.getPostOps().getAsValueRange<StringAttr>());
    bool rows_fit = rows_.constant && *rows_.constant % tile.rows() == 0;
    OpBuilder::InsertionGuard guard(b_);
    auto exists = scf::IfOp::create(b_, loc_, i_.less(column, columns_.value), false);
    b_.setInsertionPointToStart(exists.thenBlock());
    // Offsets of the first row; the others are a stride away.
    SmallVector<Value> place = at(first_row, column), bases;
    for (unsigned number = 2; number <= result_; ++number)
      bases.push_back(k_.offset(k_.tensor(number), place));
    for (int64_t block_row = 0; block_row < ProductTile::block_rows; ++block_row) {
      OpBuilder::InsertionGuard inner(b_);
      if (!rows_fit || !post_ops.empty()) {
        Value row = i_.add(first_row, block_row);
        auto branch = scf::IfOp::create(b_, loc_, i_.less(row, rows_.value), false);
        b_.setInsertionPointToStart(branch.thenBlock());
      }
      auto offset = [&](unsigned number) -> Value {
        const StridedTensor& tensor = k_.tensor(number);
        size_t rank = tensor.sizes.size();
        if (rank < 2 || known(tensor.sizes[rank - 2]) == 1)
          return bases[number - 2];
        AffineExpr stride = tensor.strides[rank - 2];
        return known(stride) ? i_.add(bases[number - 2], block_row * *known(stride))
                             : i_.add(bases[number - 2], i_.multiply(k_.expression(stride), block_row));
      };
      auto operand = [&](unsigned number) -> Value {
        Value loaded = k_.load(k_.tensor(number), offset(number));
        if (type.isF64() && !loaded.getType().isF64())
          loaded = arith::ExtFOp::create(b_, loc_, type, loaded);
        return loaded;
      };
      Value element = vector::ExtractOp::create(b_, loc_, value, block_row);
      if (double alpha = op_.getAlpha().convertToFloat(); alpha != 1)
        element = arith::MulFOp::create(b_, loc_, element, constantOfType(b_, loc_, b_.getFloatAttr(type, alpha), 1));
      unsigned next = 2;
      if (op_.getBias())
        element = arith::AddFOp::create(b_, loc_, element, operand(next++));
      element = emitPostOps(b_, loc_, post_ops, element, [&](unsigned number) { return operand(next + number); });
      k_.store(k_.tensor(result_), offset(unsigned(result_)), element);
    }
  }

  MatmulOp op_;
  CallKernel& k_;
  const TargetDescription& target_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  size_t rank_ = 0, result_ = 0;
  SmallVector<Value> indices_;  // of the batch dimensions
  Extent rows_, columns_;
};

}  // namespace

FailureOr<ScheduledKernel> scheduleMatmul(MatmulOp op, ArrayRef<AffineMap> layouts, const TargetDescription& target) {
  if (!target.supports.products)
    return op.emitError("matmul has a kernel on GPU targets only; on the CPU it is a library call"), failure();
  SmallVector<Type> operands(op->getOperandTypes());
  operands.push_back(op.getType());
  for (Type operand : operands) {
    Type element = getElementTypeOrSelf(operand);
    if (!element.isF32() && !element.isF64() && !element.isF16() && !element.isBF16())
      return op.emitError("matmul of ") << element << " has no GPU kernel", failure();
    if (element.isF64() && !target.native.f64)
      return op.emitError("matmul of f64: ") << target.name << " has no double precision", failure();
  }
  CallKernel kernel(op, "matmul", operands, 1, layouts);
  if (!kernel.ok())
    return op.emitError("matmul: ") << kernel.refusal(), failure();
  MatmulSchedule(op, kernel, target).run();
  return kernel.finish();
}

}  // namespace zefuse
