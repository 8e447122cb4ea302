// Products with few tiles and a long k on a GPU: split along k, so that more of the device works.
#pragma once

#include <cstdint>
#include <optional>

#include "common/toolchain/target_description.h"
#include "mlir/IR/Types.h"

namespace zefuse {

// What `target`'s matrix engine multiplies operands of these element types with; null: it has nothing for them, or of
// another shape than the tiles of gpu_product.h. f32 never goes there: nobody asked for fewer bits.
const MatrixOperation* matrixOperation(mlir::Type a, mlir::Type b, const TargetDescription& target);

// What multiplies f32 in three products of tf32, with the errors of sums in f32 (fragment_product.cpp); null: nothing.
const MatrixOperation* splitOperation(mlir::Type a, mlir::Type b, const TargetDescription& target);

// Into how many equal slices of k a product c[batches, m, n] += a[m, k] * b[k, n] is best cut, whose partial sums a
// second launch adds in order: the same bits every time. A power of two that divides k, 1: not at all. By the cost
// model of chooseTile (gpu_product.h), whose `engine` and `wide` these are; unknown sizes count as there. `bytes`: of a
// partial sum.
int64_t chooseSplits(std::optional<int64_t> m, std::optional<int64_t> n, std::optional<int64_t> batches, int64_t k,
                     int64_t bytes, const TargetDescription& target, bool engine, bool wide = false);

}  // namespace zefuse
