// One operand of a product on a matrix engine of fragments (MatrixForm::fragments), in local memory.
//
// It lies there as in memory, with k (what is summed over) innermost or with the other index ("across": a row of a, a
// column of b) innermost, so that it is copied in whole accesses either way; the engine's loads turn what has to be
// turned. Lines are padded by 16 bytes, so that the 8 lines of a block start in different banks.
//
// Of f32 (`wide`: an operation of tf32, whose k is 8) a square is 16 across by 8 of k. The engine's loads turn none of
// them, so that what has k not innermost is loaded element by element.
#pragma once

#include "lowering/schedule/products/gpu_product.h"

namespace zefuse {

struct FragmentSide {
  const ProductSource& source;
  bool of_a;              // the product's rows, else its columns
  bool across_is_rows;    // of the source
  int64_t across, depth;  // sizes in local memory, multiples of 16
  bool wide = false;
  bool neighbours = false;  // wide: a lane's two of k are neighbours, as another product's sums have them

  bool direct() const { return wide && (neighbours || !kInner()); }
  mlir::Type type(mlir::OpBuilder& b) const { return wide ? mlir::Type(b.getF32Type()) : b.getI16Type(); }
  bool kInner() const { return source.columns_contiguous == across_is_rows; }
  int64_t line() const { return (kInner() ? depth : across) + (wide ? engine_pad / 2 : engine_pad); }
  int64_t elements() const { return line() * (kInner() ? across : depth); }

  // To `array`, all work-items taking part; asynchronous where it can be.
  void copy(mlir::OpBuilder& builder, WorkGroup& group, mlir::Value array, const Extent& all_across,
            mlir::Value first_across, const Extent& all_k, mlir::Value first_k) const;
  // The element that a lane points to for load(): of the 8 lines of each of 4 blocks of 8 x 8, which are the square of
  // 16 x 16 that begins at `first` across. Registers go across first in a, along k in b. direct(): the lane's first.
  mlir::Value lanesPlace(mlir::OpBuilder& builder, WorkGroup& group, mlir::Value first) const;
  // The fragments of the square at constants from there on: of a one operand, of b two, a pair of registers each.
  mlir::Value load(mlir::OpBuilder& builder, WorkGroup& group, mlir::Value array, mlir::Value place, int64_t across_on,
                   int64_t k_on) const;
};

// Of one side in local memory: the larger of its two forms.
inline int64_t bytesOfSide(int64_t across, int64_t depth, bool wide = false) {
  const int64_t pad = wide ? engine_pad / 2 : engine_pad;
  return (wide ? 4 : 2) * std::max(across * (depth + pad), depth * (across + pad));
}

// Two of a vector's elements, or of two registers' worth.
mlir::Value pairOf(mlir::OpBuilder& builder, mlir::Value vector, int64_t first);

}  // namespace zefuse
