#include "lowering/schedule/products/products.h"

#include "lowering/dialect/shape.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace zefuse {

static std::string show(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

double multiplications(MatmulOp op) {
  constexpr double unknown = 256;
  auto estimate = [](AffineExpr size) { return constantOf(size) ? double(*constantOf(size)) : unknown; };
  double work = estimate(shapeOf(op.getA().getType()).back());
  for (AffineExpr size : shapeOf(op.getType()))
    work *= estimate(size);
  return work;
}

bool rightLiesAlongSum(MatmulOp op) {
  const unsigned rank = unsigned(op.getType().getRank());
  auto view = op.getB().getDefiningOp<ViewOp>();
  return view && view.getMap().getNumResults() > 0 &&
         view.getMap().getResults().back() == getAffineDimExpr(rank - 2, op.getContext());
}

bool libraryMultipliesF16(MatmulOp op) {
  constexpr double much = 1 << 19;  // of fewer the conversions take as long
  if (!getElementTypeOrSelf(op.getA().getType()).isF16() || multiplications(op) < much)
    return false;
  // Of one or two rows they take longer than eager, which adds up products along the weight's rows.
  constexpr int64_t few_rows = 3;
  const unsigned rank = unsigned(op.getType().getRank());
  const auto rows = constantOf(shapeOf(op.getType())[rank - 2]);
  return !(rightLiesAlongSum(op) && rows && *rows < few_rows);
}

std::string whyNoProductKernel(Operation* op, const TargetDescription& target) {
  const std::string name = op->getName().stripDialect().str();
  if (auto attention = dyn_cast<AttentionOp>(op))
    return target.supports.products ? whyNoGpuAttention(attention, target)
                                    : "has a kernel of its own on GPU targets only";
  if (!cast<PostOpsOpInterface>(op).getPostOps().empty())
    return name + " has post-ops, which are a library call's";
  const bool measured = isMeasuredKernel(op);
  if (auto matmul = dyn_cast<MatmulOp>(op); matmul && target.on_host && !measured && libraryMultipliesF16(matmul))
    return name + " of f16 is a library call on the CPU where it is large";
  const Type result = getElementTypeOrSelf(op->getResult(0).getType());
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes())) {
    Type element = getElementTypeOrSelf(type);
    if (!target.supports.products) {
      // What the library takes is its call.
      const bool taken = measured && (element.isF32() || element.isBF16());
      bool wrapping = element.isSignlessInteger() && element.getIntOrFloatBitWidth() >= 8;
      if (!taken && !wrapping && !element.isUnsignedInteger(8) && !element.isF64() && !element.isF16())
        return name + " of " + show(element) + " is a library call on the CPU";
      if (element != result)
        return name + " of mixed types has no CPU kernel";
    } else if (!element.isF32() && !element.isF16() && !element.isBF16() && !(element.isF64() && isa<MatmulOp>(op))) {
      return name + " of " + show(element) + " has no GPU kernel";
    } else if (element.isF64() && !target.native.f64) {
      return name + " of f64: " + target.name + " has no double precision";
    }
  }
  return "";
}

ProductLimits productLimits(Operation* op, const TargetDescription& target) {
  // A GPU's tile multiplies what it loads with 16 columns or more; the CPU packs it once per 32 rows.
  constexpr int64_t of_gpu = 16;
  int64_t work = target.hasWorkGroups() ? of_gpu : 0;
  if (auto attention = dyn_cast<AttentionOp>(op))
    work = std::min(work, queriesOfTile(attention, target));
  return {target.native.f64, work};
}

void scheduleProduct(const ScheduleContext& context) {
  const bool groups = context.target.hasWorkGroups();
  if (isa<ConvolutionOp>(context.domain.product->op))
    (groups ? scheduleGpuConvolution : scheduleCpuConvolution)(context);
  else if (isa<AttentionOp>(context.domain.product->op))
    scheduleGpuAttention(context);
  else
    (groups ? scheduleGpuMatmul : scheduleCpuMatmul)(context);
}

}  // namespace zefuse
