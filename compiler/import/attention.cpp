// Scaled dot product attention, in two forms: one call or kernel that keeps no scores, for a target that has it, and
// two products with a masked softmax between them, which fusion makes one kernel. Its derivative likewise.
#include <cmath>
#include <optional>

#include "compiler/import/matmul.h"
#include "compiler/import/normalization.h"
#include "compiler/import/op_table.h"
#include "compiler/import/random.h"
#include "compiler/import/reductions.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

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

// The other way round: the gradients of the heads that share one are summed.
Value sumOfSharers(Op& op, Value gradient, AffineExpr shared) {
  TensorBuilder& build = op.build;
  Exprs sizes(shapeOf(typeOf(gradient)));
  int64_t head = rankOf(gradient) - 3;
  if (sizes[head] == shared)
    return gradient;
  AffineExpr repeats = sizes[head].floorDiv(shared);
  sizes[head] = shared;
  sizes.insert(sizes.begin() + head + 1, repeats);
  Type element = elementOf(gradient);
  Value wide = build.convert(build.reshape(gradient, sizes), fx::computeType(element));
  return build.convert(build.reduce(wide, {head + 1}, ReductionKind::add), element);
}

// What forward and backward share. Operands are [..., H, S, D], keys and values with as many heads as queries.
struct Attention {
  Value query, key, value;
  Value mask;  // bool (true: take part) or added to the scores; may be null
  bool causal;
  double factor;     // of the scores
  AffineExpr depth;  // when set: they are still to be divided by its square root
  Value seed;        // of the weights that are dropped; null: none is
  double keep = 1;   // the share of the others

  int64_t rank() const { return rankOf(query); }
  std::optional<double> scale() const { return depth ? std::nullopt : std::optional(factor); }
  // Eager keeps the scores in f32: rounded to bf16, their exponentials would be off by percents.
  Type compute() const { return fx::computeType(elementOf(query)); }
};

// `drops`: the operator has a seed.
Attention attentionOf(Op& op, bool drops) {
  Attention attention{op.tensor("query"),
                      op.tensor("key"),
                      op.tensor("value"),
                      op.optionalTensor("attn_mask"),
                      op.boolean("is_causal"),
                      1,
                      {}};
  int64_t rank = attention.rank();
  if (rank < 3 || rankOf(attention.key) != rank || rankOf(attention.value) != rank)
    op.refuse("operands of different ranks are not lowered");
  if (op.real("dropout_p") != 0) {
    if (!drops)
      op.refuse("argument dropout_p other than 0 is not lowered");
    attention.seed = op.tensor("seed");
    attention.keep = 1 - op.real("dropout_p");
  }
  if (!op.isNone("scale")) {
    attention.factor = op.real("scale");
  } else {
    AffineExpr depth = shapeOf(typeOf(attention.query)).back();
    if (auto constant = dyn_cast<AffineConstantExpr>(depth))
      attention.factor = 1.0 / std::sqrt(static_cast<double>(constant.getValue()));
    else
      attention.depth = depth;
  }
  return attention;
}

Value transposed(TensorBuilder& build, Value matrix) {
  int64_t rank = rankOf(matrix);
  SmallVector<int64_t> swapped = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  std::swap(swapped[rank - 1], swapped[rank - 2]);
  return build.permute(matrix, swapped);
}

// The product that the scores come from; null where it is a sum of nothing.
MatmulOp productOf(Value scores) {
  if (auto mask = scores.getDefiningOp<linalg::GenericOp>(); mask && mask.getNumDpsInputs() > 0)
    scores = mask.getDpsInputOperand(0)->get();
  return scores.getDefiningOp<MatmulOp>();
}

// [..., H, S, S]: what softmax is taken of.
Value scoresOf(Op& op, const Attention& attention) {
  TensorBuilder& build = op.build;
  int64_t rank = attention.rank();
  Type compute = attention.compute();
  wantLibraryType(op, elementOf(attention.query));
  Value scores = emitMatmul(op, attention.query, transposed(build, attention.key), {}, attention.factor, compute);
  if (!attention.mask && !attention.causal && !attention.depth)
    return scores;
  SmallVector<Operand> operands = {scores};
  if (attention.mask)
    operands.emplace_back(attention.mask);
  return build.loop(operands, typeOf(scores), [&](Body& body, ArrayRef<Scalar> in) {
    Scalar score = attention.depth ? in[0] / sqrt(body.size(attention.depth).to(compute)) : in[0];
    Scalar nothing = score.constant(-HUGE_VAL);
    if (attention.mask)
      score = in[1].isBool() ? select(in[1], score, nothing) : score + in[1].to(compute);
    if (attention.causal)
      score = select(body.position(rank - 1) <= body.position(rank - 2), score, nothing);
    return score;
  });
}

// What of weights, or of their gradient, dropout leaves.
Scalar dropped(Body& body, const Attention& attention, RankedTensorType scores, Scalar weight, Scalar seed) {
  Scalar kept = uniformAt(body, scores, seed) < attention.keep;
  return select(kept, attention.keep == 0 ? weight : weight * (1 / attention.keep), weight.constant(0));
}

Value dropped(TensorBuilder& build, const Attention& attention, Value weights) {
  if (!attention.seed)
    return weights;
  return build.loop({weights, attention.seed}, typeOf(weights), [&](Body& body, ArrayRef<Scalar> in) {
    return dropped(body, attention, typeOf(weights), in[0], in[1]);
  });
}

// The type of the rows' log-sum-exps; null where nobody asks for them.
RankedTensorType logSumsOf(Op& op) { return op.numResults() > 1 && op.used(1) ? op.resultType(1) : RankedTensorType(); }

// What explain says at the product if a target that has the other form refuses it: stage 2 adds the reason.
void noteRefusal(TensorBuilder& build, Value scores, StringRef what) {
  if (MatmulOp product = productOf(scores))
    product->setAttr("zefuse.note_of_refusal", build.b.getStringAttr(what));
}

Values emitWhole(Op& op, const Attention& attention) {
  Values results(op.build.attention(attention.query, attention.key, attention.value, attention.mask, attention.scale(),
                                    attention.causal, op.resultType(0), logSumsOf(op)));
  results.resize(op.numResults());  // null: nobody asks for it
  return results;
}

Values emitByProducts(Op& op, Attention attention) {
  TensorBuilder& build = op.build;
  const int64_t rank = attention.rank();
  AffineExpr heads = shapeOf(typeOf(attention.query))[rank - 3];
  attention.key = repeatHeads(op, attention.key, heads);
  attention.value = repeatHeads(op, attention.value, heads);
  Value scores = scoresOf(op, attention);
  noteRefusal(build, scores, "attention without a kernel of its own");
  // Eager gives zeros where all scores of a query are -inf, by a mask or as a product.
  Value weights = softmaxOver(build, scores, rank - 1, Softmax::safe, normalExp);
  weights = dropped(build, attention, weights);
  Value out = emitMatmul(op, build.convert(weights, elementOf(attention.value)), attention.value, {}, 1.0);
  if (op.numResults() == 1)
    return {out};
  return {out, build.convert(logSumExpOver(build, scores, rank - 1, normalExp), op.element(1))};
}

// The output, and the log-sum-exp of each row of scores where the backward pass needs it.
Values emitAttention(Op& op, bool drops) {
  const Attention attention = attentionOf(op, drops);
  if (attention.seed)  // no kernel of its own drops weights
    return emitByProducts(op, attention);
  return op.alternatives({[&] { return emitWhole(op, attention); }, [&] { return emitByProducts(op, attention); }});
}

// What the forms of the derivative share: the output's gradient, the rows' log-sum-exps and the sums over each row of
// the gradient times the output.
struct Gradient {
  Value output, log_sum, row_sum;
};

Values emitWholeGradient(Op& op, const Attention& attention, const Gradient& gradient) {
  Value operands[] = {attention.query,
                      attention.key,
                      attention.value,
                      gradient.output,
                      op.build.convert(gradient.log_sum, attention.compute()),
                      gradient.row_sum};
  auto derivative = [&](ArrayRef<RankedTensorType> types) {
    return op.build.attentionGradient(operands, attention.mask, attention.scale(), attention.causal, types);
  };
  if (op.used(0) && op.used(1) && op.used(2))
    return Values(derivative({op.resultType(0), op.resultType(1), op.resultType(2)}));
  Values results(3);
  if (op.used(0))
    results[0] = derivative({op.resultType(0)})[0];
  if (op.used(1) || op.used(2)) {
    ResultRange both = derivative({op.resultType(1), op.resultType(2)});
    results[1] = both[0];
    results[2] = both[1];
  }
  return results;
}

// With P the softmax, S the scores before scaling and masking, and D = sum(dO * O) over each row:
//   dV = P^T dO,  dP = dO V^T,  dS = P * (dP - D),  dQ = scale * dS K,  dK = scale * dS^T Q.
// (Dao et al., FlashAttention, 2022, appendix B.) P comes from the scores again: the forward pass keeps rows' sums
// only.
Values emitGradientByProducts(Op& op, Attention attention, const Gradient& gradient) {
  TensorBuilder& build = op.build;
  const int64_t rank = attention.rank();
  const Type compute = attention.compute(), element = elementOf(attention.query);
  AffineExpr heads = shapeOf(typeOf(attention.query))[rank - 3], shared = shapeOf(typeOf(attention.key))[rank - 3];
  attention.key = repeatHeads(op, attention.key, heads);
  attention.value = repeatHeads(op, attention.value, heads);
  AffineMap row = build.unreduced(rank, {rank - 1});
  Value scores = scoresOf(op, attention);
  noteRefusal(build, scores, "attention's derivative without kernels of its own");
  Value weights = build.loop({scores, Operand(gradient.log_sum, row)}, typeOf(scores), [&](Body&, ArrayRef<Scalar> in) {
    Scalar sum = in[1].to(compute);
    return select(sum == -HUGE_VAL, sum.constant(0), normalExp(in[0] - sum));
  });
  Value taken = build.convert(dropped(build, attention, weights), element);
  Value grad_value = emitMatmul(op, transposed(build, taken), gradient.output, {}, 1.0);
  Value grad_weights = emitMatmul(op, gradient.output, transposed(build, attention.value), {}, 1.0, compute);
  grad_weights = dropped(build, attention, grad_weights);
  Value grad_scores =
      build.loop({weights, grad_weights, Operand(gradient.row_sum, row)}, withElement(typeOf(scores), element),
                 [&](Body& body, ArrayRef<Scalar> in) {
                   Scalar value = in[0] * (in[1] - in[2]);
                   return (attention.depth ? value / sqrt(body.size(attention.depth).to(compute)) : value).to(element);
                 });
  Value grad_key = emitMatmul(op, transposed(build, grad_scores), attention.query, {}, attention.factor);
  return {emitMatmul(op, grad_scores, attention.key, {}, attention.factor), sumOfSharers(op, grad_key, shared),
          sumOfSharers(op, grad_value, shared)};
}

Values emitAttentionBackward(Op& op, bool drops) {
  TensorBuilder& build = op.build;
  const Attention attention = attentionOf(op, drops);
  Gradient gradient{op.tensor("grad_out"), op.tensor("logsumexp"), {}};
  Value out = op.tensor("out");
  const Type compute = attention.compute();
  Value products = mapSame(build, {gradient.output, out}, withElement(typeOf(gradient.output), compute),
                           [&](ArrayRef<Scalar> in) { return in[0].to(compute) * in[1].to(compute); });
  gradient.row_sum = build.reduce(products, {attention.rank() - 1}, ReductionKind::add);
  if (attention.seed)
    return emitGradientByProducts(op, attention, gradient);
  return op.alternatives({[&] { return emitWholeGradient(op, attention, gradient); },
                          [&] { return emitGradientByProducts(op, attention, gradient); }});
}

}  // namespace

void registerAttention(OpTable& table) {
  auto add = [&](const char* name, auto emitter, bool drops) {
    table.add(name, [=](Op& op) { return emitter(op, drops); });
  };
  add("aten.scaled_dot_product_attention.default", emitAttention, false);
  add("aten._scaled_dot_product_flash_attention_for_cpu.default", emitAttention, false);
  add("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", emitAttentionBackward, false);
  add("zefuse_random.attention.default", emitAttention, true);
  add("zefuse_random.attention_backward.default", emitAttentionBackward, true);
}

}  // namespace zefuse
