#include "runtime/primitives/matmul/panel_matmul.h"

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/matmul/descriptor.h"
#include "runtime/primitives/matmul/matmul_tail.h"
#include "runtime/primitives/matmul/panel_step.h"
#include "runtime/primitives/simd/vector_post_ops.h"

namespace zefuse::primitives {

using plan::LibraryWay;

namespace {

bool takes(const MatmulDesc& desc) {
  const size_t rank = desc.out.sizes.size();
  return desc.pack_b && rank <= 3 && endsInPlace(desc) && desc.fpmath == FpMath::strict && desc.alpha == 1.0f &&
         elements(desc.out.sizes) > 0 && desc.a.sizes.back() > 0 && (rank == 2 || desc.b.sizes[0] == 1);
}

PanelMatrix matrixOf(const TensorDesc& desc) {
  const size_t rank = desc.sizes.size();
  return {rank == 3 && desc.sizes[0] > 1 ? desc.strides[0] : 0, desc.strides[rank - 2], desc.strides[rank - 1]};
}

// nullopt for what is left to a pass over the result.
std::optional<RowPostOp> rowPostOp(const TailOp& op, size_t rank) {
  if (!hasVectorPostOp(op.kind))
    return std::nullopt;
  RowPostOp found{op.kind, op.slot};
  if (op.slot < 0)
    return found;
  // From the right: the k-th last dimension's.
  auto stride = [&](size_t k) {
    const size_t own = op.operand.sizes.size();
    return k > own || op.operand.sizes[own - k] == 1 ? 0 : op.operand.strides[own - k];
  };
  found.column = stride(1);
  found.row = stride(2);
  found.batch = rank == 3 ? stride(3) : 0;
  return found.column > 1 || op.operand.dtype != plan::DType::f32 ? std::nullopt : std::optional(found);
}

}  // namespace

Result<std::shared_ptr<const Matmul>> PanelMatmul::build(const MatmulDesc& desc) {
  if (!takes(desc))
    return std::shared_ptr<const Matmul>();
  const size_t rank = desc.out.sizes.size();
  PanelShape shape{rank == 3 ? desc.out.sizes[0] : 1,
                   desc.out.sizes[rank - 2],
                   desc.out.sizes.back(),
                   desc.a.sizes.back(),
                   matrixOf(desc.a),
                   matrixOf(desc.b),
                   matrixOf(desc.out),
                   isColumnBias(desc)};
  const bool wanted = desc.way == LibraryWay::panels && panelsAvailable();
  if (!(wanted || (desc.way == LibraryWay::automatic && panelsPay(shape))))
    return std::shared_ptr<const Matmul>();
  auto self = std::shared_ptr<PanelMatmul>(new PanelMatmul(desc));
  Sequence& sequence = self->sequence_;
  sequence.implementation = "panels:avx2";
  sequence.one_thread = threadsWorth(panelNanoseconds(shape), maxThreads()) == 1;
  const std::vector<TailOp> tail = tailOf(desc);
  for (const TailOp& op : tail) {
    const std::optional<RowPostOp> found = rowPostOp(op, rank);
    if (!found)
      break;
    shape.post_ops.push_back(*found);
  }
  const size_t fused = shape.post_ops.size();
  {
    const OneThread alone(sequence.one_thread);
    const auto step = std::make_shared<PanelStep>(sequence, std::move(shape), /*packed=*/true);
    sequence.own = step;
    sequence.own_takes_given = true;
    sequence.prepareOwnPacking(desc.b, step->packedBytes());
  }
  if (!prepareTail(sequence, desc, tail, fused))
    return std::shared_ptr<const Matmul>();
  return std::shared_ptr<const Matmul>(std::move(self));
}

PanelMatmul::PanelMatmul(const MatmulDesc& desc) : Prepared(toString(desc)), b_(desc.b) {}

bool PanelMatmul::packsLike(const Primitive& other) const {
  const auto* that = dynamic_cast<const PanelMatmul*>(&other);
  return that && b_ == that->b_;
}

}  // namespace zefuse::primitives
