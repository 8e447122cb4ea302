// Convolutions and their derivatives: one zefuse.convolution each. The derivative by the input is a convolution of the
// other kind (forward, transposed) with the same weight.
#include "compiler/import/op_table.h"
#include "compiler/import/reductions.h"
#include "compiler/import/slices.h"
#include "lowering/analysis/index_space.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/lower.h"

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

// What oneDNN computes on every CPU we support, or kernels do.
void checkOperands(Op& op, ArrayRef<Value> tensors) {
  int64_t rank = rankOf(tensors[0]);
  if (rank < 3 || rank > 5)
    op.refuse("convolution of rank " + Twine(rank) + " is not lowered");
  Type element = elementOf(tensors[0]);
  for (Value tensor : tensors) {
    if (!elementOf(tensor).isF32() && !elementOf(tensor).isBF16() &&
        !(elementOf(tensor).isF16() && op.build.target.supports.products))
      op.refuse("convolution of " + fx::dtypeName(elementOf(tensor)) + " is not lowered");
    if (elementOf(tensor) != element)
      op.refuse("convolution of operands of different dtypes is not lowered");
    for (AffineExpr size : shapeOf(typeOf(tensor)))
      if (isConstant(size, 0))
        op.refuse("convolution of empty operands is not lowered");
  }
}

// As a kernel: into how many slices what a result sums is cut, as a matrix product's k (gpu_convolution.cpp has the
// product).
int64_t slicesOf(Op& op, StringRef kind, Value input, Value weight, int64_t groups, RankedTensorType result) {
  const bool of_weights = kind == "weights";
  auto product = [&](ArrayRef<AffineExpr> sizes) {
    AffineExpr total = op.build.constant(1);
    for (AffineExpr size : sizes)
      total = total * size;
    return total;
  };
  // The tensor whose pixels are walked, and the one whose spatial sizes are the kernel's.
  SmallVector<AffineExpr> outer = shapeOf(of_weights ? typeOf(weight) : result),
                          taps = shapeOf(of_weights ? result : typeOf(weight));
  AffineExpr pixels = outer[0] * product(ArrayRef(outer).drop_front(2));
  AffineExpr patches = shapeOf(typeOf(input))[1].floorDiv(groups) * product(ArrayRef(taps).drop_front(2));
  auto depth = constantOf(of_weights ? pixels : patches);
  if (!op.build.target.supports.products || !depth)
    return 1;
  const bool engine = matrixOperation(elementOf(input), elementOf(weight), op.build.target) != nullptr;
  return chooseSplits(constantOf(outer[1].floorDiv(groups)), constantOf(of_weights ? patches : pixels), groups, *depth,
                      4, op.build.target, engine);
}

Value convolve(Op& op, StringRef kind, Value input, Value weight, Value bias, const Geometry& geometry,
               RankedTensorType result) {
  auto& b = op.build.b;
  const int64_t slices = slicesOf(op, kind, input, weight, geometry.groups, result);
  auto call = [&](RankedTensorType type, Value bias) -> Value {
    return ConvolutionOp::create(b, type, input, weight, bias, ValueRange{}, b.getStringAttr(kind),
                                 b.getDenseI64ArrayAttr(geometry.stride), b.getDenseI64ArrayAttr(geometry.padding),
                                 b.getDenseI64ArrayAttr(geometry.dilation), b.getI64IntegerAttr(geometry.groups),
                                 b.getI64IntegerAttr(slices), b.getStrArrayAttr({}), AffineMapAttr{});
  };
  if (slices == 1)
    return call(result, bias);
  Exprs sizes(shapeOf(result)), parts(sizes);
  parts.insert(parts.begin(), op.build.constant(slices));
  Value partial = call(op.build.type(parts, fx::computeType(elementOf(input))), {});
  if (bias) {  // per channel
    for (size_t dim = 2; dim < sizes.size(); ++dim)
      bias = op.build.unsqueeze(bias, {int64_t(dim) - 1});
    bias = op.build.expand(bias, sizes);
  }
  return sumOfSlices(op.build, partial, bias, result.getElementType());
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
    results[2] = op.build.convert(op.build.reduce(wide, dims, Combiner::add), op.element(2));
  }
  return results;
}

}  // namespace

void registerConvolution(OpTable& table) {
  table.add("aten.convolution.default", emitConvolution);
  table.add("aten.convolution_backward.default", emitConvolutionBackward);
}

}  // namespace zefuse
