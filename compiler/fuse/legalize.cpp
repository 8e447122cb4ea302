// Stage 1 is the same for every target. Here the graph is made for one: of each zefuse.alternatives the first form
// stays whose operations the target takes.
//
//   %r = zefuse.alternatives : tensor<2x4x6x8xf32> {
//     %a = zefuse.attention ...      a GPU whose kernel takes it; a CPU when the library's call by blocks pays
//   }, {
//     ...                            products and a softmax: every target
//   }
#include <optional>
#include <string>

#include "compiler/builder/dtype.h"
#include "compiler/fuse/passes.h"
#include "lowering/analysis/index_space.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/lower.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_LEGALIZEFORTARGET
#include "compiler/fuse/Passes.h.inc"

namespace {

// Why a target does not take something. Empty: nothing that a user should read, since it never takes it.
using Reason = std::string;

RankedTensorType tensorTypeOf(Value tensor) {
  return tensor ? cast<RankedTensorType>(tensor.getType()) : RankedTensorType();
}

//===-- attention ----------------------------------------------------------------------------===//

// With fewer scores the products and the softmax cost the same, and batches of tiny products are one call
// (docs/attention.md). Rows of f32 that fill a panel pay sooner, but not in the derivatives.
constexpr int64_t many_scores = 1 << 16, scores_of_panels = 1 << 12, rows_of_panels = 16;

// [B, H, S, T], or some of its last dimensions, of which some are 1.
bool libraryTakesMask(Value mask, Value query, Value key) {
  RankedTensorType type = tensorTypeOf(mask);
  if (type.getRank() > 4 || !type.hasStaticShape() ||
      (!type.getElementType().isF32() && !type.getElementType().isInteger(1)))
    return false;
  SmallVector<int64_t> scores(tensorTypeOf(query).getShape());
  scores.back() = tensorTypeOf(key).getShape()[2];
  return llvm::all_of(llvm::zip(type.getShape(), ArrayRef(scores).take_back(type.getRank())),
                      [](auto sizes) { return std::get<0>(sizes) == std::get<1>(sizes) || std::get<0>(sizes) == 1; });
}

// Whether the CPU library's call by blocks of rows can do it, and pays. How many scores symbolic sizes make is not
// known; where they are causal, which blocks do half of, it pays or costs the same.
template <typename Attention> bool libraryTakes(Attention op) {
  constexpr bool forward = std::is_same_v<Attention, AttentionOp>;
  if (!op.getScale() || (op.getMask() && !forward))
    return false;
  bool symbolic = false;
  for (Value operand : {op.getQuery(), op.getKey(), op.getValue()}) {
    RankedTensorType type = tensorTypeOf(operand);
    if (type.getRank() != 4 || (!type.getElementType().isF32() && !type.getElementType().isBF16()) ||
        type.isDynamicDim(1) || type.isDynamicDim(3) || llvm::is_contained(type.getShape(), 0))
      return false;
    symbolic |= !type.hasStaticShape();
  }
  ArrayRef<int64_t> query = tensorTypeOf(op.getQuery()).getShape(), key = tensorTypeOf(op.getKey()).getShape();
  if (shapeOf(tensorTypeOf(op.getQuery()))[0] != shapeOf(tensorTypeOf(op.getKey()))[0] || query[1] % key[1] != 0)
    return false;
  if (symbolic)
    return op.getCausal() && !op.getMask();
  const bool panels = forward && query[2] >= rows_of_panels && tensorTypeOf(op.getQuery()).getElementType().isF32();
  if (op.getMask() && !(panels && libraryTakesMask(op.getMask(), op.getQuery(), op.getKey())))
    return false;
  return query[0] * query[1] * query[2] * key[2] >= (panels ? scores_of_panels : many_scores);
}

std::optional<Reason> whyNot(AttentionOp op, const TargetDescription& target) {
  if (!target.supports.products)
    return libraryTakes(op) ? std::nullopt : std::optional(Reason());
  Reason reason = whyNoProductKernel(op, target);
  return reason.empty() ? std::nullopt : std::optional(reason);
}

AttentionGradientCall callOf(AttentionGradientOp op) {
  AttentionGradientCall call;
  call.q = tensorTypeOf(op.getQuery());
  call.k = tensorTypeOf(op.getKey());
  call.v = tensorTypeOf(op.getValue());
  call.grad = tensorTypeOf(op.getGradient());
  call.log_sums = tensorTypeOf(op.getLogSums());
  call.delta = tensorTypeOf(op.getDelta());
  call.mask = tensorTypeOf(op.getMask());
  return call;
}

std::optional<Reason> whyNot(AttentionGradientOp op, const TargetDescription& target) {
  if (!target.supports.products)
    return libraryTakes(op) ? std::nullopt : std::optional(Reason());
  if (!op.getScale())
    return "the sizes of a head must be known";
  AttentionGradientCall call = callOf(op);
  for (bool of_keys : {false, true}) {  // both kernels or none
    call.of_keys = of_keys;
    if (Reason reason = whyNoAttentionGradient(call, target); !reason.empty())
      return reason;
  }
  return std::nullopt;
}

/// All three derivatives by two launches, where one is no better.
void divide(AttentionGradientOp op, const TargetDescription& target) {
  if (!target.supports.products || op.getNumResults() != 3 || joinsAttentionGradients(callOf(op), target))
    return;
  OpBuilder b(op);
  auto derivative = [&](TypeRange types, UnitAttr of_keys) {
    return AttentionGradientOp::create(b, op.getLoc(), types, op.getQuery(), op.getKey(), op.getValue(),
                                       op.getGradient(), op.getLogSums(), op.getDelta(), op.getMask(),
                                       op.getScaleAttr(), op.getCausalAttr(), of_keys, op.getResultLayoutsAttr());
  };
  const SmallVector<Type, 3> types(op.getResultTypes());
  SmallVector<Value> results(derivative(ArrayRef(types).take_front(1), {}).getResults());
  llvm::append_range(results, derivative(ArrayRef(types).drop_front(1), b.getUnitAttr()).getResults());
  op->replaceAllUsesWith(results);
  op.erase();
}

//===-- products -----------------------------------------------------------------------------===//

// Why eager's product on the CPU is quicker than a kernel of ours, of types that have one; empty: it is not. Measured,
// one thread (docs/lowering.md): BLAS in f64 takes 0.8 to 0.9 of our time with many rows, eager's loops in i64 0.9 to
// 0.95 unless the right side is transposed, and its sums of f16 along a transposed one 0.84 with one row. Unknown sizes
// count as 256.
std::string whyEagerIsQuicker(MatmulOp op) {
  constexpr double unknown = 256, much = 1 << 20, some = 1 << 18, many_rows = 32;
  auto estimate = [&](AffineExpr size) { return constantOf(size) ? double(*constantOf(size)) : unknown; };
  const Type element = tensorTypeOf(op.getA()).getElementType();
  const SmallVector<AffineExpr> result = shapeOf(tensorTypeOf(op.getResult()));
  const double work = multiplications(op), rows = estimate(result[result.size() - 2]);
  const std::string amount = std::to_string(int64_t(work)) + " multiplications";
  const bool many = work >= much && rows > many_rows;
  const bool known = constantOf(result[result.size() - 2]).has_value();
  if (many && (isa<FloatType>(element) || (element.isInteger(64) && known && !rightLiesAlongSum(op))))
    return "eager's library is quicker with " + amount;
  if (element.isF16() && rows == 1 && work >= some && rightLiesAlongSum(op))
    return "eager is quicker with one row and " + amount;
  return "";
}

// What every target takes, by its library or by kernels.
bool alwaysTaken(Type element, const TargetDescription& target) {
  return element.isF32() || element.isBF16() || (element.isF16() && target.supports.products);
}

// The same of convolutions. A kernel of ours loads a patch's channels as vectors; where they are few, or the result's
// are, it finds the elements one at a time, which takes up to 75 times as long as eager (a depthwise one, f16). Eager's
// derivatives in f16 are slower still, by 10 times and more.
std::string whyEagerIsQuicker(ConvolutionOp op) {
  constexpr double unknown = 256, few_taps = 3, much = 1 << 15;
  constexpr int64_t vector = 4, few_channels = 8;
  const bool of_weights = op.getKind() == "weights";
  const SmallVector<AffineExpr> result = shapeOf(tensorTypeOf(op.getResult())),
                                weight = shapeOf(tensorTypeOf(op.getWeight()));
  const int64_t groups = int64_t(op.getGroups());
  auto ofGroup = [&](AffineExpr channels) { return constantOf(channels).value_or(unknown) / groups; };
  const int64_t from = int64_t(ofGroup(shapeOf(tensorTypeOf(op.getInput()))[1])), to = int64_t(ofGroup(result[1]));
  const bool known = constantOf(shapeOf(tensorTypeOf(op.getInput()))[1]).has_value();
  const bool derivative = of_weights || op.getKind() == "transposed";
  if ((known && from % vector == 0 && (of_weights || to >= few_channels)) ||
      (derivative && tensorTypeOf(op.getInput()).getElementType().isF16()))
    return "";
  const ArrayRef<AffineExpr> outer = of_weights ? weight : result, taps = of_weights ? result : weight;
  double elements = constantOf(outer[0]).value_or(unknown) * double(from * groups);
  for (AffineExpr size : outer.drop_front(2))
    elements *= constantOf(size).value_or(unknown);
  for (AffineExpr size : taps.drop_front(2))
    elements *= constantOf(size).value_or(few_taps);
  if (elements < much)
    return "";
  return "eager is quicker with " + std::to_string(int64_t(elements)) + " elements of patches in groups of " +
         std::to_string(from) + " channels, for " + std::to_string(to);
}

std::optional<Reason> whyNot(ConvolutionOp op, const TargetDescription& target) {
  const Type element = tensorTypeOf(op.getInput()).getElementType();
  if (alwaysTaken(element, target))
    return std::nullopt;
  if (!op.getPostOps().empty() && target.on_host)  // of codes: the library's
    return std::nullopt;
  if (target.supports.products || !whyNoProductKernel(op, target).empty())
    return Reason();
  std::string reason = isMeasuredKernel(op) ? "" : whyEagerIsQuicker(op);
  return reason.empty() ? std::nullopt : std::optional("convolution of " + fx::dtypeName(element) + ": " + reason);
}

std::optional<Reason> whyNot(MatmulOp op, const TargetDescription& target) {
  const Type element = tensorTypeOf(op.getA()).getElementType();
  if (alwaysTaken(element, target) || (target.on_host && libraryMultipliesF16(op)))
    return std::nullopt;
  if (target.supports.products || !whyNoProductKernel(op, target).empty())
    return Reason();
  std::string reason = isMeasuredKernel(op) ? "" : whyEagerIsQuicker(op);
  return reason.empty() ? std::nullopt : std::optional("matrix product of " + fx::dtypeName(element) + ": " + reason);
}

//===-- any operation ------------------------------------------------------------------------===//

bool computesInF64(Operation* op) {
  auto f64 = [](Type type) { return getElementTypeOrSelf(type).isF64(); };
  return op
      ->walk([&](Operation* inner) {
        return llvm::any_of(inner->getResultTypes(), f64) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

std::optional<Reason> whyNot(Operation* op, const TargetDescription& target) {
  if (isa<AtenOp>(op))  // runs on the host, whatever the target
    return std::nullopt;
  if (auto attention = dyn_cast<AttentionOp>(op))
    return whyNot(attention, target);
  if (auto gradient = dyn_cast<AttentionGradientOp>(op))
    return whyNot(gradient, target);
  if ((op->hasAttr("zefuse.only_on_host") && !target.on_host) || (!target.native.f64 && computesInF64(op)))
    return Reason();
  if (auto matmul = dyn_cast<MatmulOp>(op))
    return whyNot(matmul, target);
  if (auto convolution = dyn_cast<ConvolutionOp>(op))
    return whyNot(convolution, target);
  if (isa<GroupedMatmulOp>(op) && !target.on_host)
    return Reason("no kernel for a GPU multiplies groups of rows");
  return std::nullopt;
}

std::optional<Reason> whyNot(Region& form, const TargetDescription& target) {
  for (Operation& op : form.front().without_terminator()) {
    if (auto inner = dyn_cast<AlternativesOp>(op)) {
      if (llvm::all_of(inner.getForms(), [&](Region& each) { return whyNot(each, target).has_value(); }))
        return Reason();
    } else if (auto reason = whyNot(&op, target)) {
      return reason;
    }
  }
  return std::nullopt;
}

/// The form's operations take the place of `op`.
void keep(Region& form, AlternativesOp op) {
  auto yield = cast<YieldOp>(form.front().getTerminator());
  op->replaceAllUsesWith(yield.getValues());
  yield.erase();
  op->getBlock()->getOperations().splice(op->getIterator(), form.front().getOperations());
  op.erase();
}

LogicalResult choose(AlternativesOp op, const TargetDescription& target) {
  Reason refusal;
  for (Region& form : op.getForms()) {
    if (auto reason = whyNot(form, target)) {
      if (refusal.empty())
        refusal = *reason;
      continue;
    }
    for (Operation& inner : form.front()) {
      auto note = dyn_cast_or_null<StringAttr>(inner.removeAttr("zefuse.note_of_refusal"));
      if (note && !refusal.empty())
        inner.setAttr("zefuse.note", StringAttr::get(op.getContext(), note.getValue() + ": " + refusal));
      inner.removeAttr("zefuse.only_on_host");
      if (auto aten = dyn_cast<AtenOp>(inner); aten && !refusal.empty())
        aten.setReason((aten.getOp() + ": " + refusal).str());
    }
    keep(form, op);
    return success();
  }
  return op.emitError("has no form that ") << target.name << " takes" << (refusal.empty() ? "" : ": ") << refusal;
}

class LegalizeForTarget : public impl::LegalizeForTargetBase<LegalizeForTarget> {
public:
  using LegalizeForTargetBase::LegalizeForTargetBase;

private:
  void runOnOperation() override {
    const std::optional<TargetDescription> description = targetNamed(getOperation(), target);
    if (!description)
      return signalPassFailure();
    Block& block = getOperation().getBody().front();
    // Those that a form brings stand before what comes next: first come, first served.
    for (auto next = block.getOps<AlternativesOp>(); !next.empty(); next = block.getOps<AlternativesOp>())
      if (failed(choose(*next.begin(), *description)))
        return signalPassFailure();
    for (AttentionGradientOp op : llvm::make_early_inc_range(block.getOps<AttentionGradientOp>()))
      divide(op, *description);
  }
};

}  // namespace
}  // namespace zefuse
