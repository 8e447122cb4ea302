// Matrix products: one zefuse.matmul each, with views around it that later become strides of the library call's
// operands, or of what a kernel loads.
#include "compiler/import/matmul.h"
#include "compiler/import/elementwise.h"
#include "compiler/import/op_table.h"
#include "lowering/dialect/Zefuse.h"

using namespace mlir;

namespace zefuse {

namespace {

// A GPU's kernels take f16 besides; the CPU's own take what oneDNN does not.
bool everyTargetTakes(Type element) { return element.isF32() || element.isBF16(); }

bool someTargetTakes(Type element) {
  auto integer = dyn_cast<IntegerType>(element);
  return everyTargetTakes(element) || element.isF64() || element.isF16() || (integer && integer.getWidth() >= 8);
}

std::string refusalOf(Type element) { return "matrix product of " + fx::dtypeName(element) + " is not lowered"; }

// The bf16 numbers that a tensor of f32, or what it is a view of, was widened from; null for any other.
Value narrowOf(TensorBuilder& build, Value tensor) {
  if (!elementOf(tensor).isF32())
    return {};
  if (auto view = tensor.getDefiningOp<ViewOp>()) {
    Value source = narrowOf(build, view.getSource());
    return source ? ViewOp::create(build.b, withElement(typeOf(tensor), elementOf(source)), source, view.getMapAttr())
                  : Value();
  }
  auto widening = tensor.getDefiningOp<linalg::GenericOp>();
  if (!widening || widening.getNumDpsInputs() != 1 ||
      !llvm::all_of(widening.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return {};
  Value narrow = widening.getDpsInputOperand(0)->get();
  Operation &first = widening.getBody()->front(), *end = widening.getBody()->getTerminator();
  const bool only_widens = isa<arith::ExtFOp>(first) && first.getNextNode() == end &&
                           first.getOperand(0) == widening.getBody()->getArgument(0) &&
                           end->getOperand(0) == first.getResult(0);
  return only_widens && elementOf(narrow).isBF16() ? narrow : Value();
}

// alpha * product + bias as eager's integers: they wrap around.
Value scaled(TensorBuilder& build, Value product, Value bias, double alpha) {
  if (!bias && alpha == 1)
    return product;
  SmallVector<Operand> operands{product};
  if (bias)
    operands.emplace_back(build.expand(bias, shapeOf(typeOf(product))));
  return build.loop(operands, typeOf(product), [&](Body&, ArrayRef<Scalar> in) {
    Type compute = fx::computeType(in[0].type());
    Scalar value = in[0].to(compute) * alpha;
    return (bias ? value + in[1].to(compute) : value).to(in[0].type());
  });
}

}  // namespace

void wantLibraryType(Op& op, Type element) {
  if (!everyTargetTakes(element) && !element.isF16())
    op.refuse(refusalOf(element));
}

Value emitMatmul(Op& op, Value a, Value b, Value bias, double alpha, Type result, bool bf16_math) {
  auto left = shapeOf(typeOf(a)), right = shapeOf(typeOf(b));
  // Products of bf16 are exact in f32, so widened operands are multiplied as they were, and summed in f32 as before.
  if (!result)
    if (Value narrow_a = narrowOf(op.build, a), narrow_b = narrowOf(op.build, b); narrow_a && narrow_b) {
      result = elementOf(a);
      a = narrow_a;
      b = narrow_b;
    }
  Type element = elementOf(a);
  if (!someTargetTakes(element))
    op.refuse(refusalOf(element));
  if (!everyTargetTakes(element))
    op.elseFallback(refusalOf(element));
  if (elementOf(b) != element || (bias && elementOf(bias) != element && elementOf(bias) != result))
    op.refuse("matrix product of operands of different dtypes is not lowered");
  Exprs sizes;
  for (size_t position = 0; position + 2 < left.size(); ++position)
    sizes.push_back(isConstant(left[position], 1) ? right[position] : left[position]);
  sizes.push_back(left[left.size() - 2]);
  sizes.push_back(right.back());
  for (AffineExpr size : llvm::concat<AffineExpr>(left, right))
    if (isConstant(size, 0)) {  // sums of nothing
      RankedTensorType type = op.build.type(sizes, result ? result : element);
      return bias ? op.build.convert(op.build.expand(bias, sizes), type.getElementType()) : op.build.full(type, 0);
    }
  RankedTensorType type = op.build.type(sizes, result ? result : element);
  if (isa<IntegerType>(element))
    return scaled(op.build, op.build.matmul(a, b, {}, 1, type), bias, alpha);
  return op.build.matmul(a, b, bias, alpha, type, bf16_math);
}

namespace {

Value transposeLast(TensorBuilder& build, Value tensor) {
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, rankOf(tensor)));
  std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
  return build.permute(tensor, dims);
}

Values emitProduct(Op& op, StringRef right) { return {emitMatmul(op, op.tensor("self"), op.tensor(right), {}, 1.0)}; }

// beta * self + alpha * a @ b
Values emitWithInput(Op& op, StringRef left, StringRef right) {
  double beta = op.real("beta"), alpha = op.real("alpha");
  Value a = op.tensor(left), b = op.tensor(right);
  Value bias;
  if (beta != 0) {  // beta = 0: self is ignored, even where it is NaN
    bias = op.tensor("self");
    if (beta != 1)
      bias = op.build.loop({bias}, typeOf(bias), [&](Body&, ArrayRef<Scalar> in) {
        return (in[0].to(fx::computeType(in[0].type())) * beta).to(in[0].type());
      });
  }
  return {emitMatmul(op, a, b, bias, alpha)};
}

// input [..., K], weight [N, K]: the leading dimensions become rows.
Values emitLinear(Op& op, bool bf16_math) {
  Value input = op.tensor("input"), weight = op.tensor("weight"), bias = op.optionalTensor("bias");
  auto sizes = shapeOf(typeOf(input));
  if (rankOf(weight) != 2)
    op.refuse("argument 'weight' of rank " + Twine(rankOf(weight)) + " is not lowered");
  AffineExpr rows = op.build.constant(1);
  for (size_t position = 0; position + 1 < sizes.size(); ++position)
    rows = rows * sizes[position];
  Value product = emitMatmul(op, op.build.reshape(input, {rows, sizes.back()}), transposeLast(op.build, weight), bias,
                             1.0, {}, bf16_math);
  return {op.build.reshape(product, shapeOf(op.resultType()))};
}

// torch.matmul's rules: vectors get a dimension, batch dimensions broadcast.
Values emitGeneralMatmul(Op& op) {
  Value a = op.tensor("self"), b = op.tensor("other");
  if (rankOf(a) == 1)
    a = op.build.unsqueeze(a, {0});
  if (rankOf(b) == 1)
    b = op.build.unsqueeze(b, {1});
  auto raise = [&](Value tensor, int64_t rank) {
    SmallVector<int64_t> added = llvm::to_vector(llvm::seq<int64_t>(0, rank - rankOf(tensor)));
    return added.empty() ? tensor : op.build.unsqueeze(tensor, added);
  };
  int64_t rank = std::max(rankOf(a), rankOf(b));
  Value product = emitMatmul(op, raise(a, rank), raise(b, rank), {}, 1.0);
  return {op.build.reshape(product, shapeOf(op.resultType()))};
}

}  // namespace

void registerMatmul(OpTable& table) {
  table.add("aten.mm.default", [](Op& op) { return emitProduct(op, "mat2"); });
  table.add("aten.bmm.default", [](Op& op) { return emitProduct(op, "mat2"); });
  table.add("aten.matmul.default", emitGeneralMatmul);
  table.add("aten.addmm.default", [](Op& op) { return emitWithInput(op, "mat1", "mat2"); });
  table.add("aten.baddbmm.default", [](Op& op) { return emitWithInput(op, "batch1", "batch2"); });
  table.add("aten.linear.default", [](Op& op) { return emitLinear(op, /*bf16_math=*/false); });
  table.add("zefuse_llm.linear_bf16.default", [](Op& op) { return emitLinear(op, /*bf16_math=*/true); });
}

}  // namespace zefuse
