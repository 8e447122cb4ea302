#include "lowering/integer_conversions.h"

#include <cmath>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace zefuse {

void defineIntegersOfFloats(ModuleOp module) {
  SmallVector<arith::FPToSIOp> conversions;
  module.walk([&](arith::FPToSIOp op) { conversions.push_back(op); });
  for (arith::FPToSIOp op : conversions) {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    const Location loc = op.getLoc();
    Value from = op.getIn();
    const unsigned bits = getElementTypeOrSelf(op.getType()).getIntOrFloatBitWidth();
    auto constant = [&](Type type, TypedAttr element) -> Value {
      if (auto shaped = dyn_cast<ShapedType>(type))
        element = SplatElementsAttr::get(shaped, element);
      return arith::ConstantOp::create(builder, loc, element);
    };
    // The least integer itself is not below the bound, and becomes what it is all the same.
    Value bound = constant(from.getType(),
                           builder.getFloatAttr(getElementTypeOrSelf(from.getType()), std::ldexp(1.0, int(bits) - 1)));
    Value least = constant(
        op.getType(), builder.getIntegerAttr(getElementTypeOrSelf(op.getType()), llvm::APInt::getSignedMinValue(bits)));
    Value size = math::AbsFOp::create(builder, loc, from);
    Value inside = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLT, size, bound);
    Value defined = arith::SelectOp::create(builder, loc, inside, op.getResult(), least);
    op.getResult().replaceAllUsesExcept(defined, defined.getDefiningOp());
  }
}

void saturateIntegersOfFloats(ModuleOp module) {
  module.getContext()->loadDialect<LLVM::LLVMDialect>();
  SmallVector<arith::FPToSIOp> conversions;
  module.walk([&](arith::FPToSIOp op) { conversions.push_back(op); });
  for (arith::FPToSIOp op : conversions) {
    OpBuilder builder(op);
    std::string name = "llvm.fptosi.sat";
    for (Type type : {op.getType(), op.getIn().getType()}) {
      auto vector = dyn_cast<VectorType>(type);
      const Type element = getElementTypeOrSelf(type);
      name += "." + (vector ? "v" + std::to_string(vector.getNumElements()) : std::string()) +
              (isa<FloatType>(element) ? "f" : "i") + std::to_string(element.getIntOrFloatBitWidth());
    }
    auto call = LLVM::CallIntrinsicOp::create(builder, op.getLoc(), op.getType(), builder.getStringAttr(name),
                                              ValueRange(op.getIn()));
    op.replaceAllUsesWith(call.getResults());
    op.erase();
  }
}

}  // namespace zefuse
