// Convolutions and their derivatives: one zefuse.convolution each. The derivative by the input is a convolution of the
// other kind (forward, transposed) with the same weight.
#include <utility>

#include "compiler/import/op_table.h"
#include "compiler/import/reductions.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {
namespace {

struct Geometry {
  SmallVector<int64_t> stride, padding, dilation;
  int64_t groups;
  bool transposed;
};

// `padded`: the input is padded before.
Geometry geometryOf(Op& op, int64_t spatial, bool transposed, bool padded = false) {
  auto perDimension = [&](StringRef name) {
    SmallVector<int64_t> list = padded && name == "padding" ? SmallVector<int64_t>{0} : op.integers(name);
    if (list.size() == 1)
      list.resize(spatial, list[0]);
    if (static_cast<int64_t>(list.size()) != spatial)
      op.refuse("argument '" + name + "' has " + Twine(list.size()) + " numbers for " + Twine(spatial) + " dimensions");
    return list;
  };
  Geometry geometry{perDimension("stride"), perDimension("padding"), perDimension("dilation"), op.integer("groups"),
                    transposed};
  for (int64_t padding : geometry.padding)
    if (padding < 0)
      op.refuse("convolution with negative padding is not lowered");
  return geometry;
}

// oneDNN takes f32 and bf16 on every CPU that we support, a GPU's kernels f16 besides; the CPU's own take what oneDNN
// does not.
void checkOperands(Op& op, ArrayRef<Value> tensors) {
  int64_t rank = rankOf(tensors[0]);
  if (rank < 3 || rank > 5)
    op.refuse("convolution of rank " + Twine(rank) + " is not lowered");
  Type element = elementOf(tensors[0]);
  for (Value tensor : tensors) {
    const std::string refusal = "convolution of " + fx::dtypeName(elementOf(tensor)) + " is not lowered";
    const Type type = elementOf(tensor);
    auto integer = dyn_cast<IntegerType>(type);
    if (type.isF64() || type.isF16() || (integer && integer.getWidth() >= 8))
      op.elseFallback(refusal);
    else if (!type.isF32() && !type.isBF16())
      op.refuse(refusal);
    if (elementOf(tensor) != element)
      op.refuse("convolution of operands of different dtypes is not lowered");
    for (AffineExpr size : shapeOf(typeOf(tensor)))
      if (isConstant(size, 0))
        op.refuse("convolution of empty operands is not lowered");
  }
}

Value convolve(Op& op, StringRef kind, Value input, Value weight, Value bias, const Geometry& geometry,
               RankedTensorType result) {
  auto& b = op.build.b;
  return ConvolutionOp::create(b, result, input, weight, bias, ValueRange{}, b.getStringAttr(kind),
                               b.getDenseI64ArrayAttr(geometry.stride), b.getDenseI64ArrayAttr(geometry.padding),
                               b.getDenseI64ArrayAttr(geometry.dilation), b.getI64IntegerAttr(geometry.groups),
                               b.getI64IntegerAttr(1), b.getStrArrayAttr({}), AffineMapAttr{});
}

bool hasSymbolicPadding(Op& op) {
  return llvm::any_of(op.sizes("padding"), [](AffineExpr size) { return !isa<AffineConstantExpr>(size); });
}

// By a padding that is known when the kernel runs, which a convolution does not take.
Value inputPadded(Op& op, Value input) {
  const Exprs padding = op.sizes("padding");
  for (int64_t dim = 2; dim < rankOf(input); ++dim) {
    const AffineExpr by = padding.size() == 1 ? padding[0] : padding[dim - 2];
    if (!isConstant(by, 0))
      input = op.build.padBy(input, dim, by, shapeOf(typeOf(input))[dim] + by * 2, 0);
  }
  return input;
}

Values emitConvolution(Op& op) {
  Value input = op.tensor("input"), weight = op.tensor("weight"), bias = op.optionalTensor("bias");
  SmallVector<Value> operands = {input, weight};
  if (bias)
    operands.push_back(bias);
  checkOperands(op, operands);
  const bool transposed = op.boolean("transposed"), padded = !transposed && hasSymbolicPadding(op);
  Geometry geometry = geometryOf(op, rankOf(input) - 2, transposed, padded);
  if (padded)
    input = inputPadded(op, input);
  return {convolve(op, geometry.transposed ? "transposed" : "forward", input, weight, bias, geometry, op.resultType())};
}

Values emitConvolutionBackward(Op& op) {
  Value gradient = op.tensor("grad_output"), input = op.tensor("input"), weight = op.tensor("weight");
  checkOperands(op, {input, weight, gradient});
  int64_t rank = rankOf(input);
  Geometry geometry = geometryOf(op, rank - 2, op.boolean("transposed"));
  const auto& mask = op.argument("output_mask").items;
  auto wanted = [&](unsigned index) { return index < mask.size() && mask[index].integer != 0 && op.used(index); };
  Values results(3);
  if (wanted(0))
    results[0] = convolve(op, geometry.transposed ? "forward" : "transposed", gradient, weight, Value(), geometry,
                          op.resultType(0));
  if (wanted(1))  // a transposed convolution's output plays the part of a forward one's input
    results[1] = convolve(op, "weights", geometry.transposed ? gradient : input, geometry.transposed ? input : gradient,
                          Value(), geometry, op.resultType(1));
  if (wanted(2)) {
    SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(2, rank));
    dims.insert(dims.begin(), 0);
    Value wide = op.build.convert(gradient, fx::computeType(elementOf(gradient)));
    results[2] = op.build.convert(op.build.reduce(wide, dims, ReductionKind::add), op.element(2));
  }
  return results;
}

// [channels] as [1, channels, 1...].
Value perChannel(TensorBuilder& build, Value vector, int64_t rank) {
  Exprs sizes(rank, build.constant(1));
  sizes[1] = shapeOf(typeOf(vector))[0];
  return build.reshape(vector, sizes);
}

// A convolution of codes (python/zefuse/quantized_convolutions.py): exact sums, to which the call's post-ops give their
// scales, bias, residual and activation, and which it rounds to codes where the result has them. The input's zero point
// z takes z times the sum of a channel's weights from each sum; around the image there is z.
Value convolveCodes(Op& op, Value input, Value weight, Value residual, Geometry geometry, RankedTensorType result) {
  TensorBuilder& build = op.build;
  Value zeros = op.optionalTensor("zeros"), bias = op.optionalTensor("bias");
  const int64_t rank = rankOf(input), zero = op.integer("input_zero"), result_zero = op.integer("zero");
  for (Value tensor : {input, weight})
    for (AffineExpr size : shapeOf(typeOf(tensor)))
      if (isConstant(size, 0))
        op.refuse("a product of empty operands of codes is not lowered");
  const Type f32 = build.b.getF32Type(), i32 = build.b.getI32Type();
  const double scale = op.real("input_scale"), inverse = op.real("inverse");
  const RankedTensorType channels = build.type({shapeOf(typeOf(weight))[0]}, f32);

  SmallVector<Operand> of_channel{op.tensor("scales")};
  if (zeros)
    of_channel.emplace_back(zeros);
  Value factor = build.loop(of_channel, channels, [&](Body& body, ArrayRef<Scalar> in) {
    Scalar value = in[0].to(f32) * scale * inverse;
    if (!zeros)
      return value;
    Value checked =
        body.checkedIndex(in[1], build.constant(1), false, "value_error",
                          "zero points of a quantized layer's weights were 0 when it was compiled, and are no longer");
    Value number = arith::IndexCastOp::create(body.b, body.b.getI64Type(), checked);
    return value + Scalar(body.b, number).to(f32);
  });
  Value shift;
  if (bias)
    shift = build.loop({bias}, channels, [&](Body&, ArrayRef<Scalar> in) { return in[0].to(f32) * inverse; });
  if (zero != 0) {
    SmallVector<int64_t> others = llvm::to_vector(llvm::seq<int64_t>(1, rank));
    Value sums = build.reduce(build.convert(weight, i32), others, ReductionKind::add);
    SmallVector<Operand> operands{sums, factor};
    if (shift)
      operands.emplace_back(shift);
    shift = build.loop(operands, channels, [&](Body&, ArrayRef<Scalar> in) {
      Scalar value = in[0].to(f32) * in[1] * double(-zero);
      return in.size() > 2 ? value + in[2] : value;
    });
    if (llvm::any_of(geometry.padding, [](int64_t padding) { return padding != 0; })) {
      SmallVector<int64_t> low(rank, 0);
      Exprs sizes(shapeOf(typeOf(input)));
      for (int64_t dim = 2; dim < rank; ++dim) {
        low[dim] = std::exchange(geometry.padding[dim - 2], 0);
        sizes[dim] = sizes[dim] + 2 * low[dim];
      }
      input = build.pad(input, low, sizes, double(zero));
    }
  }

  SmallVector<StringRef> post_ops{"mul"};
  SmallVector<Value> operands{perChannel(build, factor, rank)};
  auto append = [&](StringRef name, Value operand) {
    post_ops.push_back(name);
    if (operand)
      operands.push_back(operand);
  };
  if (shift)
    append("add", perChannel(build, shift, rank));
  if (residual)
    append("add", build.loop({residual}, withElement(typeOf(residual), f32),
                             [&](Body&, ArrayRef<Scalar> in) { return in[0].to(f32) * inverse; }));
  // Codes from 0 on have no numbers below 0.
  if (op.boolean("relu") && !(op.element().isUnsignedInteger(8) && result_zero == 0))
    append("relu", {});
  if (result_zero != 0)
    append("add", build.full(build.type(Exprs(rank, build.constant(1)), f32), double(result_zero)));
  auto& b = build.b;
  return ConvolutionOp::create(b, result, input, weight, Value(), operands, b.getStringAttr("forward"),
                               b.getDenseI64ArrayAttr(geometry.stride), b.getDenseI64ArrayAttr(geometry.padding),
                               b.getDenseI64ArrayAttr(geometry.dilation), b.getI64IntegerAttr(geometry.groups),
                               b.getI64IntegerAttr(1), b.getStrArrayAttr(post_ops), AffineMapAttr{});
}

Values emitQuantizedConvolution(Op& op) {
  Value input = op.tensor("input");
  return {convolveCodes(op, input, op.tensor("weight"), op.optionalTensor("residual"),
                        geometryOf(op, rankOf(input) - 2, false), op.resultType())};
}

// A linear layer of codes (python/zefuse/decompositions/quantized_linear.py), [m, k] by [n, k]: a convolution of one
// image whose m pixels are the rows, channels last, as they lie. What a matmul has no place for, exact sums and
// post-ops by channel before codes, is there.
Values emitQuantizedLinear(Op& op) {
  TensorBuilder& build = op.build;
  const AffineExpr one = build.constant(1);
  auto image = [&](Value rows) {
    const Exprs sizes(shapeOf(typeOf(rows)));
    return build.permute(build.reshape(rows, {one, sizes[0], sizes[1]}), {0, 2, 1});
  };
  Value input = op.tensor("input"), weight = op.tensor("weight"), residual = op.optionalTensor("residual");
  const Exprs of_weight(shapeOf(typeOf(weight)));
  const AffineExpr rows = shapeOf(typeOf(input))[0];
  Value made = convolveCodes(op, image(input), build.reshape(weight, {of_weight[0], of_weight[1], one}),
                             residual ? image(residual) : Value(), Geometry{{1}, {0}, {1}, 1, false},
                             build.type({one, of_weight[0], rows}, op.resultType().getElementType()));
  return {build.reshape(build.permute(made, {0, 2, 1}), {rows, of_weight[0]})};
}

}  // namespace

void registerConvolution(OpTable& table) {
  table.add("aten.convolution.default", emitConvolution);
  table.add("aten.convolution_backward.default", emitConvolutionBackward);
  table.add("zefuse.quantized_convolution.default", emitQuantizedConvolution);
  table.add("zefuse.quantized_linear.default", emitQuantizedLinear);
}

}  // namespace zefuse
