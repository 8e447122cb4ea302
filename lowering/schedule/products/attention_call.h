// Scaled dot product attention and its derivatives, as the schedules take them.
#pragma once

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/SmallVector.h"

namespace zefuse {

// softmax(scale * q @ k^T + mask) @ v as one kernel (scaled dot product attention), the scores never in memory. Shapes:
// q [batch..., M, D], k [batch..., N, D], v [batch..., N, E], mask [batch..., M, N] or none, result [batch..., M, E]; D
// and E constants. A batch dimension of k and v may divide q's (grouped queries); sizes of 1 in mask broadcast.
struct AttentionCall {
  mlir::RankedTensorType q, k, v, mask, result;  // mask: null without; floats are added, i1 keeps where true
  // [batch..., M], f32: the logarithm of each row's sum of exponentials, for the derivative. -inf: it sees no key.
  mlir::RankedTensorType log_sums;                  // null without
  llvm::SmallVector<mlir::AffineMap> layouts = {};  // of q, k, v, mask if any, result, log_sums if any, each from
                                                    // indices (and graph symbols) to the element offset
  double scale = 1;
  bool causal = false;               // key j is seen by rows i >= j only
  bool empty_rows_are_zero = false;  // rows that see no key; else they are NaN
};
// A derivative of softmax(scale * q @ k^T + mask) @ v from its rows' log-sum-exps, the scores never in memory (Dao,
// "FlashAttention-2", 2023, section 3.1.2; without its atomics: one kernel for the queries' and one for the keys' and
// values'). With P the softmax, dP = grad @ v^T and dS = P * (dP - delta):
//   of the queries  scale * dS @ k
//   of the keys     scale * dS^T @ q, and of the values P^T @ grad; summed over the query heads that share a head
// Shapes as AttentionCall's: grad as its result, log_sums and delta (the rows' sums of grad * result) [batch..., M],
// f32. k and v have q's batches, but fewer heads (the dimension before the rows) may divide q's.
struct AttentionGradientCall {
  bool of_keys = false;  // and of the values: two results; else of the queries, one
  mlir::RankedTensorType q, k, v, grad, log_sums, delta, mask;  // mask: null without
  llvm::SmallVector<mlir::RankedTensorType, 2> results;
  llvm::SmallVector<mlir::AffineMap> layouts = {};  // of q, k, v, grad, log_sums, delta, mask if any, the results
  double scale = 1;
  bool causal = false;
};
}  // namespace zefuse
