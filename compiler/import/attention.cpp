// Scaled dot product attention: one call or kernel that keeps no scores where the target has it, else two products with
// a masked softmax between them, which fusion makes one kernel.
#include <cmath>

#include "compiler/import/matmul.h"
#include "compiler/import/normalization.h"
#include "compiler/import/op_table.h"
#include "compiler/import/reductions.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/lower.h"
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
  return build.convert(build.reduce(wide, {head + 1}, Combiner::add), element);
}

// What forward and backward share. Operands are [..., H, S, D], keys and values with as many heads as queries.
struct Attention {
  Value query, key, value;
  Value mask;  // bool (true: take part) or added to the scores; may be null
  bool causal;
  double scale;
  AffineExpr depth;  // when set: the scores are still to be divided by its square root

  int64_t rank() const { return rankOf(query); }
  // Eager keeps the scores in f32: rounded to bf16, their exponentials would be off by percents.
  Type compute() const { return fx::computeType(elementOf(query)); }
};

Attention attentionOf(Op& op) {
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
  if (op.real("dropout_p") != 0)
    op.refuse("argument dropout_p other than 0 is not lowered");
  if (!op.isNone("scale")) {
    attention.scale = op.real("scale");
  } else {
    AffineExpr depth = shapeOf(typeOf(attention.query)).back();
    if (auto constant = dyn_cast<AffineConstantExpr>(depth))
      attention.scale = 1.0 / std::sqrt(static_cast<double>(constant.getValue()));
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
  Value scores = emitMatmul(op, attention.query, transposed(build, attention.key), {}, attention.scale, compute);
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

// With fewer scores the three steps cost the same, and batches of tiny products are one call (docs/onednn.md).
constexpr int64_t many_scores = 1 << 16;

// Whether the library's call that keeps no scores can do it. Nobody may ask for the sums of rows, which it does not
// keep either.
bool byBlocks(Op& op, const Attention& attention) {
  if (attention.rank() != 4 || attention.mask || attention.depth || op.used(1) || !elementOf(attention.query).isF32() ||
      !elementOf(attention.key).isF32() || !elementOf(attention.value).isF32())
    return false;
  for (Value operand : {attention.query, attention.key, attention.value})
    if (!typeOf(operand).hasStaticShape() || typeOf(operand).getNumElements() == 0)
      return false;
  ArrayRef<int64_t> query = typeOf(attention.query).getShape(), key = typeOf(attention.key).getShape();
  return query[0] == key[0] && query[1] % key[1] == 0 && query[0] * query[1] * query[2] * key[2] >= many_scores;
}

// The type of the rows' log-sum-exps; null where nobody asks for them.
RankedTensorType logSumsOf(Op& op) { return op.numResults() > 1 && op.used(1) ? op.resultType(1) : RankedTensorType(); }

// Why the target has no kernel for it; empty: it has.
std::string whyNoKernel(Op& op, const Attention& attention) {
  if (attention.depth)
    return "the sizes of a head must be known";
  AttentionCall call{typeOf(attention.query), typeOf(attention.key),
                     typeOf(attention.value), attention.mask ? typeOf(attention.mask) : RankedTensorType(),
                     op.resultType(0),        logSumsOf(op)};
  return whyNoAttentionKernel(call, op.build.target);
}

// The output, and the log-sum-exp of each row of scores where the backward pass needs it.
Values emitAttention(Op& op) {
  TensorBuilder& build = op.build;
  Attention attention = attentionOf(op);
  int64_t rank = attention.rank();
  const bool kernels = build.target.supports.products;
  std::string refusal = kernels ? whyNoKernel(op, attention) : std::string();
  if (kernels ? refusal.empty() : byBlocks(op, attention)) {
    Values results(build.attention(attention.query, attention.key, attention.value, attention.mask, attention.scale,
                                   attention.causal, op.resultType(0), logSumsOf(op)));
    results.resize(op.numResults());  // null: nobody asks for it
    return results;
  }
  AffineExpr heads = shapeOf(typeOf(attention.query))[rank - 3];
  attention.key = repeatHeads(op, attention.key, heads);
  attention.value = repeatHeads(op, attention.value, heads);
  Value scores = scoresOf(op, attention);
  if (MatmulOp product = refusal.empty() ? MatmulOp() : productOf(scores))
    product->setAttr("zefuse.note", build.b.getStringAttr("attention without a kernel of its own: " + refusal));
  // Eager gives zeros for a query that may attend to nothing; without a mask there is none.
  Value weights = softmaxOver(build, scores, rank - 1, attention.mask ? Softmax::safe : Softmax::plain, normalExp);
  Value out = emitMatmul(op, build.convert(weights, elementOf(attention.value)), attention.value, {}, 1.0);
  if (op.numResults() == 1)
    return {out};
  return {out, build.convert(logSumExpOver(build, scores, rank - 1, normalExp), op.element(1))};
}

// Why the target has no kernels for the derivative; empty: it has.
std::string whyNoGradient(const TargetDescription& target, const Attention& attention, ArrayRef<Value> operands,
                          RankedTensorType mask) {
  if (attention.depth)
    return "the sizes of a head must be known";
  AttentionGradientCall call;
  call.q = typeOf(operands[0]);
  call.k = typeOf(operands[1]);
  call.v = typeOf(operands[2]);
  call.grad = typeOf(operands[3]);
  call.log_sums = typeOf(operands[4]);
  call.delta = typeOf(operands[5]);
  call.mask = mask;
  std::string queries = whyNoAttentionGradient(call, target);
  call.of_keys = true;
  return queries.empty() ? whyNoAttentionGradient(call, target) : queries;
}

// With P the softmax, S the scores before scaling and masking, and D = sum(dO * O) over each row:
//   dV = P^T dO,  dP = dO V^T,  dS = P * (dP - D),  dQ = scale * dS K,  dK = scale * dS^T Q.
// (Dao et al., FlashAttention, 2022, appendix B.) P comes from the scores again: the forward pass keeps rows' sums
// only.
Values emitAttentionBackward(Op& op) {
  TensorBuilder& build = op.build;
  Attention attention = attentionOf(op);
  int64_t rank = attention.rank();
  Value grad = op.tensor("grad_out"), out = op.tensor("out"), log_sum = op.tensor("logsumexp");
  Type compute = attention.compute(), element = elementOf(attention.query);
  Value products = mapSame(build, {grad, out}, withElement(typeOf(grad), compute),
                           [&](ArrayRef<Scalar> in) { return in[0].to(compute) * in[1].to(compute); });
  Value row_sum = build.reduce(products, {rank - 1}, Combiner::add);
  std::string refusal;
  if (build.target.supports.products) {
    Value operands[] = {attention.query, attention.key, attention.value, grad, build.convert(log_sum, compute),
                        row_sum};
    refusal =
        whyNoGradient(build.target, attention, operands, attention.mask ? typeOf(attention.mask) : RankedTensorType());
    if (refusal.empty()) {
      Values results(3);
      auto gradient = [&](ArrayRef<RankedTensorType> types) {
        return build.attentionGradient(operands, attention.mask, attention.scale, attention.causal, types);
      };
      if (op.used(0))
        results[0] = gradient({op.resultType(0)})[0];
      if (op.used(1) || op.used(2)) {
        ResultRange both = gradient({op.resultType(1), op.resultType(2)});
        results[1] = both[0];
        results[2] = both[1];
      }
      return results;
    }
  }
  AffineExpr heads = shapeOf(typeOf(attention.query))[rank - 3], shared = shapeOf(typeOf(attention.key))[rank - 3];
  attention.key = repeatHeads(op, attention.key, heads);
  attention.value = repeatHeads(op, attention.value, heads);
  AffineMap row = build.unreduced(rank, {rank - 1});
  Value scores = scoresOf(op, attention);
  if (MatmulOp product = build.target.supports.products ? productOf(scores) : MatmulOp())
    product->setAttr("zefuse.note",
                     build.b.getStringAttr("attention's derivative without kernels of its own: " + refusal));
  Value weights = build.loop({scores, Operand(log_sum, row)}, typeOf(scores), [&](Body&, ArrayRef<Scalar> in) {
    Scalar sum = in[1].to(compute);
    return select(sum == -HUGE_VAL, sum.constant(0), normalExp(in[0] - sum));
  });
  Value grad_value = emitMatmul(op, transposed(build, build.convert(weights, element)), grad, {}, 1.0);
  Value grad_weights = emitMatmul(op, grad, transposed(build, attention.value), {}, 1.0, compute);
  Value grad_scores =
      build.loop({weights, grad_weights, Operand(row_sum, row)}, withElement(typeOf(scores), element),
                 [&](Body& body, ArrayRef<Scalar> in) {
                   Scalar value = in[0] * (in[1] - in[2]);
                   return (attention.depth ? value / sqrt(body.size(attention.depth).to(compute)) : value).to(element);
                 });
  Value grad_key = emitMatmul(op, transposed(build, grad_scores), attention.query, {}, attention.scale);
  return {emitMatmul(op, grad_scores, attention.key, {}, attention.scale), sumOfSharers(op, grad_key, shared),
          sumOfSharers(op, grad_value, shared)};
}

}  // namespace

void registerAttention(OpTable& table) {
  table.add("aten.scaled_dot_product_attention.default", emitAttention);
  table.add("aten._scaled_dot_product_flash_attention_for_cpu.default", emitAttention);
  table.add("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", emitAttentionBackward);
}

}  // namespace zefuse
