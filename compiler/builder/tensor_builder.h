// Builds stage-1 tensor operations (docs/ir.md): the shapes of loops that emitters share. Knows nothing of FX
// and of targets.
#pragma once

#include <optional>

#include "compiler/builder/scalar.h"
#include "lowering/dialect/shape.h"

namespace zefuse {

using Exprs = llvm::SmallVector<mlir::AffineExpr, 4>;

// What a loop body may use besides the elements of its inputs.
class Body {
public:
  Body(mlir::OpBuilder& builder, mlir::Location location, unsigned num_symbols)
      : b(location, builder), num_symbols_(num_symbols) {}

  Scalar constant(mlir::Type type, double number) { return constantScalar(b, type, number); }
  mlir::Value index(int64_t dim);      // index type
  Scalar position(int64_t dim);        // the same as i64
  Scalar size(mlir::AffineExpr size);  // i64
  // value wrapped when negative (if asked) and checked against [0, bound); see zefuse.checked_index.
  mlir::Value checkedIndex(Scalar value, mlir::AffineExpr bound, bool wrap_negative, llvm::StringRef error,
                           llvm::StringRef message);
  Scalar extract(mlir::Value tensor, mlir::ValueRange indices);

  mlir::ImplicitLocOpBuilder b;

private:
  unsigned num_symbols_;
};

using BodyFunction = llvm::function_ref<Scalar(Body&, llvm::ArrayRef<Scalar>)>;

// An input of a loop. Without a map it broadcasts to the result as in torch (trailing dimensions aligned).
struct Operand {
  mlir::Value tensor;
  mlir::AffineMap map;
  Operand(mlir::Value tensor, mlir::AffineMap map = {}) : tensor(tensor), map(map) {}
};

enum class ReductionKind : uint8_t { add, mul, max, min, logical_and, logical_or };

class TensorBuilder {
public:
  TensorBuilder(mlir::Location location, mlir::OpBuilder& builder, unsigned num_symbols)
      : b(location, builder), num_symbols(num_symbols) {}

  mlir::AffineExpr constant(int64_t value) { return mlir::getAffineConstantExpr(value, b.getContext()); }
  mlir::AffineExpr dim(unsigned position) { return mlir::getAffineDimExpr(position, b.getContext()); }
  mlir::RankedTensorType type(llvm::ArrayRef<mlir::AffineExpr> sizes, mlir::Type element) {
    return shapedTensor(sizes, element, num_symbols);
  }
  // A map from `dims` loop dimensions and the graph's symbols.
  mlir::AffineMap map(unsigned dims, llvm::ArrayRef<mlir::AffineExpr> results) {
    return mlir::AffineMap::get(dims, num_symbols, results, b.getContext());
  }

  mlir::Value size(mlir::AffineExpr expr);
  mlir::Value empty(mlir::RankedTensorType type);

  // result[d...] = body(inputs at d). The body returns the result's element type.
  mlir::Value loop(llvm::ArrayRef<Operand> inputs, mlir::RankedTensorType result, BodyFunction body);
  // A tensor of one constant.
  mlir::Value full(mlir::RankedTensorType type, double number);

  // Drops `dims` (no duplicates, any order; none: the input itself); the element type stays.
  mlir::Value reduce(mlir::Value input, llvm::ArrayRef<int64_t> dims, ReductionKind combiner);
  // The map that reads a reduce() result of those dims back at the unreduced dimensions.
  mlir::AffineMap unreduced(unsigned rank, llvm::ArrayRef<int64_t> dims);

  // result[d...] = source[indices(d...)].
  mlir::Value view(mlir::Value source, llvm::ArrayRef<mlir::AffineExpr> indices,
                   llvm::ArrayRef<mlir::AffineExpr> sizes);
  // Same elements in row-major order.
  mlir::Value reshape(mlir::Value source, llvm::ArrayRef<mlir::AffineExpr> sizes);
  mlir::Value permute(mlir::Value source, llvm::ArrayRef<int64_t> dims);
  // Broadcasts size-1 dimensions and adds leading ones.
  mlir::Value expand(mlir::Value source, llvm::ArrayRef<mlir::AffineExpr> sizes);
  // Elements start, start + step, ... of one dimension.
  mlir::Value slice(mlir::Value source, int64_t dim, mlir::AffineExpr start, mlir::AffineExpr size, int64_t step);
  mlir::Value concat(llvm::ArrayRef<mlir::Value> parts, int64_t dim, mlir::RankedTensorType result);
  // Adds size-1 dimensions at these positions of the result (ascending).
  mlir::Value unsqueeze(mlir::Value source, llvm::ArrayRef<int64_t> dims);

  // result[d...] = source[d - low...], or `number` outside of it. Of an integer type, -infinity is its least value.
  mlir::Value pad(mlir::Value source, llvm::ArrayRef<int64_t> low, llvm::ArrayRef<mlir::AffineExpr> sizes,
                  double number);
  // Likewise along `dim`, to the size `result`, by a `low` that is known when the kernel runs, of either sign.
  mlir::Value padBy(mlir::Value source, int64_t dim, mlir::AffineExpr low, mlir::AffineExpr result, double number);
  // init with updates combined in, in their row-major order, at coordinates(update index..., indices...):
  // zefuse.scatter.
  using Combine = llvm::function_ref<Scalar(Scalar present, Scalar update)>;
  mlir::Value scatter(mlir::Value init, mlir::Value updates, llvm::ArrayRef<mlir::Value> indices,
                      llvm::ArrayRef<mlir::AffineExpr> coordinates, Combine combine);

  // result[i] = combine(result[i - 1], input[i]) along dim, with the number `initial` before the first (-infinity and
  // infinity of an integer type are its least and greatest value): zefuse.scan.
  mlir::Value scan(mlir::Value input, int64_t dim, double initial, Combine combine);

  // The first `count` elements along dim in order, and their positions: zefuse.sort.
  std::pair<mlir::Value, mlir::Value> sort(mlir::Value input, int64_t dim, mlir::AffineExpr count, bool descending);

  mlir::Value convert(mlir::Value tensor, mlir::Type element);
  // alpha * a @ b + bias. `bf16_math`: operands of f32 may be rounded to bf16.
  mlir::Value matmul(mlir::Value a, mlir::Value other, mlir::Value bias, double alpha, mlir::RankedTensorType result,
                     bool bf16_math = false);
  // softmax(scale * query @ key^T + mask) @ value without scores in memory; mask: null for none; no scale: one by the
  // root of the head's size. `log_sums`: also the rows' log-sum-exps; null: without.
  mlir::ResultRange attention(mlir::Value query, mlir::Value key, mlir::Value value, mlir::Value mask,
                              std::optional<double> scale, bool causal, mlir::RankedTensorType result,
                              mlir::RankedTensorType log_sums);
  // Its derivative: one result for the queries, two for keys and values. `operands`: query, key, value, gradient,
  // log_sums, delta (zefuse.attention_gradient).
  mlir::ResultRange attentionGradient(llvm::ArrayRef<mlir::Value> operands, mlir::Value mask,
                                      std::optional<double> scale, bool causal,
                                      llvm::ArrayRef<mlir::RankedTensorType> results);
  // zefuse.grouped_matmul; `index`: null, or a group_index that b was made of.
  mlir::Value groupedMatmul(mlir::Value a, mlir::Value b, mlir::Value offsets, mlir::Value index,
                            mlir::RankedTensorType result, bool bf16_math);
  mlir::Value groupIndex();
  // All steps of a recurrent layer, or their derivative (zefuse.recurrence).
  mlir::ResultRange recurrence(llvm::StringRef cell, llvm::ArrayRef<mlir::Value> operands, bool gradient, bool reverse,
                               bool packed, bool projected, llvm::ArrayRef<mlir::RankedTensorType> results);

  mlir::ImplicitLocOpBuilder b;
  const unsigned num_symbols;

private:
  void fillBody(mlir::Region& region, mlir::Type element, Combine combine);
};

inline mlir::RankedTensorType typeOf(mlir::Value tensor) {
  return llvm::cast<mlir::RankedTensorType>(tensor.getType());
}
inline mlir::Type elementOf(mlir::Value tensor) { return typeOf(tensor).getElementType(); }
inline int64_t rankOf(mlir::Value tensor) { return typeOf(tensor).getRank(); }
inline bool isConstant(mlir::AffineExpr expr, int64_t value) {
  auto constant = llvm::dyn_cast<mlir::AffineConstantExpr>(expr);
  return constant && constant.getValue() == value;
}

}  // namespace zefuse
