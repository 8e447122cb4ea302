#include "runtime/primitives/matmul/matmul_tail.h"

#include "common/base/fork.h"
#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/engine.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/matmul/descriptor.h"

namespace zefuse::primitives {

using plan::DType;

bool isColumnBias(const MatmulDesc& desc) {
  if (!desc.bias)
    return false;
  const int64_t columns = desc.out.sizes.back();
  return desc.bias->sizes.back() == columns && elements(desc.bias->sizes) == columns && desc.bias->strides.back() == 1;
}

bool endsInPlace(const MatmulDesc& desc) {
  for (const TensorDesc* each : {&desc.a, &desc.b, &desc.out})
    if (each->dtype != DType::f32 || each->sizes.size() != desc.out.sizes.size())
      return false;
  const bool other_bias = desc.bias && !isColumnBias(desc);
  bool operands = other_bias;
  if ((desc.bias && desc.bias->dtype != DType::f32) || (other_bias && !isDense(*desc.bias)))
    return false;
  for (const PostOpDesc& op : desc.post_ops)
    if (op.operand) {
      operands = true;
      if (!isDense(*op.operand))
        return false;
    }
  // As for a product of oneDNN's (PreparedMatmul::makePlan).
  return desc.out.strides.back() == 1 && distinct(desc.out) && (isDense(desc.out) || !operands);
}

std::vector<TailOp> tailOf(const MatmulDesc& desc) {
  std::vector<TailOp> tail;
  if (desc.bias && !isColumnBias(desc))
    tail.push_back({plan::PostOpKind::add, slotBias, *desc.bias});
  for (size_t i = 0; i < desc.post_ops.size(); ++i) {
    const PostOpDesc& op = desc.post_ops[i];
    tail.push_back({op.kind, op.operand ? int(firstOperand + i) : -1, op.operand ? *op.operand : TensorDesc()});
  }
  return tail;
}

bool prepareTail(Sequence& sequence, const MatmulDesc& desc) { return prepareTail(sequence, desc, tailOf(desc), 0); }

bool prepareTail(Sequence& sequence, const MatmulDesc& desc, const std::vector<TailOp>& tail, size_t first) {
  sequence.post_ops = desc.post_ops.size();
  const OneThread alone(sequence.one_thread);
  bool prepared = false;
  const Status status = guarded(sequence.text, [&]() -> Status {
    const WithoutFork without_fork;
    std::string why;
    prepared = appendTail(sequence, tail, first, desc.out, why);
    if (prepared)
      sequence.placeScratchpad();
    return Status();
  });
  return status.ok() && prepared;
}

}  // namespace zefuse::primitives
