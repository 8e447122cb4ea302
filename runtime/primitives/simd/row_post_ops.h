// Post-ops of rows of results, and their operands. What computes is inlined into a function that is compiled for a
// level of processors.
#pragma once

#include <span>

#include "runtime/primitives/simd/vector_post_ops.h"

namespace zefuse::primitives {

// Of [batch, rows, columns]. Its operand's strides are 0 where it is repeated; along columns 0 or 1.
struct RowPostOp {
  plan::PostOpKind kind{};
  int slot = -1;  // of the operand
  int64_t batch = 0, row = 0, column = 0;
};

// Where post-ops find their operands.
struct RowOperands {
  std::span<const RowPostOp> post_ops;  // none where results are not complete
  const void* const* addresses;         // by slot
  int64_t batch, row, column;

  const float* of(const RowPostOp& op) const {
    return static_cast<const float*>(addresses[op.slot]) + batch * op.batch + row * op.row + column * op.column;
  }
  RowOperands at(int64_t rows, int64_t columns) const {
    return {post_ops, addresses, batch, row + rows, column + columns};
  }
};

// Post-ops of results in memory, the nearest cache: a row's vectors go through all of them in registers.
template <int lanes, int vectors, bool whole>
[[gnu::always_inline]] inline void finishRows(const RowOperands& operands, int64_t rows, int64_t columns, float* out,
                                              int64_t out_row) {
  using Vector = typename VectorOf<lanes>::Float;
  for (int64_t r = 0; r < rows; ++r, out += out_row) {
    Vector x[vectors];
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      load<lanes>(x[v], out + v * lanes, whole ? lanes : columns - v * lanes);
    for (const RowPostOp& op : operands.post_ops) {
      if (op.slot < 0) {
#pragma clang loop unroll(full)
        for (int v = 0; v < vectors; ++v)
          activate<lanes>(op.kind, x[v]);
        continue;
      }
      const float* from = operands.of(op) + r * op.row;
#pragma clang loop unroll(full)
      for (int v = 0; v < vectors; ++v) {
        Vector operand = Vector{} + *from;
        if (op.column)
          load<lanes>(operand, from + v * lanes, whole ? lanes : columns - v * lanes);
        if (op.kind == plan::PostOpKind::add)
          x[v] += operand;
        else
          x[v] *= operand;
      }
    }
#pragma clang loop unroll(full)
    for (int v = 0; v < vectors; ++v)
      store<lanes>(out + v * lanes, x[v], whole ? lanes : columns - v * lanes);
  }
}

}  // namespace zefuse::primitives
