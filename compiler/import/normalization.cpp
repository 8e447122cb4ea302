// Softmax and the normalizations, as reductions and loops that fusion joins into one kernel.
#include "compiler/import/normalization.h"

#include <cmath>
#include <limits>

#include "compiler/import/op_table.h"
#include "compiler/import/reductions.h"

using namespace mlir;

namespace zefuse {

// The largest of each row; for a row of -inf 0, so that subtracting it leaves every exp 0 and not NaN.
static Value finiteLargest(TensorBuilder& build, Value x, int64_t dim) {
  Value largest = build.reduce(x, {dim}, ReductionKind::max);
  return mapSame(build, {largest}, typeOf(largest),
                 [](ArrayRef<Scalar> in) { return select(in[0] == -HUGE_VAL, in[0].constant(0), in[0]); });
}

Value logSumExpOver(TensorBuilder& build, Value x, int64_t dim, Scalar (*power)(Scalar)) {
  AffineMap back = build.unreduced(rankOf(x), {dim});
  Value largest = finiteLargest(build, x, dim);
  Value powers =
      mapSame(build, {x, Operand(largest, back)}, typeOf(x), [&](ArrayRef<Scalar> in) { return power(in[0] - in[1]); });
  Value sum = build.reduce(powers, {dim}, ReductionKind::add);
  return mapSame(build, {sum, largest}, typeOf(sum), [](ArrayRef<Scalar> in) { return log(in[0]) + in[1]; });
}

Scalar normalExp(Scalar x) {
  Scalar power = exp(x);
  if (!power.type().isF32())
    return power;
  return select(power < double(std::numeric_limits<float>::min()), power.constant(0), power);
}

Value softmaxOver(TensorBuilder& build, Value x, int64_t dim, Softmax kind, Scalar (*power)(Scalar)) {
  AffineMap back = build.unreduced(rankOf(x), {dim});
  Value largest = kind == Softmax::safe ? finiteLargest(build, x, dim) : build.reduce(x, {dim}, ReductionKind::max);
  if (kind == Softmax::log) {
    Value shifted =
        mapSame(build, {x, Operand(largest, back)}, typeOf(x), [](ArrayRef<Scalar> in) { return in[0] - in[1]; });
    Value powers = mapSame(build, {shifted}, typeOf(x), [](ArrayRef<Scalar> in) { return exp(in[0]); });
    Value sum = build.reduce(powers, {dim}, ReductionKind::add);
    Value logarithm = mapSame(build, {sum}, typeOf(sum), [](ArrayRef<Scalar> in) { return log(in[0]); });
    return mapSame(build, {shifted, Operand(logarithm, back)}, typeOf(x),
                   [](ArrayRef<Scalar> in) { return in[0] - in[1]; });
  }
  Value powers =
      mapSame(build, {x, Operand(largest, back)}, typeOf(x), [&](ArrayRef<Scalar> in) { return power(in[0] - in[1]); });
  Value sum = build.reduce(powers, {dim}, ReductionKind::add);
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
  Value x = op.build.convert(self, fx::computeType(elementOf(self)));
  // The safe one is attention's, where the operator is not whole.
  auto* power = kind == Softmax::safe ? normalExp : exp;
  if (rankOf(self) == 0) {  // a row of one: 1, but NaN and infinity are NaN
    Value row = softmaxOver(op.build, op.build.reshape(x, {op.build.constant(1)}), 0, kind, power);
    return {op.build.convert(op.build.reshape(row, {}), op.element())};
  }
  return {op.build.convert(softmaxOver(op.build, x, op.dim("dim", rankOf(self)), kind, power), op.element())};
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
  Value sum = build.reduce(squares, dims, ReductionKind::add);
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

// Training: the batch's own statistics, per channel (dimension 1). Results: output, mean, 1 / deviation, and the new
// running mean and variance where the operator gives them.
Values emitBatchNormTraining(Op& op) {
  TensorBuilder& build = op.build;
  Value input = op.tensor("input"), weight = op.optionalTensor("weight"), bias = op.optionalTensor("bias");
  int64_t rank = rankOf(input);
  SmallVector<int64_t> dims = {0};
  dims.append(llvm::to_vector(llvm::seq<int64_t>(2, rank)));
  Type compute = fx::computeType(elementOf(input));
  Value x = build.convert(input, compute);
  Value mean = meanOver(build, x, dims), sum = squaredDeviations(build, x, mean, dims);
  AffineExpr count = countOf(build, x, dims);
  Value rstd = reciprocalDeviation(build, sum, count, op.real("eps"));
  AffineMap channel = AffineMap::get(rank, 0, build.dim(1));
  auto optional = [&](Value value) { return value ? std::optional<Operand>(Operand(value, channel)) : std::nullopt; };
  Values results = {normalize(op, x, Operand(mean, channel), Operand(rstd, channel), optional(weight), optional(bias),
                              op.resultType()),
                    build.convert(mean, op.element(1)), build.convert(rstd, op.element(2))};
  if (op.numResults() == 3)
    return results;
  double momentum = op.real("momentum");
  // In the dtype that torch's shape rule gives: f32 for a model in bf16, cast back by the trace.
  auto moved = [&](StringRef name, Value batch, bool variance, unsigned result) {
    Value running = op.tensor(name);
    return build.loop({running, batch}, op.resultType(result), [&](Body& body, ArrayRef<Scalar> in) {
      Scalar now = in[1];
      if (variance) {  // the unbiased one: over count - 1
        Scalar n = body.size(count).to(compute);
        now = now / (n - 1.0);
      }
      return (in[0].to(compute) * (1.0 - momentum) + now * momentum).to(op.element(result));
    });
  };
  results.push_back(moved("running_mean", mean, false, 3));
  results.push_back(moved("running_var", sum, true, 4));
  return results;
}

// Inference: running statistics, per channel (dimension 1).
Values emitBatchNorm(Op& op, StringRef training) {
  TensorBuilder& build = op.build;
  if (!training.empty() && op.boolean(training)) {
    if (op.numResults() == 3 && !op.isNone("running_mean"))
      op.refuse("training mode that changes its running statistics in place is not lowered");
    return emitBatchNormTraining(op);
  }
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
  for (unsigned i = 1; i < std::min(op.numResults(), 3u); ++i)  // save_mean, save_invstd: empty in inference
    results.push_back(build.full(op.resultType(i), 0));
  if (op.numResults() == 5) {  // the running statistics as they were, in tensors of their own
    for (unsigned result : {3, 4})
      results.push_back(mapSame(build, {result == 3 ? mean : variance}, op.resultType(result),
                                [&](ArrayRef<Scalar> in) { return in[0].to(op.element(result)); }));
  }
  return results;
}

// The gradients of a batch norm, per channel, of count elements each: with g the output's gradient and c = x - mean,
//   bias: sum(g),  weight: sum(g c) rstd,
//   input: weight rstd (g - sum(g) / count - c rstd^2 sum(g c) / count), or weight rstd g where the statistics were
//   given.
// (Ioffe and Szegedy, Batch Normalization, 2015, section 3.)
Values emitBatchNormBackward(Op& op) {
  TensorBuilder& build = op.build;
  Value grad = op.tensor("grad_out"), input = op.tensor("input"), weight = op.optionalTensor("weight");
  bool training = op.boolean("train");
  int64_t rank = rankOf(input);
  SmallVector<int64_t> dims = {0};
  dims.append(llvm::to_vector(llvm::seq<int64_t>(2, rank)));
  Type compute = fx::computeType(elementOf(input));
  AffineMap channel = AffineMap::get(rank, 0, build.dim(1));
  Value mean = build.convert(op.tensor(training ? "save_mean" : "running_mean"), compute), rstd;
  double eps = op.real("eps");
  if (training)
    rstd = build.convert(op.tensor("save_invstd"), compute);
  else
    rstd = mapSame(build, {op.tensor("running_var")}, typeOf(mean),
                   [&](ArrayRef<Scalar> in) { return 1.0 / sqrt(in[0].to(compute) + eps); });
  Value g = build.convert(grad, compute);
  Value products = mapSame(build, {g, input, Operand(mean, channel)}, typeOf(g),
                           [&](ArrayRef<Scalar> in) { return in[0] * (in[1].to(compute) - in[2]); });
  Value sum = build.reduce(g, dims, ReductionKind::add), product_sum = build.reduce(products, dims, ReductionKind::add);
  AffineExpr count = countOf(build, input, dims);
  SmallVector<Operand> operands = {g, Operand(rstd, channel)};
  if (training)
    operands.append({input, Operand(mean, channel), Operand(sum, channel), Operand(product_sum, channel)});
  if (weight)
    operands.emplace_back(weight, channel);
  Value grad_input;
  if (op.used(0)) {
    Type element = op.element();
    grad_input = build.loop(operands, op.resultType(), [&](Body& body, ArrayRef<Scalar> in) {
      Scalar value = in[0];
      if (training) {
        Scalar n = body.size(count).to(compute), center = in[2].to(compute) - in[3];
        value = value - in[4] / n - center * (in[5] / n * in[1] * in[1]);
      }
      value = value * in[1];
      return (weight ? value * in.back().to(compute) : value).to(element);
    });
  }
  auto result = [&](Value value, unsigned at) {
    return op.used(at) ? build.convert(value, op.element(at)) : Value();  // without a mask bit there is no type either
  };
  Value scaled = mapSame(build, {product_sum, rstd}, typeOf(sum), [](ArrayRef<Scalar> in) { return in[0] * in[1]; });
  return {grad_input, result(scaled, 1), result(sum, 2)};
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
  for (StringRef target : {"native_batch_norm", "_native_batch_norm_legit_functional"})
    table.add(("aten." + target + ".default").str(), [](Op& op) { return emitBatchNorm(op, "training"); });
  table.add("aten.native_batch_norm_backward.default", emitBatchNormBackward);
  table.add("aten._native_batch_norm_legit.no_stats", emitBatchNormTraining);
}

}  // namespace zefuse
