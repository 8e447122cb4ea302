#include "lowering/schedule/gpu_product.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

ProductTile chooseTile(std::optional<int64_t> m, std::optional<int64_t> n, std::optional<int64_t> batches,
                       int64_t bytes, const TargetDescription& target) {
  constexpr ProductTile candidates[] = {{4, 4, 2, 2}, {4, 2, 2, 2}, {2, 2, 2, 2}, {2, 4, 1, 2},
                                        {2, 4, 1, 1}, {1, 8, 1, 1}, {1, 4, 1, 1}};
  double rows = double(m.value_or(256)), columns = double(n.value_or(256));
  const ProductTile* best = nullptr;
  double best_cost = 0;
  for (const ProductTile& tile : candidates) {
    int64_t accumulators = tile.blocks_m * ProductTile::block_rows * tile.blocks_n * ProductTile::block_columns * bytes;
    if (accumulators > target.accumulator_bytes || tile.items() > target.max_group_size)
      continue;
    double tiles = std::ceil(rows / double(tile.rows())) * std::ceil(columns / double(tile.columns())) *
                   double(batches.value_or(1));
    double at_once = std::max(1.0, double(target.resident_items) / double(tile.items()));
    // Of a sub-group, per k: multiplications, reads of local memory, its share of the copy.
    double work = double(tile.blocks_m * ProductTile::block_rows * tile.blocks_n) +
                  2.0 * double(tile.blocks_m + tile.blocks_n) +
                  4.0 * double(tile.rows() + tile.columns()) / double(tile.items());
    double cost = std::max(1.0, tiles / at_once) * work;
    if (!best || cost < best_cost * 0.999) {
      best = &tile;
      best_cost = cost;
    }
  }
  return best ? *best : ProductTile{1, 4, 1, 1};
}

namespace {

class TileEmitter {
public:
  TileEmitter(OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product)
      : b_(builder), loc_(builder.getUnknownLoc()), i_{builder, loc_}, group_(group), tile_(tile), product_(product) {}

  void run(Value first_row, Value first_column, ProductStore store) {
    a_ld_ = tile_.rows() + 4;  // a's columns start in different banks
    b_ld_ = tile_.columns();
    a_ = group_.localArray(product_.type, tile_.depth * a_ld_);
    b_local_ = group_.localArray(product_.type, tile_.depth * b_ld_);
    Value subgroup_m = i_.divide(group_.subgroupIndex(), tile_.subgroups_n);
    Value subgroup_n = i_.modulo(group_.subgroupIndex(), tile_.subgroups_n);
    Value row = i_.multiply(subgroup_m, tile_.blocks_m * ProductTile::block_rows);
    Value column = i_.add(i_.multiply(subgroup_n, tile_.blocks_n * ProductTile::block_columns), group_.lane());

    auto vector = VectorType::get({ProductTile::block_rows}, product_.type);
    Value zero = arith::ConstantOp::create(b_, loc_, vector, cast<TypedAttr>(b_.getZeroAttr(vector)));
    SmallVector<Value> totals(tile_.blocks_m * tile_.blocks_n, zero);
    auto loop =
        scf::ForOp::create(b_, loc_, i_.number(0), product_.k.value, i_.number(tile_.depth), ValueRange(totals));
    {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      Value k = loop.getInductionVar();
      stage(product_.a, product_.m, product_.k, first_row, k, tile_.rows(), tile_.depth, a_, 1, a_ld_);
      stage(product_.b, product_.k, product_.n, k, first_column, tile_.depth, tile_.columns(), b_local_, b_ld_, 1);
      group_.barrier();
      totals = multiply(row, column, SmallVector<Value>(loop.getRegionIterArgs()));
      group_.barrier();  // before the next step overwrites what is read here
      scf::YieldOp::create(b_, loc_, totals);
    }
    for (int64_t block_m = 0; block_m < tile_.blocks_m; ++block_m)
      for (int64_t block_n = 0; block_n < tile_.blocks_n; ++block_n)
        store(i_.add(first_row, i_.add(row, block_m * ProductTile::block_rows)),
              i_.add(first_column, i_.add(column, block_n * ProductTile::block_columns)),
              loop.getResult(unsigned(block_m * tile_.blocks_n + block_n)));
  }

private:
  // One step along k: c += a * b for all blocks.
  SmallVector<Value> multiply(Value row, Value column, SmallVector<Value> totals) {
    // A loop of its own: unrolled over the whole depth, the device's compiler reads so far ahead that it spills.
    constexpr int64_t unrolled = 4;
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), i_.number(tile_.depth), i_.number(unrolled), totals);
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(loop.getBody());
    totals = SmallVector<Value>(loop.getRegionIterArgs());
    auto vector = VectorType::get({ProductTile::block_rows}, product_.type);
    unsigned align = unsigned(bytesInMemory(product_.type));
    Value a_start = i_.add(row, i_.multiply(loop.getInductionVar(), a_ld_));
    Value b_start = i_.add(column, i_.multiply(loop.getInductionVar(), b_ld_));
    for (int64_t k = 0; k < unrolled; ++k) {
      SmallVector<Value> as, bs;
      for (int64_t block = 0; block < tile_.blocks_m; ++block) {
        Value place = i_.add(a_start, k * a_ld_ + block * ProductTile::block_rows);
        as.push_back(LLVM::LoadOp::create(b_, loc_, vector, group_.at(a_, product_.type, place), align));
      }
      for (int64_t block = 0; block < tile_.blocks_n; ++block) {
        Value place = i_.add(b_start, k * b_ld_ + block * ProductTile::block_columns);
        Value b = LLVM::LoadOp::create(b_, loc_, product_.type, group_.at(b_local_, product_.type, place), align);
        bs.push_back(splat(b_, b, ProductTile::block_rows));
      }
      for (int64_t block_m = 0; block_m < tile_.blocks_m; ++block_m)
        for (int64_t block_n = 0; block_n < tile_.blocks_n; ++block_n) {
          Value& total = totals[block_m * tile_.blocks_n + block_n];
          total = math::FmaOp::create(b_, loc_, as[block_m], bs[block_n], total);
        }
    }
    scf::YieldOp::create(b_, loc_, totals);
    return SmallVector<Value>(loop.getResults());
  }

  static bool divides(int64_t tile, const Extent& extent) { return extent.constant && *extent.constant % tile == 0; }

  // Copies [rows x columns] from (first_row, first_column) to local memory at row * row_step + column * column_step.
  // Neighbouring work-items copy neighbours in memory. What lies outside is zero.
  void stage(const ProductSource& source, const Extent& height, const Extent& width, Value first_row,
             Value first_column, int64_t rows, int64_t columns, Value array, int64_t row_step, int64_t column_step) {
    int64_t inner = source.columns_contiguous ? columns : rows, run = source.run;
    int64_t accesses = rows * columns / run, rounds = (accesses + tile_.items() - 1) / tile_.items();
    // More at once would keep more addresses than there are registers.
    constexpr int64_t together = 4;
    OpBuilder::InsertionGuard guard(b_);
    Value start = group_.item(), first_line = i_.divide(group_.item(), inner / run), base = i_.number(0);
    if (rounds > together && rounds % together == 0) {
      auto loop = scf::ForOp::create(b_, loc_, i_.number(0), i_.number(rounds * tile_.items()),
                                     i_.number(together * tile_.items()));
      b_.setInsertionPointToStart(loop.getBody());
      start = i_.add(start, loop.getInductionVar());
      base = i_.divide(loop.getInductionVar(), inner / run);
      rounds = together;
    }
    for (int64_t round = 0; round < rounds; ++round) {
      OpBuilder::InsertionGuard inside_branch(b_);
      Value number = i_.add(start, round * tile_.items());
      if (accesses % tile_.items() != 0) {
        auto branch = scf::IfOp::create(b_, loc_, i_.less(number, i_.number(accesses)), false);
        b_.setInsertionPointToStart(branch.thenBlock());
      }
      // A whole number of lines at once leaves every round in the same place of its line.
      int64_t line = inner / run;
      bool whole = tile_.items() % line == 0;
      Value along = i_.multiply(i_.modulo(whole ? group_.item() : number, line), run);
      Value across = whole ? i_.add(i_.add(first_line, base), round * (tile_.items() / line)) : i_.divide(number, line);
      Value in_row = source.columns_contiguous ? across : along, in_column = source.columns_contiguous ? along : across;
      Value row = i_.add(first_row, in_row), column = i_.add(first_column, in_column);
      Value inside;
      auto bound = [&](Value& index, const Extent& extent, int64_t tile, int64_t access) {
        if (divides(tile, extent))
          return;
        inside = i_.both(inside, i_.less(index, extent.value));
        index = i_.smaller(index, i_.subtract(extent.value, i_.number(access)));
      };
      bound(row, height, rows, source.columns_contiguous ? 1 : run);
      bound(column, width, columns, source.columns_contiguous ? run : 1);
      Value value = source.load(row, column, run);
      if (inside) {
        Value zero = constantOfType(b_, loc_, b_.getFloatAttr(product_.type, 0.0), unsigned(run));
        value = arith::SelectOp::create(b_, loc_, splat(b_, inside, unsigned(run)), value, zero);
      }
      int64_t step = source.columns_contiguous ? column_step : row_step;
      Value place = i_.add(i_.multiply(in_row, row_step), i_.multiply(in_column, column_step));
      unsigned align = unsigned(bytesInMemory(product_.type));
      if (run == 1 || step == 1) {
        LLVM::StoreOp::create(b_, loc_, value, group_.at(array, product_.type, place), align);
      } else {
        for (int64_t lane = 0; lane < run; ++lane)
          LLVM::StoreOp::create(b_, loc_, vector::ExtractOp::create(b_, loc_, value, lane),
                                group_.at(array, product_.type, i_.add(place, lane * step)), align);
      }
    }
  }

  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  WorkGroup& group_;
  const ProductTile& tile_;
  const Product& product_;
  int64_t a_ld_ = 0, b_ld_ = 0;
  Value a_, b_local_;
};

}  // namespace

void emitProduct(OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product, Value first_row,
                 Value first_column, ProductStore store) {
  TileEmitter(builder, group, tile, product).run(first_row, first_column, store);
}

}  // namespace zefuse
