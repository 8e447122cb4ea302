// Scaled dot product attention: two library products with a masked softmax between them, which fusion makes one kernel.
#include <cmath>

#include "compiler/import/matmul.h"
#include "compiler/import/normalization.h"
#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {

// [B, Hk, S, D] seen as [B, H, S, D]: head h reads head h / (H / Hk).
Value repeatHeads(Op& op, Value tensor, AffineExpr heads) {
  auto sizes = shapeOf(typeOf(tensor));
  int64_t rank = rankOf(tensor), head = rank - 3;
  if (sizes[head] == heads)
    return tensor;
  AffineExpr repeats = heads.floorDiv(sizes[head]);
  SmallVector<AffineExpr> indices;
  for (int64_t position = 0; position < rank; ++position)
    indices.push_back(position == head ? op.build.dim(position).floorDiv(repeats) : op.build.dim(position));
  sizes[head] = heads;
  return op.build.view(tensor, indices, sizes);
}

struct Masking {
  Value mask;  // bool (true: take part) or added to the scores; may be null
  bool causal = false;
  AffineExpr depth;  // when set: the scores are still to be divided by its square root
};

Value attention(Op& op, Value query, Value key, Value value, Masking masking, double scale) {
  TensorBuilder& build = op.build;
  int64_t rank = rankOf(query);
  SmallVector<int64_t> swapped = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  std::swap(swapped[rank - 1], swapped[rank - 2]);
  // Eager keeps the scores in f32: rounded to bf16, their exponentials would be off by percents.
  Type compute = fx::computeType(elementOf(query));
  Value masked = emitMatmul(op, query, build.permute(key, swapped), {}, scale, compute);
  if (masking.mask || masking.causal || masking.depth) {
    SmallVector<Operand> operands = {masked};
    if (masking.mask)
      operands.emplace_back(masking.mask);
    masked = build.loop(operands, typeOf(masked), [&](Body& body, ArrayRef<Scalar> in) {
      Scalar score = masking.depth ? in[0] / sqrt(body.size(masking.depth).to(compute)) : in[0];
      Scalar nothing = score.constant(-HUGE_VAL);
      if (masking.mask)
        score = in[1].isBool() ? select(in[1], score, nothing) : score + in[1].to(compute);
      if (masking.causal)
        score = select(body.position(rank - 1) <= body.position(rank - 2), score, nothing);
      return score;
    });
  }
  // Eager gives zeros for a query that may attend to nothing; without a mask there is none.
  bool may_be_empty = static_cast<bool>(masking.mask);
  Value weights = softmaxOver(build, masked, rank - 1, may_be_empty ? Softmax::safe : Softmax::plain);
  return emitMatmul(op, build.convert(weights, elementOf(value)), value, {}, 1.0);
}

Values emitAttention(Op& op, StringRef mask_name) {
  Value query = op.tensor("query"), key = op.tensor("key"), value = op.tensor("value");
  int64_t rank = rankOf(query);
  if (rank < 3 || rankOf(key) != rank || rankOf(value) != rank)
    op.refuse("operands of different ranks are not lowered");
  if (op.real("dropout_p") != 0)
    op.refuse("argument dropout_p other than 0 is not lowered");
  Masking masking{op.optionalTensor(mask_name), op.boolean("is_causal"), {}};
  double scale = 1;
  if (!op.isNone("scale")) {
    scale = op.real("scale");
  } else {
    AffineExpr depth = shapeOf(typeOf(query)).back();
    if (auto constant = dyn_cast<AffineConstantExpr>(depth))
      scale = 1.0 / std::sqrt(static_cast<double>(constant.getValue()));
    else
      masking.depth = depth;
  }
  AffineExpr heads = shapeOf(typeOf(query))[rank - 3];
  key = repeatHeads(op, key, heads);
  value = repeatHeads(op, value, heads);
  return {attention(op, query, key, value, masking, scale), Value()};
}

}  // namespace

void registerAttention(OpTable& table) {
  table.add("aten.scaled_dot_product_attention.default", [](Op& op) { return emitAttention(op, "attn_mask"); });
  // Its second result, the log-sum-exp of each row, is only for the backward pass: ATen runs it when that is used.
  table.add("aten._scaled_dot_product_flash_attention_for_cpu.default",
            [](Op& op) { return emitAttention(op, "attn_mask"); });
}

}  // namespace zefuse
