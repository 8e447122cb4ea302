// Softmax and the normalizations, as reductions and loops that fusion joins into one kernel.
#include "compiler/import/normalization.h"

#include <cmath>

#include "compiler/import/op_table.h"
#include "compiler/import/reductions.h"

using namespace mlir;

namespace zefuse {

Value softmaxOver(TensorBuilder& build, Value x, int64_t dim, Softmax kind) {
  AffineMap back = build.unreduced(rankOf(x), {dim});
  Value largest = build.reduce(x, {dim}, Combiner::max);
  if (kind == Softmax::safe)  // a row of -inf: subtract 0, so that every exp is 0 and not NaN
    largest = mapSame(build, {largest}, typeOf(largest),
                      [](ArrayRef<Scalar> in) { return select(in[0] == -HUGE_VAL, in[0].constant(0), in[0]); });
  if (kind == Softmax::log) {
    Value shifted =
        mapSame(build, {x, Operand(largest, back)}, typeOf(x), [](ArrayRef<Scalar> in) { return in[0] - in[1]; });
    Value powers = mapSame(build, {shifted}, typeOf(x), [](ArrayRef<Scalar> in) { return exp(in[0]); });
    Value sum = build.reduce(powers, {dim}, Combiner::add);
    return mapSame(build, {shifted, Operand(sum, back)}, typeOf(x),
                   [](ArrayRef<Scalar> in) { return in[0] - log(in[1]); });
  }
  Value powers =
      mapSame(build, {x, Operand(largest, back)}, typeOf(x), [](ArrayRef<Scalar> in) { return exp(in[0] - in[1]); });
  Value sum = build.reduce(powers, {dim}, Combiner::add);
  if (kind == Softmax::safe)
    sum = mapSame(build, {sum}, typeOf(sum),
                  [](ArrayRef<Scalar> in) { return select(in[0] == 0, in[0].constant(1), in[0]); });
  return mapSame(build, {powers, Operand(sum, back)}, typeOf(x), [](ArrayRef<Scalar> in) { return in[0] / in[1]; });
}

namespace {

Values emitSoftmax(Op& op, Softmax kind) {
  Value self = op.tensor("self");
  if (!isa<FloatType>(elementOf(self)))
    op.refuse("softmax of " + fx::dtypeName(elementOf(self)) + " is not lowered");
  if (rankOf(self) == 0)
    return {op.build.full(op.resultType(), kind == Softmax::log ? 0 : 1)};
  Value x = op.build.convert(self, fx::computeType(elementOf(self)));
  return {op.build.convert(softmaxOver(op.build, x, op.dim("dim", rankOf(self)), kind), op.element())};
}

// 1 / sqrt(sum / count + eps) of squared deviations.
Value reciprocalDeviation(TensorBuilder& build, Value sum, AffineExpr count, double eps) {
  return build.loop({sum}, typeOf(sum), [&](Body& body, ArrayRef<Scalar> in) {
    return 1.0 / sqrt(in[0] / body.size(count).to(in[0].type()) + eps);
  });
}

// (x - mean) * rstd * weight + bias, rounded to the result. Maps read each operand at x's dimensions.
Value normalize(Op& op, Value x, Operand mean, Operand rstd, std::optional<Operand> weight, std::optional<Operand> bias,
                RankedTensorType result) {
  SmallVector<Operand> operands = {x, mean, rstd};
  if (weight)
    operands.push_back(*weight);
  if (bias)
    operands.push_back(*bias);
  return op.build.loop(operands, result, [&](Body&, ArrayRef<Scalar> in) {
    Type compute = in[1].type();
    Scalar y = (in[0].to(compute) - in[1]) * in[2];
    if (weight)
      y = y * in[3].to(compute);
    if (bias)
      y = y + in.back().to(compute);
    return y.to(result.getElementType());
  });
}

Values emitLayerNorm(Op& op) {
  TensorBuilder& build = op.build;
  Value input = op.tensor("input"), weight = op.optionalTensor("weight"), bias = op.optionalTensor("bias");
  int64_t rank = rankOf(input), normalized = op.sizes("normalized_shape").size();
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(rank - normalized, rank));
  Value x = build.convert(input, fx::computeType(elementOf(input)));
  Value mean = meanOver(build, x, dims);
  Value sum = squaredDeviations(build, x, mean, dims);
  Value rstd = reciprocalDeviation(build, sum, countOf(build, x, dims), op.real("eps"));
  AffineMap back = build.unreduced(rank, dims);
  auto optional = [](Value value) { return value ? std::optional<Operand>(value) : std::nullopt; };
  Value out =
      normalize(op, x, Operand(mean, back), Operand(rstd, back), optional(weight), optional(bias), op.resultType());
  if (op.numResults() == 1)  // layer_norm kept whole
    return {out};
  return {out, build.convert(keepDims(build, mean, dims), op.element(1)),
          build.convert(keepDims(build, rstd, dims), op.element(2))};
}

// The mean square instead of the variance.
Values emitRmsNorm(Op& op) {
  TensorBuilder& build = op.build;
  Value input = op.tensor("input"), weight = op.optionalTensor("weight");
  int64_t rank = rankOf(input), normalized = op.sizes("normalized_shape").size();
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(rank - normalized, rank));
  if (op.isNone("eps"))
    op.refuse("argument eps=None is not lowered");
  Value x = build.convert(input, fx::computeType(elementOf(input)));
  Value squares = mapSame(build, {x}, typeOf(x), [](ArrayRef<Scalar> in) { return in[0] * in[0]; });
  Value sum = build.reduce(squares, dims, Combiner::add);
  Value rstd = reciprocalDeviation(build, sum, countOf(build, x, dims), op.real("eps"));
  SmallVector<Operand> operands = {x, Operand(rstd, build.unreduced(rank, dims))};
  if (weight)
    operands.emplace_back(weight);
  Type element = op.element();
  Value out = build.loop(operands, op.resultType(), [&](Body&, ArrayRef<Scalar> in) {
    Scalar y = in[0] * in[1];
    return (weight ? y * in[2].to(y.type()) : y).to(element);
  });
  if (op.numResults() == 1)
    return {out};
  return {out, build.convert(keepDims(build, rstd, dims), op.element(1))};
}

// [N, C, ...] seen as [N, G, C / G, ...]: a layer norm over all but the first two, then weight and bias per channel.
Values emitGroupNorm(Op& op) {
  TensorBuilder& build = op.build;
  Value input = op.tensor("input"), weight = op.optionalTensor("weight"), bias = op.optionalTensor("bias");
  int64_t groups = op.integer("group");
  Exprs sizes(shapeOf(typeOf(input)));
  Exprs grouped = {sizes[0], build.constant(groups), sizes[1].floorDiv(groups)};
  grouped.append(sizes.begin() + 2, sizes.end());
  Value x = build.convert(build.reshape(input, grouped), fx::computeType(elementOf(input)));
  int64_t rank = rankOf(x);
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(2, rank));
  Value mean = meanOver(build, x, dims);
  Value rstd =
      reciprocalDeviation(build, squaredDeviations(build, x, mean, dims), countOf(build, x, dims), op.real("eps"));
  AffineMap back = build.unreduced(rank, dims), channel = build.map(rank, {build.dim(1), build.dim(2)});
  auto perChannel = [&](Value value) -> std::optional<Operand> {
    if (!value)
      return std::nullopt;
    return Operand(build.reshape(value, {grouped[1], grouped[2]}),
                   AffineMap::get(rank, 0, channel.getResults(), build.b.getContext()));
  };
  Value out = normalize(op, x, Operand(mean, back), Operand(rstd, back), perChannel(weight), perChannel(bias),
                        build.type(grouped, op.element()));
  return {build.reshape(out, sizes), build.convert(mean, op.element(1)), build.convert(rstd, op.element(2))};
}

// Inference: running statistics, per channel (dimension 1).
Values emitBatchNorm(Op& op, StringRef training) {
  TensorBuilder& build = op.build;
  if (!training.empty() && op.boolean(training))
    op.refuse("training mode is not lowered");
  Value input = op.tensor("input"), weight = op.optionalTensor("weight"), bias = op.optionalTensor("bias");
  Value mean = op.tensor("running_mean"), variance = op.tensor("running_var");
  int64_t rank = rankOf(input);
  double eps = op.real("eps");
  AffineMap channel = AffineMap::get(rank, 0, build.dim(1));
  Type compute = fx::computeType(elementOf(input));
  Value scale = build.loop({variance}, withElement(typeOf(variance), compute),
                           [&](Body&, ArrayRef<Scalar> in) { return 1.0 / sqrt(in[0].to(compute) + eps); });
  Value center = build.convert(mean, compute);
  auto optional = [&](Value value) { return value ? std::optional<Operand>(Operand(value, channel)) : std::nullopt; };
  Values results = {normalize(op, input, Operand(center, channel), Operand(scale, channel), optional(weight),
                              optional(bias), op.resultType())};
  for (unsigned i = 1; i < op.numResults(); ++i)  // save_mean, save_invstd: empty in inference
    results.push_back(build.full(op.resultType(i), 0));
  return results;
}

}  // namespace

void registerNormalization(OpTable& table) {
  for (StringRef target : {"_softmax.default", "softmax.int"})
    table.add(("aten." + target).str(), [](Op& op) { return emitSoftmax(op, Softmax::plain); });
  for (StringRef target : {"_log_softmax.default", "log_softmax.int"})
    table.add(("aten." + target).str(), [](Op& op) { return emitSoftmax(op, Softmax::log); });
  table.add("aten._safe_softmax.default", [](Op& op) { return emitSoftmax(op, Softmax::safe); });
  table.add("aten.native_layer_norm.default", emitLayerNorm);
  table.add("aten.layer_norm.default", emitLayerNorm);
  table.add("aten._fused_rms_norm.default", emitRmsNorm);
  table.add("aten.rms_norm.default", emitRmsNorm);
  table.add("aten.native_group_norm.default", emitGroupNorm);
  table.add("aten._native_batch_norm_legit_no_training.default", [](Op& op) { return emitBatchNorm(op, ""); });
  table.add("aten.native_batch_norm.default", [](Op& op) { return emitBatchNorm(op, "training"); });
}

}  // namespace zefuse
