// A set of an iteration space's dimensions.
#pragma once

#include <cstdint>

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/bit.h"

namespace zefuse {

// Numbers below `most`. A value: one word, compared and copied as such.
class Dims {
public:
  static constexpr unsigned most = 64;

  void set(unsigned dim) { bits_ |= uint64_t(1) << dim; }
  void reset(unsigned dim) { bits_ &= ~(uint64_t(1) << dim); }
  bool test(unsigned dim) const { return dim < most && (bits_ >> dim & 1) != 0; }
  bool any() const { return bits_ != 0; }
  unsigned count() const { return unsigned(llvm::popcount(bits_)); }
  bool anyCommon(Dims other) const { return (bits_ & other.bits_) != 0; }
  bool containsAll(Dims other) const { return (other.bits_ & ~bits_) == 0; }
  Dims& operator|=(Dims other) {
    bits_ |= other.bits_;
    return *this;
  }
  Dims without(Dims other) const {
    Dims rest;
    rest.bits_ = bits_ & ~other.bits_;
    return rest;
  }
  bool operator==(const Dims& other) const = default;
  llvm::SmallVector<unsigned> numbers() const {  // ascending
    llvm::SmallVector<unsigned> numbers;
    for (uint64_t left = bits_; left != 0; left &= left - 1)
      numbers.push_back(unsigned(llvm::countr_zero(left)));
    return numbers;
  }

private:
  uint64_t bits_ = 0;
};

}  // namespace zefuse
