#include "lowering/schedule/products/attention_emitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

AttentionEmitter::AttentionEmitter(CallKernel& kernel, int64_t rows, int64_t lanes, const MatrixOperation* engine,
                                   double scale, bool causal, std::optional<unsigned> mask)
    : k_(kernel), b_(kernel.builder()), loc_(b_.getUnknownLoc()), i_(kernel.math()), rows_(rows), lanes_(lanes),
      engine_(engine), f32_(b_.getF32Type()), local_(engine ? Type(b_.getI16Type()) : f32_),
      rank_(kernel.tensor(0).sizes.size()), scale_(scale), causal_(causal), mask_(mask) {
  AffineExpr queries = k_.tensor(0).sizes[rank_ - 2], keys = k_.tensor(1).sizes[rank_ - 2];
  queries_ = {k_.expression(queries), constantOf(queries)};
  keys_ = {k_.expression(keys), constantOf(keys)};
}

Value AttentionEmitter::scalar(double value) const {
  return constantOfType(b_, loc_, b_.getF32FloatAttr(float(value)), 1);
}

Value AttentionEmitter::real(double value) const {
  return constantOfType(b_, loc_, b_.getF32FloatAttr(float(value)), unsigned(rows_));
}

Value AttentionEmitter::element(Value block, int64_t row) {
  return rows_ == 1 ? block : vector::ExtractOp::create(b_, loc_, block, row).getResult();
}

Value AttentionEmitter::joined(ArrayRef<Value> rows) {
  if (rows_ == 1)
    return rows[0];
  return vector::FromElementsOp::create(b_, loc_, VectorType::get({rows_}, f32_), rows);
}

Value AttentionEmitter::exponential(Value x, Value base) {
  return math::ExpOp::create(b_, loc_, arith::SubFOp::create(b_, loc_, x, base));
}

SmallVector<Value> AttentionEmitter::multiply(WorkGroup& group, int64_t count, const Side& rows, const Side& columns,
                                              SmallVector<Value> totals) {
  int64_t unrolled = engine_ ? engine_depth : count % 4 == 0 ? 4 : 1;
  auto loop = scf::ForOp::create(b_, loc_, i_.number(0), i_.number(count), i_.number(unrolled), totals);
  OpBuilder::InsertionGuard guard(b_);
  b_.setInsertionPointToStart(loop.getBody());
  totals = SmallVector<Value>(loop.getRegionIterArgs());
  Value lane = i_.add(columns.first, group.lane());
  for (int64_t ahead = 0; ahead < unrolled; ahead += engine_ ? unrolled : 1) {
    Value k = i_.add(loop.getInductionVar(), ahead);
    auto at = [&](Value array, Value place, int64_t lanes) -> Value {
      return LLVM::LoadOp::create(b_, loc_, withLanes(f32_, unsigned(lanes)), group.at(array, f32_, place), 4);
    };
    Value a = engine_ ? engineRows(b_, group, rows.array, rows.neighbour, rows_, rows.first, k)
                      : at(rows.array, i_.add(i_.multiply(k, rows.step), rows.first), rows_);
    for (auto [block, total] : llvm::enumerate(totals)) {
      Value column = i_.add(lane, int64_t(block) * lanes_);
      if (engine_) {
        Value b = engineColumn(b_, group, columns.array, columns.neighbour, column, k);
        total = group.multiplyMatrices(*engine_, a, b, total);
      } else {
        Value place = i_.add(i_.multiply(k, columns.step), i_.multiply(column, columns.neighbour));
        total = math::FmaOp::create(b_, loc_, a, splat(b_, at(columns.array, place, 1), unsigned(rows_)), total);
      }
    }
  }
  scf::YieldOp::create(b_, loc_, totals);
  return SmallVector<Value>(loop.getResults());
}

void AttentionEmitter::storeRows(WorkGroup& group, Value block, const Side& rows, Value column, Type type) {
  Value start = i_.add(i_.multiply(rows.first, rows.neighbour), i_.multiply(column, rows.step));
  if (!engine_) {
    LLVM::StoreOp::create(b_, loc_, block, group.at(rows.array, f32_, start), 4);
    return;
  }
  for (int64_t r = 0; r < rows_; ++r) {
    Value bits = narrowFromF32(b_, loc_, element(block, r), type);
    LLVM::StoreOp::create(b_, loc_, bits, group.at(rows.array, local_, i_.add(start, r * rows.neighbour)), 2);
  }
}

void AttentionEmitter::bindBatch(Value batch, ArrayRef<AffineExpr> sizes) {
  batch_.assign(rank_, Value());
  for (size_t dim = rank_ - 2; dim-- > 0;) {
    if (dim == 0) {
      batch_[0] = batch;
      break;
    }
    Value size = k_.expression(sizes[dim]);
    batch_[dim] = i_.modulo(batch, size);
    batch = i_.divide(batch, size);
  }
}

SmallVector<Value> AttentionEmitter::indices(const StridedTensor& tensor, Value row, Value column) {
  SmallVector<Value> result(batch_);
  const StridedTensor& q = k_.tensor(0);
  size_t dropped = rank_ - tensor.sizes.size();
  for (size_t dim = dropped; dim + 2 < rank_; ++dim) {
    auto mine = constantOf(tensor.sizes[dim - dropped]), whole = constantOf(q.sizes[dim]);
    if (mine && whole && *mine > 1 && *mine < *whole)
      result[dim] = i_.divide(result[dim], *whole / *mine);
  }
  result[rank_ - 2] = row;
  result[rank_ - 1] = column;
  return result;
}

ProductSource AttentionEmitter::source(const StridedTensor& tensor) {
  ProductSource source;
  source.columns_contiguous = constantOf(tensor.strides[rank_ - 2]) != 1 || constantOf(tensor.strides[rank_ - 1]) == 1;
  // A tile's rows need not be a multiple of an access.
  if (source.columns_contiguous)
    source.run = accessRun(tensor.strides[rank_ - 1], tensor.sizes[rank_ - 1], tensor.element);
  source.load = [this, &tensor](Value row, Value column, int64_t run) {
    Value offset = k_.offset(tensor, indices(tensor, row, column));
    return engine_ ? k_.loadBits(tensor, offset, run) : k_.load(tensor, offset, run);
  };
  return source;
}

Value AttentionEmitter::score(Value product, Value query, Value key, Value exists) {
  Value score = arith::MulFOp::create(b_, loc_, product, scalar(scale_));
  Value seen = exists;
  if (causal_)
    seen = i_.both(seen, i_.less(key, i_.add(query, 1)));
  if (mask_) {
    const StridedTensor& mask = k_.tensor(*mask_);
    Value safe_query = i_.smaller(query, i_.subtract(queries_.value, i_.number(1)));
    Value safe_key = i_.smaller(key, i_.subtract(keys_.value, i_.number(1)));
    Value offset = k_.offset(mask, ArrayRef(indices(mask, safe_query, safe_key)));
    if (mask.element.isInteger(1))
      seen = i_.both(seen, toRegister(b_, loc_, k_.load(mask, offset), mask.element));
    else
      score = arith::AddFOp::create(b_, loc_, score, k_.load(mask, offset));
  }
  return arith::SelectOp::create(b_, loc_, seen, score, scalar(-INFINITY));
}

}  // namespace zefuse
