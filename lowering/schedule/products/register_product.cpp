// The tile of a product (gpu_product.h) without a matrix engine, on a device that copies to local memory while it
// works: both operands lie there with k outermost, and a work-item adds outer products of columns and rows to blocks of
// 4 x 4 in registers. A sub-group is 4 x 8 work-items, whose blocks lie side by side, so that its accesses of 16 bytes
// are one stretch of local memory; the lanes 16h + 2c + r stand in row 2h + r and column c, so that neighbouring lanes
// and both halves read the same of one of the operands.
#include "lowering/schedule/products/staged_product.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t side = 4;  // of a work-item's block
constexpr int64_t pad = 4;   // of a line: what is turned on the way goes to different banks

int64_t elementsOf(const ProductTile& tile, int64_t depth) { return depth * (tile.rows() + tile.columns() + 2 * pad); }

// Two groups share what an engine has of local memory, where its registers hold two, so that one multiplies while the
// other waits.
int64_t stagesAt(const ProductTile& tile, int64_t depth, const TargetDescription& target) {
  return std::min<int64_t>(4, target.local_memory_bytes / std::min<int64_t>(2, groupsTogether(tile)) /
                                  (4 * elementsOf(tile, depth)));
}

}  // namespace

int64_t registerDepth(const ProductTile& tile, const TargetDescription& target) {
  return stagesAt(tile, 16, target) >= 3 ? 16 : 8;
}

void emitRegisterProduct(OpBuilder& b, WorkGroup& group, const ProductTile& tile, const Product& product,
                         const TargetDescription& target, Value first_row, Value first_column, ProductStore store) {
  Location loc = b.getUnknownLoc();
  IndexMath i{b, loc};
  const int64_t a_line = tile.rows() + pad, b_line = tile.columns() + pad, b_start = tile.depth * a_line;
  const bool asynchronous = product.a.address || product.b.address;
  const int64_t stages = asynchronous ? std::max<int64_t>(2, stagesAt(tile, tile.depth, target)) : 2;
  const int64_t elements = elementsOf(tile, tile.depth);
  Value array = group.localArray(product.type, stages * elements);
  Value row = i.add(i.multiply(i.divide(group.lane(), 16), 2), i.modulo(group.lane(), 2));
  Value column = i.modulo(i.divide(group.lane(), 2), 8);
  row = i.add(i.multiply(row, side),
              i.multiply(i.divide(group.subgroupIndex(), tile.subgroups_n), tile.blocks_m * tile.block_rows));
  column = i.add(i.multiply(column, side),
                 i.multiply(i.modulo(group.subgroupIndex(), tile.subgroups_n), tile.blocks_n * tile.block_columns));

  auto vector = VectorType::get({side}, product.type);
  StagedProduct staged{stages, tile.depth, /*step=*/1, elements, asynchronous, {}, {}, {}};
  staged.copy = [&](Value start, Value k) {
    stageTile(b, group, product.a, product.type, {product.m, first_row, tile.rows(), 1},
              {product.k, k, tile.depth, a_line}, group.at(array, product.type, start), std::nullopt,
              /*asynchronous=*/true);
    stageTile(b, group, product.b, product.type, {product.k, k, tile.depth, b_line},
              {product.n, first_column, tile.columns(), 1}, group.at(array, product.type, i.add(start, b_start)),
              std::nullopt, /*asynchronous=*/true);
  };
  staged.load = [&](Value start, int64_t k) {
    SmallVector<Value> operands;
    auto load = [&](Value at, int64_t constant) {
      Value place = i.add(i.add(start, at), constant);
      operands.push_back(LLVM::LoadOp::create(b, loc, vector, group.at(array, product.type, place), 16));
    };
    for (int64_t block = 0; block < tile.blocks_m; ++block)
      load(row, k * a_line + block * tile.block_rows);
    for (int64_t block = 0; block < tile.blocks_n; ++block)
      load(column, b_start + k * b_line + block * tile.block_columns);
    return operands;
  };
  staged.multiply = [&](ArrayRef<Value> operands, SmallVector<Value>& totals) {
    for (int64_t of_row = 0; of_row < tile.blocks_m * side; ++of_row) {
      Value element = vector::ExtractOp::create(b, loc, operands[size_t(of_row / side)], of_row % side);
      element = splat(b, element, side);
      for (int64_t block = 0; block < tile.blocks_n; ++block) {
        Value& total = totals[size_t(of_row * tile.blocks_n + block)];
        total = math::FmaOp::create(b, loc, element, operands[size_t(tile.blocks_m + block)], total);
      }
    }
  };
  Value zero = arith::ConstantOp::create(b, loc, vector, cast<TypedAttr>(b.getZeroAttr(vector)));
  SmallVector<Value> totals(size_t(tile.blocks_m * side * tile.blocks_n), zero);
  totals = emitStagedProduct(b, group, product.k, staged, totals);
  for (int64_t of_row = 0; of_row < tile.blocks_m * side; ++of_row)
    for (int64_t block = 0; block < tile.blocks_n; ++block)
      store({i.add(i.add(first_row, row), of_row / side * tile.block_rows + of_row % side),
             i.add(i.add(first_column, column), block * tile.block_columns),
             totals[size_t(of_row * tile.blocks_n + block)], /*of_row=*/true});
}

}  // namespace zefuse
