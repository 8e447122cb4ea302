#include "lowering/analysis/element_types.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace zefuse {

static bool isLowPrecision(Type type) { return type.isBF16() || type.isF16(); }

Type memoryType(Type type) {
  if (isLowPrecision(type))
    return IntegerType::get(type.getContext(), 16);
  if (type.isInteger(1) || type.isUnsignedInteger(8))
    return IntegerType::get(type.getContext(), 8);
  return type;
}

Type registerType(Type type) {
  if (type.isUnsignedInteger(8))
    return IntegerType::get(type.getContext(), 8);
  return isLowPrecision(type) ? IntegerType::get(type.getContext(), 16) : type;
}

int64_t bytesInMemory(Type type) { return memoryType(type).getIntOrFloatBitWidth() / 8; }

TypedAttr neutralElement(Operation* combiner) {
  Builder builder(combiner->getContext());
  Type type = registerType(combiner->getResult(0).getType());
  StringRef name = combiner->getName().getStringRef();
  if (auto real = dyn_cast<FloatType>(type)) {
    const auto& semantics = real.getFloatSemantics();
    if (name == "arith.addf")
      return builder.getFloatAttr(type, 0.0);
    if (name == "arith.mulf")
      return builder.getFloatAttr(type, 1.0);
    if (name == "arith.maximumf" || name == "arith.maxnumf")
      return builder.getFloatAttr(type, APFloat::getInf(semantics, /*Negative=*/true));
    if (name == "arith.minimumf" || name == "arith.minnumf")
      return builder.getFloatAttr(type, APFloat::getInf(semantics));
    return {};
  }
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  auto integer = [&](const APInt& value) { return builder.getIntegerAttr(type, value); };
  if (name == "arith.addi" || name == "arith.ori" || name == "arith.xori" || name == "arith.maxui")
    return integer(APInt(width, 0));
  if (name == "arith.muli")
    return integer(APInt(width, 1));
  if (name == "arith.andi" || name == "arith.minui")
    return integer(APInt::getAllOnes(width));
  if (name == "arith.maxsi")
    return integer(APInt::getSignedMinValue(width));
  if (name == "arith.minsi")
    return integer(APInt::getSignedMaxValue(width));
  return {};
}

}  // namespace zefuse
