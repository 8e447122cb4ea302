// An operand in local memory as products of four sub-groups take it (PanelShape): panels of 64 columns, whose lines of
// 128 bytes have their pieces of 16 in the order of their number xor the line's, so that 8 lines' pieces of one number
// lie in different banks.
#pragma once

#include "lowering/schedule/products/gpu_product.h"

namespace zefuse {

// The work-items that copy a tile together: so many, and which of them this one is.
struct Copiers {
  mlir::Value item;
  int64_t count;
};

struct PanelTile {
  const ProductSource& source;
  int64_t rows, columns;  // in local memory: multiples of 8 and of 16
  // Rows of which this tile is a part: the others' may lie outside of the source, and so may these then. 0: its own.
  int64_t together = 0;

  PanelShape shape() const { return {rows}; }
  int64_t elements() const { return (columns + PanelShape::columns - 1) / PanelShape::columns * shape().elements(); }
  // From the source's `first_row` on, to `array`, which begins at a multiple of 1024 bytes; asynchronous where it can
  // be. What lies outside is zero.
  void copy(mlir::OpBuilder& builder, WorkGroup& group, const Copiers& by, mlir::Value array, const Extent& all_rows,
            mlir::Value first_row, const Extent& all_columns) const;
};

}  // namespace zefuse
