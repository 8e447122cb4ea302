#include "lowering/schedule/cpu/lane_values.h"

#include "lowering/schedule/core/scalar_ops.h"
#include "lowering/schedule/cpu/cpu.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace zefuse {

LaneValues::LaneValues(const ScheduleContext& context)
    : c_(context), lanes_(lanesFor(context.domain.space, context.strategy.row_lanes, context.target)),
      blocks_(llvm::divideCeil(*constantOf(context.domain.space.size(context.strategy.row_lanes)), lanes_)) {}

Type LaneValues::typeOf(size_t number) const {
  Value tensor = c_.strategy.lane_values[number].value;
  return registerType(cast<RankedTensorType>(tensor.getType()).getElementType());
}

int64_t LaneValues::bytesOfVector(size_t number) const { return lanes_ * typeOf(number).getIntOrFloatBitWidth() / 8; }

void LaneValues::makeMemory() {
  OpBuilder& b = c_.builder();
  Location loc = b.getUnknownLoc();
  int64_t bytes = 0;
  for (size_t number = 0; number < c_.strategy.lane_values.size(); ++number)
    bytes += blocks_ * bytesOfVector(number);
  c_.evaluator.toInnermost();
  Value count = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(1));
  Type array = LLVM::LLVMArrayType::get(b.getI8Type(), bytes);
  memory_ = LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), array, count, /*alignment=*/64);
}

Value LaneValues::address(size_t number, Value block) {
  OpBuilder& b = c_.builder();
  Location loc = b.getUnknownLoc();
  int64_t offset = 0;
  for (size_t before = 0; before < number; ++before)
    offset += blocks_ * bytesOfVector(before);
  c_.evaluator.toInnermost();
  Value at = arith::MulIOp::create(b, loc, block, constantIndex(b, loc, bytesOfVector(number)));
  at = arith::AddIOp::create(b, loc, at, constantIndex(b, loc, offset));
  Value at64 = arith::IndexCastOp::create(b, loc, b.getI64Type(), at);
  return LLVM::GEPOp::create(b, loc, memory_.getType(), b.getI8Type(), memory_, ArrayRef<LLVM::GEPArg>{at64},
                             LLVM::GEPNoWrapFlags::inbounds);
}

void LaneValues::load() {
  OpBuilder& b = c_.builder();
  Location loc = b.getUnknownLoc();
  c_.evaluator.toInnermost();
  overBlocks(c_, c_.strategy.row_lanes, constantIndex(b, loc, 0), constantIndex(b, loc, blocks_), [&](Value block) {
    for (auto [number, node] : llvm::enumerate(c_.strategy.lane_values))
      if (Value value = c_.evaluator.evaluate(node)) {
        Value place = address(number, block);
        LLVM::StoreOp::create(b, loc, splat(b, value, lanes_), place, typeOf(number).getIntOrFloatBitWidth() / 8);
      }
  });
  c_.evaluator.toInnermost();
}

void LaneValues::bind(Value block) {
  OpBuilder& b = c_.builder();
  for (auto [number, node] : llvm::enumerate(c_.strategy.lane_values)) {
    Value place = address(number, block);
    Type type = typeOf(number);
    Value held =
        LLVM::LoadOp::create(b, b.getUnknownLoc(), withLanes(type, lanes_), place, type.getIntOrFloatBitWidth() / 8);
    c_.evaluator.bindValue(node, held);
  }
}

}  // namespace zefuse
