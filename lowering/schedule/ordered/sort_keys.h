// The integers that a sort orders in place of its elements: smaller sorts first, no two of a row are equal.
//
// - narrow, elements of up to 32 bits: one i64, the element's key above its position;
// - wide, elements of 64 bits: two i64, the key and the position.
//
// A float's key is its bits, with the magnitude of negative numbers inverted; every NaN has the greatest key, and -0
// the key of 0. The position's lowest bit remembers -0. A descending order inverts the key, so that equal elements keep
// their order in both directions.
#pragma once

#include "mlir/IR/Builders.h"

namespace zefuse {

struct SortKey {
  mlir::Value key, place;  // i64, or vectors of it; place: wide keys only
};

class SortKeys {
public:
  // `element`: the tensor's element type.
  SortKeys(mlir::OpBuilder& builder, mlir::Location loc, mlir::Type element, bool descending)
      : b_(builder), loc_(loc), element_(element), descending_(descending) {}

  bool wide() const { return element_.getIntOrFloatBitWidth() == 64; }
  // Of an element in its register type and its position (i64), below 2^31. Any number of lanes, the same for both.
  SortKey encode(mlir::Value element, mlir::Value position);
  mlir::Value element(const SortKey& key);   // in its register type
  mlir::Value position(const SortKey& key);  // i64
  SortKey last(unsigned lanes);              // behind every element
  mlir::Value less(const SortKey& a, const SortKey& b);

private:
  mlir::Value integer(unsigned width, int64_t value, unsigned lanes);

  mlir::OpBuilder& b_;
  mlir::Location loc_;
  mlir::Type element_;
  bool descending_;
};

}  // namespace zefuse
