#include "compiler/builder/dtype.h"

#include <algorithm>

using namespace mlir;

namespace zefuse::fx {
namespace {

// Position in bool < (i8, u8) < i16 < i32 < i64 < (f16, bf16) < f32 < f64.
int rank(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type))
    return integer.getWidth() == 1 ? 0 : llvm::Log2_32(integer.getWidth());  // 3..6
  if (type.isF64())
    return 10;
  return type.isF32() ? 9 : 8;
}

}  // namespace

Type elementType(int dtype, MLIRContext* context) {
  switch (dtype) {
  case kU8: return IntegerType::get(context, 8, IntegerType::Unsigned);
  case kI8: return IntegerType::get(context, 8);
  case kI16: return IntegerType::get(context, 16);
  case kI32: return IntegerType::get(context, 32);
  case kI64: return IntegerType::get(context, 64);
  case kF16: return Float16Type::get(context);
  case kBF16: return BFloat16Type::get(context);
  case kF32: return Float32Type::get(context);
  case kF64: return Float64Type::get(context);
  case kBool: return IntegerType::get(context, 1);
  default: return {};
  }
}

std::string dtypeName(int dtype) {
  static const char* const names[] = {"uint8",   "int8",    "int16",     "int32",     "int64",      "float16",
                                      "float32", "float64", "complex32", "complex64", "complex128", "bool",
                                      "qint8",   "quint8",  "qint32",    "bfloat16"};
  if (dtype >= 0 && dtype < static_cast<int>(std::size(names)))
    return names[dtype];
  return "dtype number " + std::to_string(dtype);
}

std::string dtypeName(Type element) {
  std::string text;
  llvm::raw_string_ostream(text) << element;
  return element.isUnsignedInteger(8) ? "uint8" : text;
}

Type promoteTypes(Type a, Type b) {
  if (!a || a == b)
    return b;
  if (!b)
    return a;
  if (rank(a) == rank(b))  // f16 and bf16, i8 and u8
    return isa<FloatType>(a) ? Type(Float32Type::get(a.getContext())) : IntegerType::get(a.getContext(), 16);
  return rank(a) > rank(b) ? a : b;
}

Type computeType(Type element) {
  if (element.isUnsignedInteger(8))
    return IntegerType::get(element.getContext(), 16);
  return element.isF16() || element.isBF16() ? Float32Type::get(element.getContext()) : element;
}

}  // namespace zefuse::fx
