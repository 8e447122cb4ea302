#include "lowering/schedule/ordered/sort_keys.h"

#include <limits>

#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {

Value SortKeys::integer(unsigned width, int64_t value, unsigned lanes) {
  return constantOfType(b_, loc_, b_.getIntegerAttr(b_.getIntegerType(width), value), lanes);
}

SortKey SortKeys::encode(Value element, Value position) {
  unsigned lanes = lanesOf(element), width = element_.getIntOrFloatBitWidth();
  Type i64 = withLanes(b_.getI64Type(), lanes);
  auto shift = [&](Value value, int64_t by) -> Value {
    return arith::ShLIOp::create(b_, loc_, value, integer(64, by, lanes));
  };
  Value key, place = shift(position, 1);
  if (auto floating = dyn_cast<FloatType>(element_)) {
    auto compare = [&](arith::CmpIPredicate predicate, Value a, Value b) -> Value {
      return arith::CmpIOp::create(b_, loc_, predicate, a, b);
    };
    Type integers = withLanes(b_.getIntegerType(width), lanes);
    Value bits = element.getType() == integers ? element : Value(arith::BitcastOp::create(b_, loc_, integers, element));
    int64_t most = APInt::getSignedMaxValue(width).getSExtValue();
    int64_t infinity = APFloat::getInf(floating.getFloatSemantics()).bitcastToAPInt().getSExtValue();
    Value magnitude = arith::AndIOp::create(b_, loc_, bits, integer(width, most, lanes));
    Value nan = compare(arith::CmpIPredicate::sgt, magnitude, integer(width, infinity, lanes));
    Value zero = compare(arith::CmpIPredicate::eq, magnitude, integer(width, 0, lanes));
    Value sign = arith::ShRSIOp::create(b_, loc_, bits, integer(width, width - 1, lanes));
    Value turned =
        arith::XOrIOp::create(b_, loc_, bits, arith::AndIOp::create(b_, loc_, sign, integer(width, most, lanes)));
    key = arith::SelectOp::create(b_, loc_, zero, magnitude, turned);
    key = arith::SelectOp::create(b_, loc_, nan, integer(width, most, lanes), key);
    Value negative = compare(arith::CmpIPredicate::slt, bits, integer(width, 0, lanes));
    Value negative_zero = arith::AndIOp::create(b_, loc_, zero, negative);
    place = arith::OrIOp::create(b_, loc_, place, arith::ExtUIOp::create(b_, loc_, i64, negative_zero));
    if (width < 64)
      key = arith::ExtSIOp::create(b_, loc_, i64, key);
  } else if (width == 64) {
    key = element;
  } else if (element_.isInteger(1) || element_.isUnsignedInteger(8)) {
    key = arith::ExtUIOp::create(b_, loc_, i64, element);
  } else {
    key = arith::ExtSIOp::create(b_, loc_, i64, element);
  }
  if (descending_)
    key = arith::XOrIOp::create(b_, loc_, key, integer(64, -1, lanes));
  if (wide())
    return {key, place};
  return {arith::OrIOp::create(b_, loc_, shift(key, 32), place), Value()};
}

Value SortKeys::element(const SortKey& sorted) {
  unsigned lanes = lanesOf(sorted.key), width = element_.getIntOrFloatBitWidth();
  Value key = sorted.key;
  if (!wide())
    key = arith::ShRSIOp::create(b_, loc_, key, integer(64, 32, lanes));
  if (descending_)
    key = arith::XOrIOp::create(b_, loc_, key, integer(64, -1, lanes));
  if (width < 64)
    key = arith::TruncIOp::create(b_, loc_, withLanes(b_.getIntegerType(width), lanes), key);
  if (!isa<FloatType>(element_))
    return key;
  int64_t most = APInt::getSignedMaxValue(width).getSExtValue();
  Value sign = arith::ShRSIOp::create(b_, loc_, key, integer(width, width - 1, lanes));
  Value bits = arith::XOrIOp::create(b_, loc_, key, arith::AndIOp::create(b_, loc_, sign, integer(width, most, lanes)));
  Value place = wide() ? sorted.place : sorted.key;
  Value mark = arith::AndIOp::create(b_, loc_, place, integer(64, 1, lanes));
  Value marked = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::ne, mark, integer(64, 0, lanes));
  int64_t least = APInt::getSignedMinValue(width).getSExtValue();
  bits = arith::SelectOp::create(b_, loc_, marked, integer(width, least, lanes), bits);
  Type type = withLanes(registerType(element_), lanes);
  return bits.getType() == type ? bits : Value(arith::BitcastOp::create(b_, loc_, type, bits));
}

Value SortKeys::position(const SortKey& sorted) {
  unsigned lanes = lanesOf(sorted.key);
  Value place =
      wide() ? sorted.place : Value(arith::AndIOp::create(b_, loc_, sorted.key, integer(64, 0xffffffff, lanes)));
  return arith::ShRUIOp::create(b_, loc_, place, integer(64, 1, lanes));
}

SortKey SortKeys::last(unsigned lanes) {
  Value most = integer(64, std::numeric_limits<int64_t>::max(), lanes);
  return {most, wide() ? most : Value()};
}

Value SortKeys::less(const SortKey& a, const SortKey& b) {
  Value less = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, a.key, b.key);
  if (!wide())
    return less;
  Value equal = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, a.key, b.key);
  Value before = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, a.place, b.place);
  return arith::OrIOp::create(b_, loc_, less, arith::AndIOp::create(b_, loc_, equal, before));
}

}  // namespace zefuse
