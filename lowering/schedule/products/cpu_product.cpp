#include "lowering/schedule/products/cpu_product.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;

namespace zefuse {

CpuProduct::CpuProduct(const ScheduleContext& context, Type element)
    : c_(context), e_(context.evaluator), b_(context.builder()), loc_(b_.getUnknownLoc()), i_{b_, loc_},
      element_(element) {
  type_ = element_.isF64()           ? Type(b_.getF64Type())
          : isa<FloatType>(element_) ? Type(b_.getF32Type())
                                     : Type(b_.getIntegerType(std::max(16U, element_.getIntOrFloatBitWidth())));
}

CpuProduct::Tile CpuProduct::tileOf(std::optional<int64_t> rows, int64_t most_rows, int64_t lanes, int64_t vectors) {
  Tile tile{lanes, vectors, most_rows, register_rows};
  if (rows) {
    tile.sub_rows = std::clamp<int64_t>(*rows, 1, register_rows);
    tile.rows = std::min(most_rows, (*rows + tile.sub_rows - 1) / tile.sub_rows * tile.sub_rows);
  }
  return tile;
}

Value CpuProduct::buffer(int64_t count) {
  Value one = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(1));
  return LLVM::AllocaOp::create(b_, loc_, LLVM::LLVMPointerType::get(b_.getContext()),
                                LLVM::LLVMArrayType::get(type_, count), one, /*alignment=*/64);
}

Value CpuProduct::address(Value buffer, Value index) {
  Value at = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), index);
  return LLVM::GEPOp::create(b_, loc_, buffer.getType(), type_, buffer, ArrayRef<LLVM::GEPArg>{at},
                             LLVM::GEPNoWrapFlags::inbounds);
}

Value CpuProduct::load(Value buffer, Value index, int64_t lanes) {
  return LLVM::LoadOp::create(b_, loc_, withLanes(type_, unsigned(lanes)), address(buffer, index), unsigned(bytes()));
}

void CpuProduct::store(Value buffer, Value index, Value value) {
  LLVM::StoreOp::create(b_, loc_, value, address(buffer, index), unsigned(bytes()));
}

Value CpuProduct::widened(Value value) {
  if (element_.isF16() || element_.isBF16())
    return widenToF32(b_, loc_, value, element_);
  Type type = withLanes(type_, lanesOf(value));
  return value.getType() == type ? value : arith::ExtSIOp::create(b_, loc_, type, value).getResult();
}

Value CpuProduct::narrowed(Value value) {
  if (element_.isF16() || element_.isBF16())
    return narrowFromF32(b_, loc_, value, element_);
  Type type = withLanes(registerType(element_), lanesOf(value));
  return value.getType() == type ? value : arith::TruncIOp::create(b_, loc_, type, value).getResult();
}

Value CpuProduct::withBias(Value sum, const ProductNodes& nodes) {
  Value bias = nodes.bias();
  if (!bias)
    return sum;
  bias = splat(b_, widened(bias), lanesOf(sum));
  return isa<FloatType>(type_) ? arith::AddFOp::create(b_, loc_, sum, bias).getResult()
                               : arith::AddIOp::create(b_, loc_, sum, bias).getResult();
}

void CpuProduct::loop(Value from, Value to, int64_t step, llvm::function_ref<void(Value)> body) {
  e_.toInnermost();
  auto made = e_.openLoop(from, to, i_.number(step));
  body(made.index());
  e_.closeLoop(made);
  e_.toInnermost();
}

void CpuProduct::clear(Value buffer, Value from, int64_t count, int64_t lanes) {
  Value nothing = constantOfType(b_, loc_, b_.getZeroAttr(type_), unsigned(lanes));
  loop(i_.number(0), i_.number(count), lanes, [&](Value at) { store(buffer, i_.add(from, at), nothing); });
}

Value CpuProduct::multiplyAdd(Value a, Value b, Value sum) {
  if (isa<FloatType>(type_))
    return math::FmaOp::create(b_, loc_, a, b, sum);
  return arith::AddIOp::create(b_, loc_, sum, arith::MulIOp::create(b_, loc_, a, b));
}

void CpuProduct::multiply(const Tile& tile, Value packed_a, Strides strides, Value packed_b, Value depth, Value sums_at,
                          Value from) {
  multiply(
      tile, packed_a, strides,
      [&](Value k, int64_t v) {
        return load(packed_b, i_.add(i_.multiply(k, tile.columns()), v * tile.lanes), tile.lanes);
      },
      depth, sums_at, from);
}

void CpuProduct::multiply(const Tile& tile, Value packed_a, Strides strides, Columns columns_at, Value depth,
                          Value sums_at, Value from) {
  const int64_t columns = tile.columns(), vectors = tile.vectors;
  loop(i_.number(0), i_.number(tile.rows), tile.sub_rows, [&](Value sub) {
    auto place = [&](int64_t r, int64_t v) {
      return i_.add(from, i_.add(i_.multiply(i_.add(sub, r), columns), v * tile.lanes));
    };
    SmallVector<Value> sums;
    for (int64_t r = 0; r < tile.sub_rows; ++r)
      for (int64_t v = 0; v < vectors; ++v)
        sums.push_back(load(sums_at, place(r, v), tile.lanes));
    e_.toInnermost();
    auto walk = e_.openLoop(i_.number(0), depth, i_.number(1), sums);
    SmallVector<Value> next(walk.carried()), b;
    for (int64_t v = 0; v < vectors; ++v)
      b.push_back(columns_at(walk.index(), v));
    for (int64_t r = 0; r < tile.sub_rows; ++r) {
      Value at = i_.add(i_.multiply(i_.add(sub, r), strides.row), i_.multiply(walk.index(), strides.depth));
      Value a = splat(b_, load(packed_a, at, 1), unsigned(tile.lanes));
      for (int64_t v = 0; v < vectors; ++v)
        next[r * vectors + v] = multiplyAdd(a, b[v], next[r * vectors + v]);
    }
    ValueRange results = e_.closeLoop(walk, next);
    e_.toInnermost();
    for (int64_t r = 0; r < tile.sub_rows; ++r)
      for (int64_t v = 0; v < vectors; ++v)
        store(sums_at, place(r, v), results[r * vectors + v]);
  });
}

}  // namespace zefuse
