// Products of groups of rows with a matrix each, whose sizes depend on data (mixtures of experts):
// zefuse.grouped_matmul.
#include "compiler/import/op_table.h"
#include "lowering/dialect/Zefuse.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr StringLiteral no_gpu = "no kernel for a GPU multiplies groups of rows";

// a [S, K] by b [G, K, N], or [K, N] of the group that `index` says.
Value emitGroups(Op& op, Value a, Value b, Value offsets, Value index, bool bf16_math) {
  Type element = elementOf(a);
  if (!element.isF32() && !element.isBF16())
    op.refuse("groups of rows of f32 and bf16 are lowered alone");
  if (elementOf(b) != element)
    op.refuse("matrix product of operands of different dtypes is not lowered");
  if (rankOf(a) != 2 || rankOf(b) != (index ? 2 : 3) || rankOf(offsets) != 1)
    op.refuse("groups of rows of one matrix, each with a matrix of its own, are lowered alone");
  op.elseFallback(no_gpu);
  offsets = op.build.convert(offsets, op.build.b.getI32Type());
  auto left = shapeOf(typeOf(a)), right = shapeOf(typeOf(b));
  return op.build.groupedMatmul(a, b, offsets, index, op.build.type({left[0], right.back()}, element), bf16_math);
}

Values emitGroupedMm(Op& op) {
  if (op.isNone("offs"))
    op.refuse("without offsets it is not lowered");
  if (!op.isNone("bias"))
    op.refuse("a bias is not lowered");
  if (!op.isNone("out_dtype") && op.element() != elementOf(op.tensor("self")))
    op.refuse("a result of another dtype is not lowered");
  return {emitGroups(op, op.tensor("self"), op.tensor("mat2"), op.tensor("offs"), {}, false)};
}

Values emitFallbackOfTransformers(Op& op) {
  return {emitGroups(op, op.tensor("input"), op.tensor("weight"), op.tensor("offs"), {}, false)};
}

// weight [G, N, K], or with an index [N, K].
Values emitGroupedLinear(Op& op) {
  Value weight = op.tensor("weight"), index = op.optionalTensor("index");
  SmallVector<int64_t> order = index ? SmallVector<int64_t>{1, 0} : SmallVector<int64_t>{0, 2, 1};
  return {emitGroups(op, op.tensor("input"), op.build.permute(weight, order), op.tensor("offsets"), index,
                     op.boolean("bf16"))};
}

Values emitGroupIndex(Op& op) { return {op.build.groupIndex()}; }

}  // namespace

void registerGroupedMatmul(OpTable& table) {
  table.add("aten._grouped_mm.default", emitGroupedMm);
  table.add("transformers.grouped_mm_fallback.default", emitFallbackOfTransformers);
  table.add("zefuse_llm.grouped_linear.default", emitGroupedLinear);
  table.add("zefuse_llm.group_index.default", emitGroupIndex);
}

}  // namespace zefuse
