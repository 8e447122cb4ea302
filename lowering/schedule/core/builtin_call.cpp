#include "lowering/schedule/core/builtin_call.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace zefuse {

std::string mangled(StringRef name, StringRef types) {
  return "_Z" + std::to_string(name.size()) + name.str() + types.str();
}

Value callBuiltin(OpBuilder& builder, ModuleOp module, StringRef mangled_name, Type result, ValueRange operands) {
  Location loc = builder.getUnknownLoc();
  TypeRange results = result ? TypeRange(result) : TypeRange();
  if (!module.lookupSymbol<func::FuncOp>(mangled_name)) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(module.getBody());
    auto type = builder.getFunctionType(operands.getTypes(), results);
    func::FuncOp::create(builder, loc, mangled_name, type).setPrivate();
  }
  auto call = func::CallOp::create(builder, loc, mangled_name, results, operands);
  return result ? call.getResult(0) : Value();
}

}  // namespace zefuse
