// Convolutions and their derivatives: one zefuse.convolution each. The derivative by the input is a convolution of the
// other kind (forward, transposed) with the same weight.
#include "compiler/import/op_table.h"
#include "compiler/import/reductions.h"
#include "lowering/dialect/Zefuse.h"

using namespace mlir;

namespace zefuse {
namespace {

struct Geometry {
  SmallVector<int64_t> stride, padding, dilation;
  int64_t groups;
  bool transposed;
};

Geometry geometryOf(Op& op, int64_t spatial) {
  auto perDimension = [&](StringRef name) {
    SmallVector<int64_t> list = op.integers(name);
    if (list.size() == 1)
      list.resize(spatial, list[0]);
    if (static_cast<int64_t>(list.size()) != spatial)
      op.refuse("argument '" + name + "' has " + Twine(list.size()) + " numbers for " + Twine(spatial) + " dimensions");
    return list;
  };
  Geometry geometry{perDimension("stride"), perDimension("padding"), perDimension("dilation"), op.integer("groups"),
                    op.boolean("transposed")};
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

Values emitConvolution(Op& op) {
  Value input = op.tensor("input"), weight = op.tensor("weight"), bias = op.optionalTensor("bias");
  SmallVector<Value> operands = {input, weight};
  if (bias)
    operands.push_back(bias);
  checkOperands(op, operands);
  Geometry geometry = geometryOf(op, rankOf(input) - 2);
  return {convolve(op, geometry.transposed ? "transposed" : "forward", input, weight, bias, geometry, op.resultType())};
}

Values emitConvolutionBackward(Op& op) {
  Value gradient = op.tensor("grad_output"), input = op.tensor("input"), weight = op.tensor("weight");
  checkOperands(op, {input, weight, gradient});
  int64_t rank = rankOf(input);
  Geometry geometry = geometryOf(op, rank - 2);
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

}  // namespace

void registerConvolution(OpTable& table) {
  table.add("aten.convolution.default", emitConvolution);
  table.add("aten.convolution_backward.default", emitConvolutionBackward);
}

}  // namespace zefuse
