#include "lowering/schedule/products/attention_gradient_emitter.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace zefuse {
namespace {

Extent rowsOf(CallKernel& kernel, unsigned number) {
  AffineExpr rows = kernel.tensor(number).sizes.end()[-2];
  return {kernel.expression(rows), constantOf(rows)};
}

}  // namespace

AttentionGradientEmitter::AttentionGradientEmitter(const AttentionGradientCall& call, CallKernel& kernel, int64_t rows,
                                                   int64_t lanes, const MatrixOperation* engine)
    : AttentionEmitter(kernel.builder(), rows, lanes, engine, call.scale, call.causal, rowsOf(kernel, 0),
                       rowsOf(kernel, 1)),
      k_(kernel), rank_(kernel.tensor(0).sizes.size()), call_(call), own_(call.of_keys ? keys_ : queries_),
      passing_(call.of_keys ? queries_ : keys_),
      first_result_((call.mask ? 7 : 6) + (call.all && call.of_keys ? 1 : 0)) {
  if (call.mask)
    mask_ = [this](Value query, Value key) {
      const StridedTensor& mask = k_.tensor(6);
      return toRegister(b_, loc_, k_.load(mask, k_.offset(mask, indices(mask, query, key))), mask.element);
    };
}

int64_t AttentionGradientEmitter::bindBatch(Value batch) {
  batch_.assign(rank_, Value());
  for (size_t dim = rank_ - 2; dim-- > 0;) {
    if (dim == 0) {
      batch_[0] = batch;
      break;
    }
    Value size = k_.expression(result(0).sizes[dim]);
    batch_[dim] = i_.modulo(batch, size);
    batch = i_.divide(batch, size);
  }
  const size_t head = rank_ - 3;
  auto all = constantOf(k_.tensor(0).sizes[head]), fewer = constantOf(k_.tensor(1).sizes[head]);
  const int64_t sharers = call_.of_keys && all && fewer ? *all / *fewer : 1;
  if (sharers > 1)
    batch_[head] = i_.multiply(batch_[head], sharers);
  return sharers;
}

SmallVector<Value>
AttentionGradientEmitter::overSharers(int64_t sharers, SmallVector<Value> totals,
                                      llvm::function_ref<SmallVector<Value>(SmallVector<Value>)> pass) {
  if (sharers == 1)
    return pass(totals);
  auto loop = scf::ForOp::create(b_, loc_, i_.number(0), i_.number(sharers), i_.number(1), totals);
  OpBuilder::InsertionGuard guard(b_);
  b_.setInsertionPointToStart(loop.getBody());
  Value& head = batch_[rank_ - 3];
  Value first = head;
  head = i_.add(first, loop.getInductionVar());
  scf::YieldOp::create(b_, loc_, pass(SmallVector<Value>(loop.getRegionIterArgs())));
  head = first;
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value> AttentionGradientEmitter::indices(const StridedTensor& tensor, Value row, Value column) {
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

const StridedTensor& AttentionGradientEmitter::own(int number) const {
  return k_.tensor(number == 0 ? (call_.of_keys ? 1 : 0) : (call_.of_keys ? 2 : 3));
}

const StridedTensor& AttentionGradientEmitter::passing(int number) const {
  return k_.tensor(number == 0 ? (call_.of_keys ? 0 : 1) : (call_.of_keys ? 3 : 2));
}

Value AttentionGradientEmitter::rowSumOffset(const StridedTensor& tensor, Value query) {
  SmallVector<Value> place(batch_);
  place[rank_ - 2] = i_.smaller(query, i_.subtract(queries_.value, i_.number(1)));
  return k_.offset(tensor, ArrayRef(place).drop_back());
}

ProductSource AttentionGradientEmitter::source(const StridedTensor& tensor) {
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

std::pair<Value, Value> AttentionGradientEmitter::rowSums(Value query, Value exists) {
  auto load = [&](unsigned number) { return k_.load(k_.tensor(number), rowSumOffset(k_.tensor(number), query)); };
  Value sum = load(4), delta = load(5), zero = scalar(0);
  Value sees =
      i_.both(exists, arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::UNE, sum, scalar(-INFINITY)).getResult());
  if (exists)
    delta = arith::SelectOp::create(b_, loc_, exists, delta, zero);
  return {arith::SelectOp::create(b_, loc_, sees, sum, zero), delta};
}

}  // namespace zefuse
