// Reductions over dimensions: one combiner loop each, in f32 for f16 and bf16.
#include "compiler/import/reductions.h"
#include "compiler/import/elementwise.h"
#include "compiler/import/op_table.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {

Value keepDims(TensorBuilder& build, Value reduced, ArrayRef<int64_t> dims) {
  return dims.empty() ? reduced : build.unsqueeze(reduced, dims);
}

AffineExpr countOf(TensorBuilder& build, Value tensor, ArrayRef<int64_t> dims) {
  auto sizes = shapeOf(typeOf(tensor));
  AffineExpr count = build.constant(1);
  for (int64_t dim : dims)
    count = count * sizes[dim];
  return count;
}

Value mapSame(TensorBuilder& build, ArrayRef<Operand> inputs, RankedTensorType type,
              llvm::function_ref<Scalar(ArrayRef<Scalar>)> body) {
  return build.loop(inputs, type, [&](Body&, ArrayRef<Scalar> in) { return body(in); });
}

Value meanOver(TensorBuilder& build, Value tensor, ArrayRef<int64_t> dims) {
  Value sum = build.reduce(tensor, dims, ReductionKind::add);
  AffineExpr count = countOf(build, tensor, dims);
  return build.loop({sum}, typeOf(sum),
                    [&](Body& body, ArrayRef<Scalar> in) { return in[0] / body.size(count).to(in[0].type()); });
}

Value squaredDeviations(TensorBuilder& build, Value tensor, Value mean, ArrayRef<int64_t> dims) {
  Value squares = mapSame(build, {tensor, Operand(mean, build.unreduced(rankOf(tensor), dims))}, typeOf(tensor),
                          [](ArrayRef<Scalar> in) { return (in[0] - in[1]) * (in[0] - in[1]); });
  return build.reduce(squares, dims, ReductionKind::add);
}

namespace {

// A missing 'dim' argument: all dimensions. `keepdim` likewise is false where the overload has none.
SmallVector<int64_t> reducedDims(Op& op, int64_t rank) {
  if (!op.takes("dim"))
    return llvm::to_vector(llvm::seq<int64_t>(0, rank));
  return op.dims("dim", rank);
}

Value finish(Op& op, Value reduced, ArrayRef<int64_t> dims, unsigned result = 0) {
  if (op.takes("keepdim") && op.boolean("keepdim"))
    reduced = keepDims(op.build, reduced, dims);
  return op.build.convert(reduced, op.element(result));
}

// sum and prod: in the result's dtype (integers become i64 there).
Values emitFold(Op& op, ReductionKind combiner) {
  Value self = op.tensor("self");
  SmallVector<int64_t> dims = reducedDims(op, rankOf(self));
  Value values = op.build.convert(op.build.convert(self, op.element()), fx::computeType(op.element()));
  if (fx::computeType(op.element()) == fx::computeType(elementOf(self)))
    values = op.build.convert(self, fx::computeType(op.element()));
  return {finish(op, op.build.reduce(values, dims, combiner), dims)};
}

Values emitMean(Op& op) {
  Value self = op.tensor("self");
  SmallVector<int64_t> dims = reducedDims(op, rankOf(self));
  Value values = op.build.convert(self, fx::computeType(op.element()));
  return {finish(op, meanOver(op.build, values, dims), dims)};
}

// amax, amin, max, min: the elements' own type suffices, nothing rounds.
Value extreme(Op& op, Value self, ArrayRef<int64_t> dims, bool largest) {
  if (elementOf(self).isInteger(1))
    return op.build.reduce(self, dims, largest ? ReductionKind::logical_or : ReductionKind::logical_and);
  Value values = op.build.convert(self, fx::computeType(elementOf(self)));
  return op.build.reduce(values, dims, largest ? ReductionKind::max : ReductionKind::min);
}

// Of no elements there is no extreme, and eager raises: ATen does where that is known, a check beside each result where
// a size may become zero. (amax and argmax come with a guard of torch's own.)
class SomeElements {
public:
  SomeElements(Op& op, Value self, ArrayRef<int64_t> dims, bool largest) : op_(op) {
    std::string name = largest ? "max()" : "min()";
    if (op.takes("dim")) {
      count_ = shapeOf(typeOf(self))[dims[0]];
      error_ = "index_error";
      message_ = name + ": Expected reduction dim " + std::to_string(dims[0]) + " to have non-zero size.";
    } else {
      count_ = countOf(op.build, self, dims);
      error_ = "runtime_error";
      message_ = name + ": Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim " +
                 "with the 'dim' argument.";
    }
    if (isConstant(count_, 0))
      op.refuse("there are no elements to reduce, for which eager raises");
  }

  Value check(Value result) const {
    if (isa<AffineConstantExpr>(count_))
      return result;
    return op_.build.loop({result}, typeOf(result), [&](Body& body, ArrayRef<Scalar> in) {
      Type i64 = body.b.getI64Type();
      Value first = body.checkedIndex(constantScalar(body.b, i64, int64_t(0)), count_, false, error_, message_);
      Scalar is_first = Scalar(body.b, arith::IndexCastOp::create(body.b, i64, first)) == 0;
      return select(is_first, in[0], in[0].constant(0));  // so that the check has a reader
    });
  }

private:
  Op& op_;
  AffineExpr count_;
  std::string error_, message_;
};

// amax and amin.
Values emitExtreme(Op& op, bool largest) {
  Value self = op.tensor("self");
  SmallVector<int64_t> dims = reducedDims(op, rankOf(self));
  return {finish(op, extreme(op, self, dims, largest), dims)};
}

Values emitExtremeOfAll(Op& op, bool largest) {
  Value self = op.tensor("self");
  SmallVector<int64_t> dims = reducedDims(op, rankOf(self));
  SomeElements some(op, self, dims, largest);
  return {finish(op, some.check(extreme(op, self, dims, largest)), dims)};
}

// The first position along `dim` whose value is the extreme, given that; a NaN is the extreme of what holds one.
Value positionOf(TensorBuilder& build, Value values, Value extreme, int64_t dim) {
  AffineExpr size = shapeOf(typeOf(values))[dim];
  auto known = dyn_cast<AffineConstantExpr>(size);
  Type index = known && known.getValue() <= INT32_MAX ? build.b.getI32Type() : build.b.getI64Type();
  Value found = build.loop({values, Operand(extreme, build.unreduced(rankOf(values), {dim}))},
                           withElement(typeOf(values), index), [&](Body& body, ArrayRef<Scalar> in) {
                             Scalar same = in[0] == in[1];
                             if (in[0].isFloat())
                               same = same | (isNan(in[0]) & isNan(in[1]));
                             return select(same, body.position(dim).to(index), body.size(size).to(index));
                           });
  return build.reduce(found, {dim}, ReductionKind::min);
}

// argmax, argmin: without a dimension, of the flattened tensor.
Values emitArgExtreme(Op& op, bool largest) {
  Value self = op.tensor("self");
  if (elementOf(self).isInteger(1))
    op.refuseType(elementOf(self));
  bool flat = op.isNone("dim");
  int64_t dim = flat ? 0 : op.dim("dim", rankOf(self));
  if (rankOf(self) == 0)
    return {op.build.full(op.resultType(), 0)};
  if (flat)
    self = op.build.reshape(self, {numElements(typeOf(self))});
  Value values = op.build.convert(self, fx::computeType(elementOf(self)));
  Value index = positionOf(op.build, values, extreme(op, self, {dim}, largest), dim);
  index = op.build.convert(index, op.element());
  if (!flat)
    return {finish(op, index, {dim})};
  return {op.build.reshape(index, shapeOf(op.resultType()))};
}

Values emitExtremeWithIndices(Op& op, bool largest) {
  Value self = op.tensor("self");
  if (rankOf(self) == 0)
    return {self, op.build.full(op.resultType(1), 0)};
  int64_t dim = op.dim("dim", rankOf(self));
  SomeElements some(op, self, {dim}, largest);
  Value found = extreme(op, self, {dim}, largest);
  Values results = {finish(op, some.check(found), {dim}), Value()};
  if (op.used(1)) {
    Value values = op.build.convert(self, fx::computeType(elementOf(self)));
    results[1] = finish(op, some.check(positionOf(op.build, values, found, dim)), {dim}, 1);
  }
  return results;
}

Values emitAnyAll(Op& op, bool any) {
  Value self = op.build.convert(op.tensor("self"), op.build.b.getI1Type());
  SmallVector<int64_t> dims = reducedDims(op, rankOf(self));
  Value reduced = op.build.reduce(self, dims, any ? ReductionKind::logical_or : ReductionKind::logical_and);
  return {finish(op, reduced, dims)};
}

enum class Spread : uint8_t { variance, deviation };

// From the sum of squared deviations.
Scalar spreadOf(Scalar squares, Scalar divisor, Spread spread) {
  Scalar variance = squares / divisor;
  return spread == Spread::deviation ? sqrt(variance) : variance;
}

// How many elements less the correction, at least 0.
Scalar divisorOf(Body& body, Scalar sum, AffineExpr count, double correction) {
  Scalar divisor = body.size(count).to(sum.type()) - correction;
  return maximum(divisor, divisor.constant(0));
}

// On the CPU eager sums squares in double precision, on GPUs in single. What is beyond single precision's range is
// within it where deviations were multiplied by a power of two, so there are three sums of one pass, of which the first
// that is neither infinite nor so small that it lost bits holds.
constexpr double kShrink = 0x1p-70, kGrow = 0x1p+80, kLeastExact = 0x1p-96;
// Beside deviations whose squares' sum is infinite those below are nothing; shrunk they would be subnormal, which
// processors are slow at.
constexpr double kLeastShrunk = 0x1p+30;

Scalar shrunkSquare(Scalar deviation) {
  Scalar shrunk = select(abs(deviation) > kLeastShrunk, deviation, deviation.constant(kLeastShrunk)) * kShrink;
  return shrunk * shrunk;
}

Scalar grownSquare(Scalar deviation) {
  Scalar grown = deviation * kGrow;
  return grown * grown;
}

Value spreadOfAnySize(TensorBuilder& build, Value values, Value mean, AffineExpr count, ArrayRef<int64_t> dims,
                      double correction, Spread spread) {
  auto sum = [&](Scalar square(Scalar)) {
    Operand spread_mean(mean, build.unreduced(rankOf(values), dims));
    Value squares = mapSame(build, {values, spread_mean}, typeOf(values),
                            [&](ArrayRef<Scalar> in) { return square(in[0] - in[1]); });
    return build.reduce(squares, dims, ReductionKind::add);
  };
  Value squares = squaredDeviations(build, values, mean, dims), shrunk = sum(shrunkSquare), grown = sum(grownSquare);
  return build.loop({squares, shrunk, grown}, typeOf(squares), [&](Body& body, ArrayRef<Scalar> in) {
    Scalar infinite = in[0] == std::numeric_limits<double>::infinity(), small = in[0] < kLeastExact;
    Scalar sum = select(infinite, in[1], select(small, in[2], in[0]));
    Scalar unit = select(infinite, sum.constant(1 / kShrink), select(small, sum.constant(1 / kGrow), sum.constant(1)));
    Scalar scaled = spreadOf(sum, divisorOf(body, sum, count, correction), spread) * unit;
    return spread == Spread::deviation ? scaled : scaled * unit;
  });
}

// Two passes, as accurate as eager's Welford: mean, then squared deviations over count - correction.
struct Moments {
  Value spread, mean;
};
Moments moments(Op& op, ArrayRef<int64_t> dims, double correction, Spread spread) {
  TensorBuilder& build = op.build;
  Value self = op.tensor("self");
  Value values = build.convert(self, fx::computeType(elementOf(self)));
  Value mean = meanOver(build, values, dims);
  AffineExpr count = countOf(build, values, dims);
  auto bySingleSum = [&]() -> Values {
    Value sum = squaredDeviations(build, values, mean, dims);
    return {build.loop({sum}, typeOf(sum), [&](Body& body, ArrayRef<Scalar> in) {
      return spreadOf(in[0], divisorOf(body, in[0], count, correction), spread);
    })};
  };
  if (!elementOf(values).isF32() || elementOf(self).isF16())
    return {bySingleSum()[0], mean};
  auto ofAnySize = [&]() -> Values {
    Value made = spreadOfAnySize(build, values, mean, count, dims, correction, spread);
    made.getDefiningOp()->setDiscardableAttr("zefuse.only_on_host", build.b.getUnitAttr());
    return {made};
  };
  return {op.alternatives({ofAnySize, bySingleSum})[0], mean};
}

double correctionOf(Op& op) {
  if (op.takes("unbiased"))
    return op.boolean("unbiased") ? 1 : 0;
  return op.isNone("correction") ? 1 : op.real("correction");
}

Values emitVariance(Op& op, Spread spread, bool with_mean) {
  SmallVector<int64_t> dims = reducedDims(op, rankOf(op.tensor("self")));
  Moments made = moments(op, dims, correctionOf(op), spread);
  Values results = {finish(op, made.spread, dims)};
  if (with_mean)
    results.push_back(finish(op, made.mean, dims, 1));
  return results;
}

}  // namespace

void registerReductions(OpTable& table) {
  for (StringRef overload : {"default", "dim_IntList"})
    table.add(("aten.sum." + overload).str(), [](Op& op) { return emitFold(op, ReductionKind::add); });
  for (StringRef overload : {"default", "dim_int"})
    table.add(("aten.prod." + overload).str(), [](Op& op) { return emitFold(op, ReductionKind::mul); });
  for (StringRef overload : {"default", "dim"})
    table.add(("aten.mean." + overload).str(), emitMean);
  table.add("aten.amax.default", [](Op& op) { return emitExtreme(op, true); });
  table.add("aten.amin.default", [](Op& op) { return emitExtreme(op, false); });
  table.add("aten.max.default", [](Op& op) { return emitExtremeOfAll(op, true); });
  table.add("aten.min.default", [](Op& op) { return emitExtremeOfAll(op, false); });
  table.add("aten.argmax.default", [](Op& op) { return emitArgExtreme(op, true); });
  table.add("aten.argmin.default", [](Op& op) { return emitArgExtreme(op, false); });
  table.add("aten.max.dim", [](Op& op) { return emitExtremeWithIndices(op, true); });
  table.add("aten.min.dim", [](Op& op) { return emitExtremeWithIndices(op, false); });
  for (StringRef overload : {"default", "dim", "dims"}) {
    table.add(("aten.any." + overload).str(), [](Op& op) { return emitAnyAll(op, true); });
    table.add(("aten.all." + overload).str(), [](Op& op) { return emitAnyAll(op, false); });
  }
  for (StringRef overload : {"default", "dim", "correction"}) {
    table.add(("aten.var." + overload).str(), [](Op& op) { return emitVariance(op, Spread::variance, false); });
    table.add(("aten.std." + overload).str(), [](Op& op) { return emitVariance(op, Spread::deviation, false); });
    table.add(("aten.var_mean." + overload).str(), [](Op& op) { return emitVariance(op, Spread::variance, true); });
    table.add(("aten.std_mean." + overload).str(), [](Op& op) { return emitVariance(op, Spread::deviation, true); });
  }
}

}  // namespace zefuse
