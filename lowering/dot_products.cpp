#include "lowering/dot_products.h"

#include "lowering/dialect/Zefuse.h"
#include "lowering/lower.h"
#include "lowering/passes.h"
#include "lowering/spirv/math_builtins.h"

using namespace mlir;

namespace zefuse {

#define GEN_PASS_DEF_DOTPRODUCTS
#include "lowering/Passes.h.inc"

namespace {

Value call(OpBuilder& b, ModuleOp module, Dot4Op op) {
  std::string name = kDot4;
  Type type = op.getType();
  if (auto vector = dyn_cast<VectorType>(type))
    name += std::to_string(vector.getNumElements());
  LLVM::LLVMFuncOp callee = declareBuiltin(module, name, type, {type, type, type});
  auto call = LLVM::CallOp::create(b, op.getLoc(), callee, op.getOperands());
  call.setCConv(LLVM::CConv::SPIR_FUNC);
  return call.getResult();
}

Value arithmetic(OpBuilder& b, Dot4Op op) {
  const Location loc = op.getLoc();
  auto number = [&](int32_t value) -> Value {
    TypedAttr attribute = b.getI32IntegerAttr(value);
    if (auto vector = dyn_cast<VectorType>(op.getType()))
      attribute = DenseElementsAttr::get(vector, Attribute(attribute));
    return arith::ConstantOp::create(b, loc, attribute);
  };
  Value sum = op.getSum(), low = number(255), top = number(24);
  for (int byte = 0; byte < 4; ++byte) {
    Value unsigned_byte = arith::ShRUIOp::create(b, loc, op.getA(), number(8 * byte));
    unsigned_byte = arith::AndIOp::create(b, loc, unsigned_byte, low);
    Value signed_byte = arith::ShLIOp::create(b, loc, op.getB(), number(24 - 8 * byte));
    signed_byte = arith::ShRSIOp::create(b, loc, signed_byte, top);
    Value product = arith::MulIOp::create(b, loc, unsigned_byte, signed_byte);
    sum = arith::AddIOp::create(b, loc, sum, product);
  }
  return sum;
}

class DotProducts : public impl::DotProductsBase<DotProducts> {
public:
  using DotProductsBase::DotProductsBase;
  void runOnOperation() override {
    if (auto description = targetNamed(getOperation(), target))
      expandDotProducts(getOperation(), description->native);
    else
      signalPassFailure();
  }
};

}  // namespace

void expandDotProducts(ModuleOp module, const NativeOperations& native) {
  SmallVector<Dot4Op> found;
  module.walk([&](Dot4Op op) { found.push_back(op); });
  for (Dot4Op op : found) {
    OpBuilder b(op);
    op.replaceAllUsesWith(native.dot4 ? call(b, module, op) : arithmetic(b, op));
    op.erase();
  }
}

}  // namespace zefuse
