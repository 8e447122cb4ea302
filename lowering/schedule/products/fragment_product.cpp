// The tile of a product (gpu_product.h) on a matrix engine whose lanes hold fragments (MatrixForm::fragments), in
// stages (staged_product.h).
//
// Of f32 (ProductTile::wide) each operand is the sum of two numbers of tf32, and of the four products the three that
// count are added, small ones first; what is left out is 2^-21 of a product. The engine cuts its sums off and does not
// round them: it adds no more than a stage's, and ordinary additions the rest. What is not finite is multiplied once,
// by the other operand as it is, so that infinities and NaN come out as those of f32.
#include "lowering/schedule/products/fragment_side.h"
#include "lowering/schedule/products/staged_product.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t wide_depth = 8;  // of one operation

int64_t stageBytes(const ProductTile& tile, int64_t depth) {
  return bytesOfSide(tile.rows(), depth, tile.wide) + bytesOfSide(tile.columns(), depth, tile.wide);
}

// Two groups share what an engine has of local memory, where its registers hold two, so that one multiplies while the
// other waits.
int64_t stagesAt(const ProductTile& tile, int64_t depth, const TargetDescription& target) {
  return std::min<int64_t>(4, target.local_memory_bytes / std::min<int64_t>(2, groupsTogether(tile)) /
                                  stageBytes(tile, depth));
}

}  // namespace

int64_t fragmentDepth(const ProductTile& tile, const TargetDescription& target) {
  // A line of 64, or 32 of f32, is 128 bytes, a whole line of the cache.
  if (tile.wide)
    return 4 * wide_depth;
  return stagesAt(tile, 4 * engine_depth, target) >= 3 ? 4 * engine_depth : 2 * engine_depth;
}

int64_t stagesOf(const ProductTile& tile, const TargetDescription& target) {
  return std::max<int64_t>(2, stagesAt(tile, tile.depth, target));
}

namespace {

// Operands of a step, numbers of f32, as what the engine multiplies.
struct Split {
  Value whole;   // in tf32
  Value finite;  // the same where it is finite, else 0
  Value rest;    // what `whole` lacks; 0 where that is not finite
};

Split splitOf(OpBuilder& b, Value bits) {
  Location loc = b.getUnknownLoc();
  const Type integers = bits.getType(), reals = withLanes(b.getF32Type(), lanesOf(bits));
  auto splatOf = [&](TypedAttr value) { return splat(b, arith::ConstantOp::create(b, loc, value), lanesOf(bits)); };
  auto real = [&](Value value) { return arith::BitcastOp::create(b, loc, reals, value).getResult(); };
  // Cut off, not rounded: the largest numbers stay finite.
  Value whole = arith::AndIOp::create(b, loc, bits, splatOf(b.getI32IntegerAttr(~0x1fff)));
  Value rest = arith::SubFOp::create(b, loc, real(bits), real(whole));
  Value finite = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::ORD, rest, rest);
  Value zero = splatOf(b.getI32IntegerAttr(0));
  return {whole, arith::SelectOp::create(b, loc, finite, whole, zero),
          arith::SelectOp::create(b, loc, finite, arith::BitcastOp::create(b, loc, integers, rest), zero)};
}

}  // namespace

void emitFragmentProduct(OpBuilder& b, WorkGroup& group, const ProductTile& tile, const Product& product,
                         int64_t stages, Value first_row, Value first_column, ProductStore store) {
  Location loc = b.getUnknownLoc();
  IndexMath i{b, loc};
  const FragmentSide a_side{product.a, /*of_a=*/true, /*across_is_rows=*/true, tile.rows(), tile.depth, tile.wide};
  const FragmentSide b_side{product.b, /*of_a=*/false, /*across_is_rows=*/false, tile.columns(), tile.depth, tile.wide};
  const int64_t elements = a_side.elements() + b_side.elements();
  const Type element = a_side.type(b);
  Value array = group.localArray(element, stages * elements);
  Value row = i.multiply(i.divide(group.subgroupIndex(), tile.subgroups_n), tile.blocks_m * tile.block_rows);
  Value column = i.multiply(i.modulo(group.subgroupIndex(), tile.subgroups_n), tile.blocks_n * tile.block_columns);
  Value a_lane = a_side.lanesPlace(b, group, row);
  Value b_lane = i.add(b_side.lanesPlace(b, group, column), a_side.elements());

  const bool asynchronous = product.a.address || product.b.address;
  StagedProduct staged{stages, tile.depth, tile.wide ? wide_depth : engine_depth, elements, asynchronous, tile.wide, {},
                       {},     {}};
  staged.copy = [&](Value start, Value k) {
    auto at = [&](Value place) { return group.at(array, element, place); };
    a_side.copy(b, group, at(start), product.m, first_row, product.k, k);
    b_side.copy(b, group, at(i.add(start, a_side.elements())), product.n, first_column, product.k, k);
  };
  staged.load = [&](Value start, int64_t k) {
    SmallVector<Value> operands;
    for (int64_t block = 0; block < tile.blocks_m; ++block)
      operands.push_back(a_side.load(b, group, array, i.add(start, a_lane), block * tile.block_rows, k));
    for (int64_t block = 0; block < tile.blocks_n; block += 2) {  // two at once
      Value both = b_side.load(b, group, array, i.add(start, b_lane), block * tile.block_columns, k);
      operands.push_back(pairOf(b, both, 0));
      operands.push_back(pairOf(b, both, 2));
    }
    return operands;
  };
  auto multiplyWide = [&](ArrayRef<Value> operands, SmallVector<Value>& totals) {
    SmallVector<Split> all_rows;
    for (int64_t block = 0; block < tile.blocks_m; ++block)
      all_rows.push_back(splitOf(b, operands[size_t(block)]));
    for (int64_t first = 0; first < tile.blocks_n; first += 2) {  // few at a time: registers
      const Split all_columns[2] = {splitOf(b, operands[size_t(tile.blocks_m + first)]),
                                    splitOf(b, operands[size_t(tile.blocks_m + first + 1)])};
      for (int term = 0; term < 3; ++term)
        for (int64_t one = 0; one < 2; ++one)
          for (auto [block, rows] : llvm::enumerate(all_rows)) {
            const Split& columns = all_columns[one];
            Value& total = totals[block * size_t(tile.blocks_n) + size_t(first + one)];
            Value a = term == 0 ? rows.rest : term == 1 ? rows.finite : rows.whole;
            Value other = term == 0 ? columns.finite : term == 1 ? columns.rest : columns.whole;
            total = group.multiplyFragments(*product.engine, a, other, total);
          }
    }
  };
  staged.multiply = [&](ArrayRef<Value> operands, SmallVector<Value>& totals) {
    if (tile.wide) {
      multiplyWide(operands, totals);
      return;
    }
    for (int64_t block_m = 0; block_m < tile.blocks_m; ++block_m)
      for (int64_t block_n = 0; block_n < tile.blocks_n; ++block_n) {
        Value& total = totals[size_t(block_m * tile.blocks_n + block_n)];
        total = group.multiplyFragments(*product.engine, operands[size_t(block_m)],
                                        operands[size_t(tile.blocks_m + block_n)], total);
      }
  };
  auto vector = VectorType::get({4}, b.getF32Type());
  Value zero = arith::ConstantOp::create(b, loc, vector, cast<TypedAttr>(b.getZeroAttr(vector)));
  SmallVector<Value> totals(size_t(tile.blocks_m * tile.blocks_n), zero);
  totals = emitStagedProduct(b, group, product.k, staged, totals);
  // Lane 4g + t: row g, columns 2t and 2t + 1.
  Value my_row = i.add(i.add(first_row, row), i.divide(group.lane(), 4));
  Value my_column = i.add(i.add(first_column, column), i.multiply(i.modulo(group.lane(), 4), 2));
  for (int64_t block_m = 0; block_m < tile.blocks_m; ++block_m)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t block_n = 0; block_n < tile.blocks_n; ++block_n) {
        Value total = totals[size_t(block_m * tile.blocks_n + block_n)];
        store({i.add(my_row, block_m * tile.block_rows + half * tile.block_rows / 2),
               i.add(my_column, block_n * tile.block_columns), pairOf(b, total, half * 2), /*of_row=*/true});
      }
}

}  // namespace zefuse
