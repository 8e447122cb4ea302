// zefuse.matmul in a kernel for the CPU, in the types that its library does not take: blocks of rows and columns whose
// parts of both operands are packed, in the accumulator's type, for some of what is summed over.
//
//   unit          `block_rows` rows of one tile of columns
//   tile          as many columns as two cache lines hold; a small matrix has narrower vectors
//   sub-tile      `register_rows` rows of a tile: what registers hold while k is walked
//
// Integers wrap around as their type does, sums of f16 are f32, and every sum has one order. Rows past the last are
// computed as the last one is and not stored; a last tile of columns overlaps the one before.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/products/product_nodes.h"
#include "lowering/schedule/products/products.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t block_rows = 32, register_rows = 8, block_depth = 128, tile_bytes = 128;

class CpuMatmul {
public:
  explicit CpuMatmul(const ScheduleContext& context)
      : c_(context), op_(cast<MatmulOp>(context.domain.product->op)), e_(context.evaluator), b_(context.builder()),
        loc_(b_.getUnknownLoc()), i_{b_, loc_}, nodes_(context), element_(op_.getType().getElementType()) {
    type_ = element_.isF64()                         ? Type(b_.getF64Type())
            : element_.isF16()                       ? Type(b_.getF32Type())
            : element_.getIntOrFloatBitWidth() == 64 ? Type(b_.getI64Type())
                                                     : Type(b_.getI32Type());
  }

  void run() {
    auto sizes = shapeOf(op_.getType());
    rank_ = unsigned(sizes.size());
    AffineExpr m = sizes[rank_ - 2], n = sizes[rank_ - 1], k = shapeOf(op_.getA().getType())[rank_ - 1];
    AffineExpr batches = c_.domain.space.constant(1);
    for (AffineExpr size : ArrayRef(sizes).drop_back(2))
      batches = batches * size;

    // The widest tile that the columns, as they are bound, allow.
    int64_t most = std::min<int64_t>(c_.target.vector_width, tile_bytes / bytes());
    auto known = constantOf(n);
    while (known && most > *known && most > 1)
      most /= 2;
    lanes_ = std::min(nodes_.lanesOfResult(rank_ - 1, most), nodes_.lanesOfOperand(1, rank_ - 1, most));
    vectors_ = std::max<int64_t>(1, tile_bytes / bytes() / lanes_);
    while (known && vectors_ > 1 && vectors_ * lanes_ > *known)
      vectors_ /= 2;
    vectors_ = std::min<int64_t>(vectors_, 2);
    const int64_t columns = lanes_ * vectors_;
    rows_ = block_rows;
    sub_rows_ = register_rows;
    if (auto rows = constantOf(m)) {
      sub_rows_ = std::clamp<int64_t>(*rows, 1, register_rows);
      rows_ = std::min(block_rows, (*rows + sub_rows_ - 1) / sub_rows_ * sub_rows_);
    }
    depth_lanes_ = nodes_.accessOf(0, rank_ - 2, rank_ - 1).dimension == rank_ - 1
                       ? nodes_.lanesOfOperand(0, rank_ - 1, lanesFor16())
                       : 1;

    AffineExpr tiles = n.ceilDiv(columns), blocks = m.ceilDiv(rows_);
    c_.launch.schedule.add(choice::PackedProduct{rows_, columns});
    packed_a_ = buffer(rows_ * block_depth);
    packed_b_ = buffer(block_depth * columns);
    sums_ = buffer(rows_ * columns);
    Value group = c_.workItem("_Z12get_group_idj");
    const double depth = double(constantOf(k).value_or(256));
    auto [begin, end] = shareOfGroup(c_, group, c_.domain.space.simplify(batches * tiles * blocks),
                                     double(rows_ * columns) * std::max(depth, 1.0) / 4);
    m_ = nodes_.expression(m);
    n_ = nodes_.expression(n);
    k_ = nodes_.expression(k);
    Value tile_count = nodes_.expression(tiles), block_count = nodes_.expression(blocks);
    auto units = e_.openLoop(begin, end, i_.number(1));
    Value block = i_.modulo(units.index(), block_count), rest = i_.divide(units.index(), block_count);
    Value tile = i_.modulo(rest, tile_count);
    nodes_.bindBatch(i_.divide(rest, tile_count));
    e_.toInnermost();
    Value row = i_.multiply(block, rows_), column = i_.multiply(tile, columns);
    if (known) {
      bool aligned = *known % columns == 0;
      emitBlock(row, aligned ? column : i_.smaller(column, i_.number(*known - columns)), aligned);
    } else {
      Value fits = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, n_, i_.number(columns));
      Value narrow = arith::XOrIOp::create(b_, loc_, fits, arith::ConstantOp::create(b_, loc_, b_.getBoolAttr(true)));
      e_.openIf(fits);
      emitBlock(row, i_.smaller(column, i_.subtract(n_, i_.number(columns))), false);
      e_.closeIf();
      e_.openIf(narrow);
      std::swap(lanes_, narrow_lanes_);
      int64_t vectors = std::exchange(vectors_, 1);
      auto loop = e_.openLoop(i_.number(0), n_, i_.number(1));
      emitBlock(row, loop.index(), true);
      e_.closeLoop(loop);
      std::swap(lanes_, narrow_lanes_);
      vectors_ = vectors;
      e_.closeIf();
    }
    e_.closeLoop(units);
  }

private:
  int64_t bytes() const { return type_.getIntOrFloatBitWidth() / 8; }
  int64_t lanesFor16() const { return std::min<int64_t>(c_.target.vector_width, block_depth); }

  Value buffer(int64_t count) {
    Value one = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(1));
    return LLVM::AllocaOp::create(b_, loc_, LLVM::LLVMPointerType::get(b_.getContext()),
                                  LLVM::LLVMArrayType::get(type_, count), one, /*alignment=*/64);
  }

  Value address(Value buffer, Value index) {
    Value at = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), index);
    return LLVM::GEPOp::create(b_, loc_, buffer.getType(), type_, buffer, ArrayRef<LLVM::GEPArg>{at},
                               LLVM::GEPNoWrapFlags::inbounds);
  }
  Value load(Value buffer, Value index, int64_t lanes) {
    return LLVM::LoadOp::create(b_, loc_, withLanes(type_, unsigned(lanes)), address(buffer, index), unsigned(bytes()));
  }
  void store(Value buffer, Value index, Value value) {
    LLVM::StoreOp::create(b_, loc_, value, address(buffer, index), unsigned(bytes()));
  }

  // From a register of this type to the accumulator's.
  Value widened(Value value, Type element) {
    if (element.isF16())
      return widenToF32(b_, loc_, value, element);
    Type type = withLanes(type_, lanesOf(value));
    return value.getType() == type ? value : arith::ExtSIOp::create(b_, loc_, type, value).getResult();
  }
  Value narrowed(Value value) {
    if (element_.isF16())
      return narrowFromF32(b_, loc_, value, element_);
    Type type = withLanes(registerType(element_), lanesOf(value));
    return value.getType() == type ? value : arith::TruncIOp::create(b_, loc_, type, value).getResult();
  }

  Value multiplyAdd(Value a, Value b, Value sum) {
    if (isa<FloatType>(type_))
      return math::FmaOp::create(b_, loc_, a, b, sum);
    return arith::AddIOp::create(b_, loc_, sum, arith::MulIOp::create(b_, loc_, a, b));
  }

  void loop(Value from, Value to, int64_t step, llvm::function_ref<void(Value)> body) {
    e_.toInnermost();
    auto made = e_.openLoop(from, to, i_.number(step));
    body(made.index());
    e_.closeLoop(made);
    e_.toInnermost();
  }

  void emitBlock(Value row, Value column, bool aligned) {
    const int64_t columns = lanes_ * vectors_;
    Value zero = i_.number(0);
    Value nothing = constantOfType(b_, loc_, b_.getZeroAttr(type_), unsigned(lanes_));
    loop(zero, i_.number(rows_ * columns), lanes_, [&](Value at) { store(sums_, at, nothing); });
    loop(zero, k_, block_depth, [&](Value first) {
      Value depth = i_.smaller(i_.number(block_depth), i_.subtract(k_, first));
      pack(row, column, first, depth, aligned);
      loop(zero, i_.number(rows_), sub_rows_, [&](Value sub) { multiply(sub, depth); });
    });
    Value last = i_.smaller(i_.number(rows_), i_.subtract(m_, row));
    loop(zero, last, 1, [&](Value r) {
      nodes_.bindResult(rank_ - 2, i_.add(row, r));
      for (int64_t v = 0; v < vectors_; ++v) {
        e_.toInnermost();
        nodes_.open(nullptr);
        nodes_.bindResult(rank_ - 1, i_.add(column, v * lanes_), lanes_, aligned);
        e_.toInnermost();
        finish(load(sums_, i_.add(i_.multiply(r, columns), v * lanes_), lanes_));
        nodes_.close();
      }
    });
  }

  void pack(Value row, Value column, Value first, Value depth, bool aligned) {
    const int64_t columns = lanes_ * vectors_;
    Value zero = i_.number(0);
    loop(zero, depth, 1, [&](Value k) {
      for (int64_t v = 0; v < vectors_; ++v) {
        Value at = i_.add(column, v * lanes_), deep = i_.add(first, k);
        Value value = nodes_.load(1, {{rank_ - 2, deep}, {rank_ - 1, at}}, {rank_ - 1, lanes_, aligned});
        store(packed_b_, i_.add(i_.multiply(k, columns), v * lanes_), widened(value, element_));
      }
    });
    loop(zero, i_.number(rows_), 1, [&](Value r) {
      Value present = i_.smaller(i_.add(row, r), i_.subtract(m_, i_.number(1)));
      auto copy = [&](Value k, int64_t lanes) {
        Value value = nodes_.load(0, {{rank_ - 2, present}, {rank_ - 1, i_.add(first, k)}}, {rank_ - 1, lanes});
        store(packed_a_, i_.add(i_.multiply(r, block_depth), k), widened(value, element_));
      };
      Value whole = i_.multiply(i_.divide(depth, depth_lanes_), depth_lanes_);
      loop(zero, whole, depth_lanes_, [&](Value k) { copy(k, depth_lanes_); });
      if (depth_lanes_ > 1)
        loop(whole, depth, 1, [&](Value k) { copy(k, 1); });
    });
  }

  // The rows from `sub` on: their sums += packed a * packed b.
  void multiply(Value sub, Value depth) {
    const int64_t columns = lanes_ * vectors_;
    auto place = [&](int64_t r, int64_t v) { return i_.add(i_.multiply(i_.add(sub, r), columns), v * lanes_); };
    SmallVector<Value> sums;
    for (int64_t r = 0; r < sub_rows_; ++r)
      for (int64_t v = 0; v < vectors_; ++v)
        sums.push_back(load(sums_, place(r, v), lanes_));
    e_.toInnermost();
    auto loop = e_.openLoop(i_.number(0), depth, i_.number(1), sums);
    SmallVector<Value> next(loop.carried()), b;
    for (int64_t v = 0; v < vectors_; ++v)
      b.push_back(load(packed_b_, i_.add(i_.multiply(loop.index(), columns), v * lanes_), lanes_));
    for (int64_t r = 0; r < sub_rows_; ++r) {
      Value at = i_.add(i_.multiply(i_.add(sub, r), block_depth), loop.index());
      Value a = splat(b_, load(packed_a_, at, 1), unsigned(lanes_));
      for (int64_t v = 0; v < vectors_; ++v)
        next[r * vectors_ + v] = multiplyAdd(a, b[v], next[r * vectors_ + v]);
    }
    ValueRange results = e_.closeLoop(loop, next);
    e_.toInnermost();
    for (int64_t r = 0; r < sub_rows_; ++r)
      for (int64_t v = 0; v < vectors_; ++v)
        store(sums_, place(r, v), results[r * vectors_ + v]);
  }

  void finish(Value sum) {
    if (double alpha = op_.getAlpha().convertToFloat(); alpha != 1)
      sum = arith::MulFOp::create(b_, loc_, sum, constantOfType(b_, loc_, b_.getFloatAttr(type_, alpha), lanesOf(sum)));
    if (Value bias = nodes_.bias()) {
      bias = splat(b_, widened(bias, element_), lanesOf(sum));
      sum = isa<FloatType>(type_) ? arith::AddFOp::create(b_, loc_, sum, bias).getResult()
                                  : arith::AddIOp::create(b_, loc_, sum, bias).getResult();
    }
    nodes_.store(narrowed(sum));
  }

  const ScheduleContext& c_;
  MatmulOp op_;
  Evaluator& e_;
  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  ProductNodes nodes_;
  Type element_, type_;  // of the result; of sums
  unsigned rank_ = 0;
  int64_t lanes_ = 1, vectors_ = 1, narrow_lanes_ = 1, rows_ = 1, sub_rows_ = 1, depth_lanes_ = 1;
  Value packed_a_, packed_b_, sums_;  // packed_a: a row's elements side by side; the others: a tile's columns
  Value m_, n_, k_;
};

}  // namespace

void scheduleCpuMatmul(const ScheduleContext& context) { CpuMatmul(context).run(); }

}  // namespace zefuse
