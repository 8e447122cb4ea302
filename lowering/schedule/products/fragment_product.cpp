// The tile of a product (gpu_product.h) on a matrix engine whose lanes hold fragments (MatrixForm::fragments).
//
// Local memory holds several steps along k ("stages"): while one is multiplied, the copies of the next ones are under
// way, and one barrier a step keeps them apart.
#include "lowering/schedule/products/fragment_side.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

class FragmentEmitter {
public:
  FragmentEmitter(OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product, int64_t stages)
      : b_(builder), loc_(builder.getUnknownLoc()), i_{b_, loc_}, group_(group), tile_(tile), product_(product),
        stages_(stages), a_side_{product.a, /*of_a=*/true, /*across_is_rows=*/true, tile.rows(), tile.depth},
        b_side_{product.b, /*of_a=*/false, /*across_is_rows=*/false, tile.columns(), tile.depth} {}

  void run(Value first_row, Value first_column, ProductStore store) {
    first_row_ = first_row;
    first_column_ = first_column;
    stage_ = a_side_.elements() + b_side_.elements();
    array_ = group_.localArray(b_.getI16Type(), stages_ * stage_);
    Value subgroup_m = i_.divide(group_.subgroupIndex(), tile_.subgroups_n);
    Value subgroup_n = i_.modulo(group_.subgroupIndex(), tile_.subgroups_n);
    Value row = i_.multiply(subgroup_m, tile_.blocks_m * tile_.block_rows);
    Value column = i_.multiply(subgroup_n, tile_.blocks_n * tile_.block_columns);
    Value a_lane = a_side_.lanesPlace(b_, group_, row);
    Value b_lane = i_.add(b_side_.lanesPlace(b_, group_, column), a_side_.elements());

    const int64_t ahead = stages_ - 1;
    for (int64_t stage = 0; stage < ahead; ++stage)
      copy(i_.number(stage), i_.number(stage * tile_.depth), stage * tile_.depth);
    auto vector = VectorType::get({4}, b_.getF32Type());
    Value zero = arith::ConstantOp::create(b_, loc_, vector, cast<TypedAttr>(b_.getZeroAttr(vector)));
    SmallVector<Value> carried(tile_.blocks_m * tile_.blocks_n, zero);
    carried.push_back(i_.number(0));  // the stage that is multiplied
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), product_.k.value, i_.number(tile_.depth), carried);
    {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      SmallVector<Value> totals(loop.getRegionIterArgs().drop_back());
      Value stage = loop.getRegionIterArgs().back();
      if (asynchronous())
        group_.waitForCopies(ahead - 1);
      group_.barrier();  // the stage is there for all, and nobody reads the one before it any more, which is next
      Value before = arith::SelectOp::create(b_, loc_, i_.equal(stage, i_.number(0)), i_.number(ahead),
                                             i_.subtract(stage, i_.number(1)));
      copy(before, i_.add(loop.getInductionVar(), ahead * tile_.depth), std::nullopt);
      Value start = i_.multiply(stage, stage_);
      multiply(i_.add(a_lane, start), i_.add(b_lane, start), totals);
      Value after = i_.add(stage, 1);
      totals.push_back(arith::SelectOp::create(b_, loc_, i_.equal(after, i_.number(stages_)), i_.number(0), after));
      scf::YieldOp::create(b_, loc_, totals);
    }
    // Lane 4g + t: row g, columns 2t and 2t + 1.
    Value my_row = i_.add(i_.add(first_row, row), i_.divide(group_.lane(), 4));
    Value my_column = i_.add(i_.add(first_column, column), i_.multiply(i_.modulo(group_.lane(), 4), 2));
    for (int64_t block_m = 0; block_m < tile_.blocks_m; ++block_m)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t block_n = 0; block_n < tile_.blocks_n; ++block_n) {
          Value total = loop.getResult(unsigned(block_m * tile_.blocks_n + block_n));
          store({i_.add(my_row, block_m * tile_.block_rows + half * tile_.block_rows / 2),
                 i_.add(my_column, block_n * tile_.block_columns), pairOf(b_, total, half * 2), /*of_row=*/true});
        }
  }

private:
  bool asynchronous() const { return bool(product_.a.address) || bool(product_.b.address); }

  // Both sides of the step at k, which may be none any more. `known`: k, where it is.
  void copy(Value stage, Value k, std::optional<int64_t> known) {
    {
      OpBuilder::InsertionGuard guard(b_);
      if (!known || !product_.k.constant || *known >= *product_.k.constant) {
        auto branch = scf::IfOp::create(b_, loc_, i_.less(k, product_.k.value), /*withElseRegion=*/false);
        b_.setInsertionPointToStart(branch.thenBlock());
      }
      Value start = i_.multiply(stage, stage_);
      a_side_.copy(b_, group_, at(start), product_.m, first_row_, product_.k, k);
      b_side_.copy(b_, group_, at(i_.add(start, a_side_.elements())), product_.n, first_column_, product_.k, k);
    }
    if (asynchronous())
      group_.commitCopies();  // an empty batch too: they are counted
  }

  Value at(Value place) { return group_.at(array_, b_.getI16Type(), place); }

  void multiply(Value a_place, Value b_place, SmallVector<Value>& totals) {
    for (int64_t k = 0; k < tile_.depth; k += engine_depth) {
      SmallVector<Value> rows, columns;
      for (int64_t block = 0; block < tile_.blocks_m; ++block)
        rows.push_back(a_side_.load(b_, group_, array_, a_place, block * tile_.block_rows, k));
      for (int64_t block = 0; block < tile_.blocks_n; block += 2) {  // two at once
        Value both = b_side_.load(b_, group_, array_, b_place, block * tile_.block_columns, k);
        columns.push_back(pairOf(b_, both, 0));
        columns.push_back(pairOf(b_, both, 2));
      }
      for (int64_t block_m = 0; block_m < tile_.blocks_m; ++block_m)
        for (int64_t block_n = 0; block_n < tile_.blocks_n; ++block_n) {
          Value& total = totals[block_m * tile_.blocks_n + block_n];
          total = group_.multiplyFragments(*product_.engine, rows[block_m], columns[block_n], total);
        }
    }
  }

  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  WorkGroup& group_;
  const ProductTile& tile_;
  const Product& product_;
  const int64_t stages_;
  const FragmentSide a_side_, b_side_;
  int64_t stage_ = 0;  // elements
  Value array_, first_row_, first_column_;
};

int64_t stageBytes(const ProductTile& tile, int64_t depth) {
  // The larger of the forms that the sides may have.
  return 2 * std::max((tile.rows() + tile.columns()) * (depth + engine_pad),
                      (tile.rows() + tile.columns() + 2 * engine_pad) * depth);
}

// Two groups share what an engine has of local memory, so that one multiplies while the other waits.
int64_t stagesAt(const ProductTile& tile, int64_t depth, const TargetDescription& target) {
  return std::min<int64_t>(4, target.local_memory_bytes / 2 / stageBytes(tile, depth));
}

}  // namespace

int64_t fragmentDepth(const ProductTile& tile, const TargetDescription& target) {
  // A line of 64 is 128 bytes, a whole line of the cache.
  return stagesAt(tile, 4 * engine_depth, target) >= 3 ? 4 * engine_depth : 2 * engine_depth;
}

int64_t stagesOf(const ProductTile& tile, const TargetDescription& target) {
  return std::max<int64_t>(2, stagesAt(tile, tile.depth, target));
}

void emitFragmentProduct(OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product,
                         int64_t stages, Value first_row, Value first_column, ProductStore store) {
  FragmentEmitter(builder, group, tile, product, stages).run(first_row, first_column, store);
}

}  // namespace zefuse
