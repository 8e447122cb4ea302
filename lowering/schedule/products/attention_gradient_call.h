// The derivatives of scaled dot product attention, as their schedule takes them.
#pragma once

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"

namespace zefuse {

// A derivative of softmax(scale * q @ k^T + mask) @ v from its rows' log-sum-exps, the scores never in memory (Dao,
// "FlashAttention-2", 2023, section 3.1.2; without its atomics: one kernel for the queries' and one for the keys' and
// values'). With P the softmax, dP = grad @ v^T and dS = P * (dP - delta):
//   of the queries  scale * dS @ k
//   of the keys     scale * dS^T @ q, and of the values P^T @ grad; summed over the query heads that share a head
// Shapes: q [batch..., M, D], k [batch..., N, D], v [batch..., N, E], grad [batch..., M, E], log_sums and delta (the
// rows' sums of grad * result) [batch..., M], f32, mask [batch..., M, N] or none, sizes of 1 in it broadcast; D and E
// constants. k and v have q's batches, but fewer heads (the dimension before the rows) may divide q's.
struct AttentionGradientCall {
  bool of_keys = false;  // and of the values: two results; else of the queries, one
  bool all = false;      // one launch of groups of both kinds: three results, the queries' first
  mlir::RankedTensorType q, k, v, grad, log_sums, delta;
  mlir::RankedTensorType mask;  // null without; floats are added, i1 keeps where true
  llvm::SmallVector<mlir::RankedTensorType, 2> results;
  // Of q, k, v, grad, log_sums, delta, mask if any, the results: each from indices (and graph symbols) to the element
  // offset.
  llvm::SmallVector<mlir::AffineMap> layouts = {};
  double scale = 1;
  bool causal = false;  // key j is seen by rows i >= j only
};

}  // namespace zefuse
