#include "lowering/schedule/products/call_kernel.h"

#include "lowering/dialect/shape.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

CallKernel::CallKernel(Operation* op, StringRef name, TypeRange operands, unsigned outputs, ArrayRef<AffineMap> layouts)
    : builder_(op->getContext()) {
  MLIRContext* context = op->getContext();
  context->loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                       vector::VectorDialect>();
  Location loc = op->getLoc();
  LoweredKernel& launch = scheduled_.launch;
  launch.name = name.str();
  unsigned graph_symbols = 0;
  llvm::SmallBitVector used;
  auto note = [&](AffineExpr expr) {
    expr.walk([&](AffineExpr part) {
      if (auto symbol = dyn_cast<AffineSymbolExpr>(part)) {
        used.resize(std::max<size_t>(used.size(), symbol.getPosition() + 1));
        used.set(symbol.getPosition());
      }
    });
  };
  for (auto [operand, layout] : llvm::zip_equal(operands, layouts)) {
    auto type = cast<RankedTensorType>(operand);
    StridedTensor tensor;
    tensor.element = type.getElementType();
    tensor.sizes = shapeOf(type);
    auto strided = asStrided(layout, tensor.sizes);
    if (!strided) {
      refusal_ = "operand " + std::to_string(tensors_.size()) + " has a layout that strides do not express";
      return;
    }
    tensor.strides = strided->strides;
    tensor.offset = strided->offset;
    for (auto list : {ArrayRef(tensor.sizes), ArrayRef(tensor.strides)})
      llvm::for_each(list, note);
    note(tensor.offset);
    graph_symbols = std::max({graph_symbols, layout.getNumSymbols(), numSymbols(type)});
    tensors_.push_back(std::move(tensor));
  }
  auto symbols = llvm::to_vector(used.set_bits());
  launch.symbols.assign(symbols.begin(), symbols.end());

  scheduled_.module = ModuleOp::create(loc);
  builder_.setInsertionPointToEnd(scheduled_.module->getBody());
  SmallVector<Type> types(tensors_.size(), LLVM::LLVMPointerType::get(context, 1));
  types.append(symbols.size(), builder_.getI64Type());
  function_ = func::FuncOp::create(builder_, loc, launch.name, builder_.getFunctionType(types, {}));
  Block* entry = function_.addEntryBlock();
  builder_.setInsertionPointToStart(entry);
  for (auto [i, tensor] : llvm::enumerate(tensors_)) {
    tensor.pointer = entry->getArgument(i);
    function_.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), builder_.getUnitAttr());
    function_.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(),
                         builder_.getI64IntegerAttr(bytesInMemory(tensor.element)));
    if (i + outputs < tensors_.size())
      function_.setArgAttr(i, LLVM::LLVMDialect::getReadonlyAttrName(), builder_.getUnitAttr());
  }
  symbols_.assign(graph_symbols, Value());
  for (auto [i, symbol] : llvm::enumerate(symbols))
    symbols_[symbol] =
        arith::IndexCastOp::create(builder_, loc, builder_.getIndexType(), entry->getArgument(tensors_.size() + i));
}

Value CallKernel::offset(const StridedTensor& tensor, ArrayRef<Value> indices) {
  IndexMath i = math();
  Value total = expression(tensor.offset);
  for (auto [size, stride, index] :
       llvm::zip_equal(tensor.sizes, tensor.strides, indices.take_back(tensor.sizes.size()))) {
    auto one = dyn_cast<AffineConstantExpr>(size), step = dyn_cast<AffineConstantExpr>(stride);
    if ((one && one.getValue() == 1) || (step && step.getValue() == 0))
      continue;
    total = i.add(total, step ? i.multiply(index, step.getValue()) : i.multiply(index, expression(stride)));
  }
  return total;
}

Value CallKernel::load(const StridedTensor& tensor, Value offset, int64_t lanes) {
  Value loaded = loadBits(tensor, offset, lanes);
  if (tensor.element.isF16() || tensor.element.isBF16())
    return widenToF32(builder_, builder_.getUnknownLoc(), loaded, tensor.element);
  return loaded;
}

Value CallKernel::address(const StridedTensor& tensor, Value offset) {
  Location loc = builder_.getUnknownLoc();
  Value at = arith::IndexCastOp::create(builder_, loc, builder_.getI64Type(), offset);
  return LLVM::GEPOp::create(builder_, loc, tensor.pointer.getType(), memoryType(tensor.element), tensor.pointer,
                             ArrayRef<LLVM::GEPArg>{at}, LLVM::GEPNoWrapFlags::inbounds);
}

Value CallKernel::loadBits(const StridedTensor& tensor, Value offset, int64_t lanes) {
  Value from = address(tensor, offset);
  return LLVM::LoadOp::create(builder_, builder_.getUnknownLoc(),
                              withLanes(memoryType(tensor.element), unsigned(lanes)), from,
                              unsigned(bytesInMemory(tensor.element)));
}

void CallKernel::store(const StridedTensor& tensor, Value offset, Value value) {
  Location loc = builder_.getUnknownLoc();
  if (tensor.element.isF16() || tensor.element.isBF16())
    value = narrowFromF32(builder_, loc, value, tensor.element);
  LLVM::StoreOp::create(builder_, loc, value, address(tensor, offset),
                        unsigned(bytesInMemory(tensor.element)) * lanesOf(value));
}

ScheduledKernel CallKernel::finish() {
  builder_.setInsertionPointToEnd(&function_.getBody().front());
  func::ReturnOp::create(builder_, builder_.getUnknownLoc());
  return std::move(scheduled_);
}

}  // namespace zefuse
