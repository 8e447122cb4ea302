// The derivatives of attention as in gpu_attention_gradient.cpp, where lanes hold fragments. A sub-group's 16 rows are
// its own through both steps: P and dS come out of the first one's products as the second one's operands, so that what
// passes by is all that goes through local memory. It lies there once: the engine's loads turn it for the step that
// sums over its rows. The next rows' copies are under way while one is computed.
#include "lowering/schedule/products/fragment_attention_gradient.h"

#include <memory>
#include <numbers>

#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"
#include "lowering/schedule/products/attention_gradient_emitter.h"
#include "lowering/schedule/products/fragment_side.h"
#include "lowering/schedule/products/product_splits.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t own_rows = 16;       // of a sub-group: what one load gives of an operand
constexpr int64_t passing_stages = 2;  // in local memory

class FragmentGradient : AttentionGradientEmitter {
public:
  FragmentGradient(const AttentionGradientCall& call, CallKernel& kernel, const FragmentGradientTile& tile)
      : AttentionGradientEmitter(call, kernel, /*rows=*/1, lanes_of_fragments, tile.engine), tile_(tile),
        sources_{addressed(own(0)), addressed(own(1)), addressed(passing(0)), addressed(passing(1))},
        rows_{ownSide(0), ownSide(1)}, scored_{scoredSide(0), scoredSide(1)}, summed_{summedSide(0), summedSide(1)} {
    // exp(scale * x - sum) = 2^(factor * x - log2(e) * sum). An addend is not scaled.
    scale_first_ = call.mask && !call.mask.getElementType().isInteger(1);
    factor_ = (scale_first_ ? 1 : call.scale) * std::numbers::log2e;
  }

  AffineExpr tiles() const { return result(0).sizes[rank_ - 2].ceilDiv(tile_.rows()); }  // of a batch
  AffineExpr groups() const {
    AffineExpr groups = tiles();
    for (AffineExpr size : ArrayRef(result(0).sizes).drop_back(2))
      groups = groups * size;
    return groups;
  }
  // Of local memory.
  int64_t elements() const { return ownElements() + passing_stages * stageElements(); }
  int64_t sums() const { return call_.of_keys ? passing_stages * stageSums() : 0; }
  choice::AttentionGradient choice() const {
    return {call_.of_keys, tile_.rows(), tile_.subgroups, tile_.passing, /*engine=*/true};
  }

  // Group `number` of these, where the builder stands. `array`, `sums`: local memory of 16 bits, of f32.
  void emit(WorkGroup& group, Value number, Value array, Value sums) {
    group_ = &group;
    array_ = array;
    sums_array_ = sums;
    Value tile_count = k_.expression(tiles()), batch = i_.divide(number, tile_count);
    number = i_.modulo(number, tile_count);
    if (call_.causal && !call_.of_keys)  // those that see most keys first
      number = i_.subtract(i_.subtract(tile_count, i_.number(1)), number);
    first_own_ = i_.multiply(number, tile_.rows());
    const int64_t sharers = bindBatch(batch);

    Value mine = i_.multiply(group.subgroupIndex(), own_rows);
    pair_ = i_.multiply(i_.modulo(group.lane(), 4), 2);
    for (int64_t half = 0; half < 2; ++half)
      rows_of_lane_.push_back(i_.add(i_.add(i_.add(first_own_, mine), i_.divide(group.lane(), 4)), half * 8));
    own_places_[0] = rows_[0].lanesPlace(b_, group, mine);
    own_places_[1] = i_.add(rows_[1].lanesPlace(b_, group, mine), rows_[0].elements());
    for (int which : {0, 1}) {
      const int64_t start = ownElements() + (which == 0 ? 0 : scored_[0].elements());
      scored_places_[which] = i_.add(scored_[which].lanesPlace(b_, group, i_.number(0)), start);
      summed_places_[which] = i_.add(summed_[which].lanesPlace(b_, group, i_.number(0)), start);
    }

    for (int which : {0, 1})
      rows_[which].copy(b_, group, at(which == 0 ? i_.number(0) : i_.number(rows_[0].elements())), own_, first_own_,
                        sizeOf(which), i_.number(0));
    group.commitCopies();
    if (!call_.of_keys)
      for (Value row : rows_of_lane_)
        row_sums_.push_back(sumsOf(row, i_.less(row, queries_.value)));

    // Carried: the results' blocks, and the stage.
    SmallVector<Value> totals(size_t(blocksOf(0) + (call_.of_keys ? blocksOf(1) : 0)), zeros());
    store(overSharers(sharers, totals, [&](SmallVector<Value> before) { return pass(std::move(before)); }));
  }

private:
  static constexpr int64_t lanes_of_fragments = 32;
  using Sums = std::pair<Value, Value>;  // of a query: log2(e) * its log-sum-exp, and delta

  int64_t ownElements() const { return rows_[0].elements() + rows_[1].elements(); }
  int64_t stageElements() const { return scored_[0].elements() + scored_[1].elements(); }
  int64_t stageSums() const { return 2 * tile_.passing; }  // log-sum-exps, then deltas
  int64_t wide(int which) const { return which == 0 ? tile_.depth : tile_.columns; }
  int64_t blocksOf(int which) const { return wide(which) / 8; }
  Extent sizeOf(int which) { return {i_.number(headSize(which)), headSize(which)}; }
  Value at(Value place) { return group_->at(array_, b_.getI16Type(), place); }
  Value times(Value x, Value y) { return arith::MulFOp::create(b_, loc_, x, y); }
  Value part(Value vector, int64_t number) { return vector::ExtractOp::create(b_, loc_, vector, number); }
  Value zeros() {
    auto vector = VectorType::get({4}, f32_);
    return arith::ConstantOp::create(b_, loc_, vector, cast<TypedAttr>(b_.getZeroAttr(vector)));
  }

  // With addresses where they are multiples of a run.
  ProductSource addressed(const StridedTensor& tensor) {
    ProductSource made = source(tensor);
    if (isMultiple(tensor, made.run))
      made.address = [this, &tensor](Value row, Value column, int64_t) {
        return k_.address(tensor, k_.offset(tensor, indices(tensor, row, column)));
      };
    return made;
  }
  // Whether each row begins at a multiple of so many elements.
  bool isMultiple(const StridedTensor& tensor, int64_t count) const {
    return isMultipleOf(tensor.offset, count) &&
           llvm::all_of(ArrayRef(tensor.strides).drop_back(),
                        [&](AffineExpr step) { return isMultipleOf(step, count); });
  }

  FragmentSide ownSide(int which) {
    return {sources_[which], /*of_a=*/true, /*across_is_rows=*/true, tile_.rows(), wide(which)};
  }
  // What passes as the columns of scores, summed over the head, and as the columns of a result, summed over its rows.
  FragmentSide scoredSide(int which) {
    return {sources_[2 + which], /*of_a=*/false, /*across_is_rows=*/true, tile_.passing, wide(which)};
  }
  FragmentSide summedSide(int which) {
    return {sources_[2 + which], /*of_a=*/false, /*across_is_rows=*/false, wide(which), tile_.passing};
  }

  Sums sumsOf(Value query, Value exists) {
    auto [sum, delta] = rowSums(query, exists);
    return {times(sum, scalar(std::numbers::log2e)), delta};
  }

  // Where they pass: the sums of this column and its neighbour, from the step's copies. Those of no query are 0.
  SmallVector<Sums> passingSums(Value stage, int64_t column) {
    Value place = i_.add(i_.add(i_.multiply(stage, stageSums()), pair_), column);
    auto pair = [&](int64_t on) -> Value {
      return LLVM::LoadOp::create(b_, loc_, VectorType::get({2}, f32_),
                                  group_->at(sums_array_, f32_, i_.add(place, on)), /*alignment=*/8);
    };
    Value logs = pair(0), deltas = pair(tile_.passing);
    SmallVector<Sums> sums;
    for (int64_t one = 0; one < 2; ++one) {
      Value sum = part(logs, one);
      Value sees = arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::UNE, sum, scalar(-INFINITY));
      sum = arith::SelectOp::create(b_, loc_, sees, times(sum, scalar(std::numbers::log2e)), scalar(0));
      sums.emplace_back(sum, part(deltas, one));
    }
    return sums;
  }

  void copySums(Value stage, Value first) {
    for (int64_t start = 0; start < tile_.passing; start += group_->size()) {
      OpBuilder::InsertionGuard guard(b_);
      Value number = i_.add(group_->item(), start);
      if (tile_.passing - start < group_->size()) {
        auto branch = scf::IfOp::create(b_, loc_, i_.less(number, i_.number(tile_.passing)), false);
        b_.setInsertionPointToStart(branch.thenBlock());
      }
      Value query = i_.add(first, number), exists = i_.less(query, queries_.value);
      for (unsigned which : {0U, 1U}) {
        const StridedTensor& tensor = k_.tensor(4 + which);
        Value to = i_.add(i_.add(i_.multiply(stage, stageSums()), number), int64_t(which) * tile_.passing);
        group_->copyWordToLocal(group_->at(sums_array_, f32_, to), k_.address(tensor, rowSumOffset(tensor, query)),
                                exists);
      }
    }
  }

  void copyStep(Value stage, Value first, Value end) {
    {
      OpBuilder::InsertionGuard guard(b_);
      auto branch = scf::IfOp::create(b_, loc_, i_.less(first, end), /*withElseRegion=*/false);
      b_.setInsertionPointToStart(branch.thenBlock());
      Value start = i_.add(i_.multiply(stage, stageElements()), ownElements());
      scored_[0].copy(b_, *group_, at(start), passing_, first, sizeOf(0), i_.number(0));
      scored_[1].copy(b_, *group_, at(i_.add(start, scored_[0].elements())), passing_, first, sizeOf(1), i_.number(0));
      if (call_.of_keys)
        copySums(stage, first);
    }
    group_->commitCopies();
  }

  SmallVector<Value> ownFragments() {
    SmallVector<Value> fragments;
    for (int which : {0, 1})
      for (int64_t k = 0; k < wide(which); k += engine_depth)
        fragments.push_back(rows_[which].load(b_, *group_, array_, own_places_[which], 0, k));
    return fragments;
  }

  // Adds all that passes.
  SmallVector<Value> pass(SmallVector<Value> carried) {
    // Query i sees keys 0..i. Of keys the steps before `even` have queries that see some; of queries those after it.
    Value start = i_.number(0), end = passing_.value, even = i_.number(0);
    const bool divides = passing_.constant && *passing_.constant % tile_.passing == 0;
    if (call_.causal && call_.of_keys) {
      start = i_.multiply(i_.divide(first_own_, tile_.passing), tile_.passing);
      even = i_.multiply(i_.divide(i_.add(first_own_, tile_.rows() + tile_.passing - 2), tile_.passing), tile_.passing);
      even = i_.smaller(even, i_.multiply(i_.divide(i_.add(end, tile_.passing - 1), tile_.passing), tile_.passing));
      even = i_.larger(even, start);
    } else {
      if (call_.causal)
        end = i_.smaller(end, i_.add(first_own_, tile_.rows()));
      even = call_.causal ? i_.smaller(end, i_.add(first_own_, 1)) : end;
      even = i_.multiply(i_.divide(even, tile_.passing), tile_.passing);
    }
    copyStep(i_.number(0), start, end);
    group_->waitForCopies(0);
    group_->barrier();
    kept_.clear();
    if (tile_.keep_own)
      kept_ = ownFragments();
    carried.push_back(i_.number(0));
    auto steps = [&](Value first, Value last, bool causal, bool bounded) {
      auto loop = scf::ForOp::create(b_, loc_, first, last, i_.number(tile_.passing), carried);
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      SmallVector<Value> now(loop.getRegionIterArgs());
      Value stage = now.pop_back_val(), other = i_.subtract(i_.number(1), stage);
      copyStep(other, i_.add(loop.getInductionVar(), tile_.passing), end);
      step(loop.getInductionVar(), stage, causal, bounded, now);
      group_->waitForCopies(0);
      group_->barrier();  // the next step is there for all, and nobody reads this one's any more
      now.push_back(other);
      scf::YieldOp::create(b_, loc_, now);
      carried.assign(loop.getResults().begin(), loop.getResults().end());
    };
    if (call_.of_keys && call_.causal) {
      steps(start, even, /*causal=*/true, /*bounded=*/!divides);
      steps(even, end, /*causal=*/false, /*bounded=*/!divides);
    } else {
      steps(start, even, /*causal=*/false, /*bounded=*/false);
      if (call_.causal || !divides)
        steps(even, end, call_.causal, /*bounded=*/!divides);
    }
    carried.pop_back();
    return carried;
  }

  // totals += rows * side, at one k of 16: as many blocks of columns as there are totals.
  void multiply(const FragmentSide& side, Value place, int64_t k, Value rows, MutableArrayRef<Value> totals) {
    for (size_t block = 0; block < totals.size(); block += 2) {
      Value both = side.load(b_, *group_, array_, place, int64_t(block) * 8, k);
      for (size_t one = 0; one < 2; ++one)
        totals[block + one] =
            group_->multiplyFragments(*engine_, rows, pairOf(b_, both, int64_t(one) * 2), totals[block + one]);
    }
  }

  // The share of the rows from `first` on, in this stage of what passes. `now`: the results' blocks.
  void step(Value first, Value stage, bool causal, bool bounded, MutableArrayRef<Value> now) {
    Value start = i_.multiply(stage, stageElements());
    const size_t blocks = size_t(tile_.passing / 8);
    SmallVector<Value> products[2], own = tile_.keep_own ? kept_ : ownFragments();
    size_t fragment = 0;
    for (int which : {0, 1}) {
      products[which].assign(blocks, zeros());
      for (int64_t k = 0; k < wide(which); k += engine_depth)
        multiply(scored_[which], i_.add(scored_places_[which], start), k, own[fragment++], products[which]);
    }
    // Two blocks are the fragments of 16 rows by 16 that pass.
    for (size_t block = 0; block < blocks; block += 2) {
      SmallVector<Value> probabilities, gradients;
      for (size_t two = 0; two < 2; ++two) {
        const int64_t column = int64_t(block + two) * 8;
        SmallVector<Sums> sums;
        if (call_.of_keys)
          sums = passingSums(stage, column);
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t one = 0; one < 2; ++one) {
            const Sums& of = call_.of_keys ? sums[size_t(one)] : row_sums_[size_t(half)];
            const int64_t number = half * 2 + one;
            Value other = i_.add(i_.add(first, pair_), column + one);
            Value share = probability(part(products[0][block + two], number), rows_of_lane_[size_t(half)], other,
                                      of.first, causal, bounded);
            Value difference = arith::SubFOp::create(b_, loc_, part(products[1][block + two], number), of.second);
            probabilities.push_back(share);
            gradients.push_back(times(share, difference));
          }
      }
      const int64_t k = int64_t(block) * 8;
      multiply(summed_[0], i_.add(summed_places_[0], start), k, fragmentOf(gradients),
               now.take_front(size_t(blocksOf(0))));
      if (call_.of_keys)
        multiply(summed_[1], i_.add(summed_places_[1], start), k, fragmentOf(probabilities),
                 now.drop_front(size_t(blocksOf(0))));
    }
  }

  // An operand's registers from the 8 numbers of two blocks, rounded to its type.
  Value fragmentOf(ArrayRef<Value> numbers) {
    Value all = vector::FromElementsOp::create(b_, loc_, VectorType::get({8}, f32_), numbers);
    Value bits = narrowFromF32(b_, loc_, all, call_.q.getElementType());
    return vector::BitCastOp::create(b_, loc_, VectorType::get({4}, b_.getI32Type()), bits);
  }

  // Of an own row and one that passes. `causal`: there may be queries that do not see their key; `bounded`: rows that
  // do not exist.
  Value probability(Value product, Value mine, Value other, Value log_sum, bool causal, bool bounded) {
    Value query = call_.of_keys ? other : mine, key = call_.of_keys ? mine : other, exists;
    if (bounded)
      exists = i_.less(other, passing_.value);
    if (causal)
      exists = i_.both(exists, i_.less(key, i_.add(query, 1)));
    if (scale_first_)
      product = times(product, scalar(call_.scale));
    if (mask_) {
      Value mask = mask_(i_.smaller(query, i_.subtract(queries_.value, i_.number(1))),
                         i_.smaller(key, i_.subtract(keys_.value, i_.number(1))));
      if (mask.getType().isInteger(1))
        exists = i_.both(exists, mask);
      else
        product = arith::AddFOp::create(b_, loc_, product, mask);
    }
    Value power = arith::SubFOp::create(b_, loc_, times(product, scalar(factor_)), log_sum);
    Value share = group_->nativeExp2(power);
    return exists ? arith::SelectOp::create(b_, loc_, exists, share, scalar(0)).getResult() : share;
  }

  void store(ArrayRef<Value> totals) {
    for (int which : {0, 1}) {
      if (!multiplied(which))
        continue;
      const StridedTensor& to = result(which);
      const bool pairs =
          constantOf(to.strides[rank_ - 1]) == 1 && isMultiple(to, 2) && headSize(which) % 2 == 0;  // neighbours
      const int64_t lanes = pairs ? 2 : 1;
      for (int64_t half = 0; half < 2; ++half) {
        Value row = rows_of_lane_[size_t(half)];
        OpBuilder::InsertionGuard guard(b_);
        auto branch = scf::IfOp::create(b_, loc_, i_.less(row, own_.value), /*withElseRegion=*/false);
        b_.setInsertionPointToStart(branch.thenBlock());
        for (int64_t block = 0; block < blocksOf(which); ++block)
          for (int64_t one = 0; one < 2; one += lanes) {
            Value column = i_.add(pair_, block * 8 + one), total = totals[size_t(block)];
            Value value = pairs ? pairOf(b_, total, half * 2) : part(total, half * 2 + one);
            if (which == 0)
              value = times(value, splat(b_, scalar(call_.scale), unsigned(lanes)));
            OpBuilder::InsertionGuard inside(b_);
            if ((block + 1) * 8 > headSize(which)) {
              auto exists = scf::IfOp::create(b_, loc_, i_.less(column, i_.number(headSize(which))), false);
              b_.setInsertionPointToStart(exists.thenBlock());
            }
            k_.store(to, k_.offset(to, indices(to, row, column)), value);
          }
      }
      totals = totals.drop_front(size_t(blocksOf(which)));
    }
  }

  const FragmentGradientTile tile_;
  const ProductSource sources_[4];  // own, then passing
  const FragmentSide rows_[2], scored_[2], summed_[2];
  bool scale_first_ = false;
  double factor_ = 1;
  WorkGroup* group_ = nullptr;
  Value array_, sums_array_, first_own_, own_places_[2], scored_places_[2], summed_places_[2];
  Value pair_;                       // the first of the lane's columns in a block
  SmallVector<Value> rows_of_lane_;  // of what the group owns
  SmallVector<Sums> row_sums_;       // where those are queries
  SmallVector<Value> kept_;
};

}  // namespace

std::optional<FragmentGradientTile> chooseFragmentGradient(const AttentionGradientCall& call,
                                                           const TargetDescription& target) {
  if (target.matrix.form != MatrixForm::fragments)
    return std::nullopt;
  const MatrixOperation* engine = matrixOperation(call.q.getElementType(), call.k.getElementType(), target);
  if (!engine || call.v.getElementType() != call.q.getElementType() ||
      call.grad.getElementType() != call.q.getElementType())
    return std::nullopt;
  auto whole = [](int64_t size) { return (size + own_rows - 1) / own_rows * own_rows; };
  FragmentGradientTile tile{
      engine, call.of_keys, 4, 64, whole(call.q.getShape().back()), whole(call.v.getShape().back()), true};
  // Of keys, ptxas takes 255 registers where scores are looked at one by one.
  if (call.of_keys && (call.causal || call.mask))
    tile.passing = 32;
  // Of a lane: own operands, scores and their gradients, results.
  const int64_t registers = target.engine_accumulator_bytes * 5 / 4 / 4 / target.matrix.lanes;
  auto fits = [&] {
    return (tile.keep_own ? (tile.depth + tile.columns) / 4 : 0) + tile.passing + tile.depth / 2 +
               (tile.of_keys ? tile.columns / 2 : 0) <=
           registers;
  };
  const int64_t passing = (call.of_keys ? call.q : call.k).getShape().end()[-2];
  while (tile.passing > own_rows && !ShapedType::isDynamic(passing) && tile.passing / 2 >= passing)
    tile.passing /= 2;
  while (!fits()) {
    if (tile.keep_own && tile.passing <= 2 * own_rows)
      tile.keep_own = false;
    else if (tile.passing > own_rows)
      tile.passing /= 2;
    else
      return std::nullopt;
  }
  auto localBytes = [&] {
    int64_t bytes = 0;
    for (int64_t size : {tile.depth, tile.columns})
      bytes += bytesOfSide(tile.rows(), size) + passing_stages * bytesOfSide(tile.passing, size);
    if (tile.of_keys)  // with each query's log-sum-exp and delta
      bytes += passing_stages * tile.passing * 8;
    return bytes;
  };
  const auto& own = call.of_keys ? call.k : call.q;
  const int64_t rows = own.getShape().end()[-2];
  int64_t batches = 1;
  for (int64_t size : own.getShape().drop_back(2))
    batches = ShapedType::isDynamic(size) || batches < 0 ? -1 : batches * size;
  // Few rows get a small group, and so do few groups: each engine has one.
  const bool known = !ShapedType::isDynamic(rows);
  while (tile.subgroups > 1 && ((known && tile.rows() / 2 >= rows) || localBytes() > target.local_memory_bytes ||
                                (tile.subgroups > 2 && known && batches > 0 &&
                                 batches * ((rows + tile.rows() - 1) / tile.rows()) < target.engines)))
    tile.subgroups /= 2;
  if (localBytes() > target.local_memory_bytes)
    return std::nullopt;
  return tile;
}

bool joinsFragmentGradients(const AttentionGradientCall& call, const TargetDescription& target) {
  constexpr int64_t waves = 3;  // groups of an engine, of each kind
  for (bool of_keys : {false, true}) {
    AttentionGradientCall one = call;
    one.of_keys = of_keys;
    auto tile = chooseFragmentGradient(one, target);
    if (!tile)
      return false;
    const auto shape = (of_keys ? call.k : call.q).getShape();
    int64_t groups = 1;
    for (int64_t size : shape.drop_back(2))
      groups = ShapedType::isDynamic(size) || groups < 0 ? -1 : groups * size;
    const int64_t rows = shape.end()[-2];
    if (groups < 0 || ShapedType::isDynamic(rows) ||
        groups * ((rows + tile->rows() - 1) / tile->rows()) > waves * target.engines)
      return false;
  }
  return true;
}

void scheduleFragmentGradient(const AttentionGradientCall& call, CallKernel& kernel, const TargetDescription& target) {
  // Those of keys take longer: first.
  SmallVector<AttentionGradientCall, 2> calls{call};
  if (call.all) {
    calls.push_back(call);
    calls[0].of_keys = true;
  }
  SmallVector<FragmentGradientTile, 2> tiles;
  for (const AttentionGradientCall& one : calls)
    tiles.push_back(*chooseFragmentGradient(one, target));
  for (FragmentGradientTile& tile : tiles)
    tile.subgroups = std::min(tiles.front().subgroups, tiles.back().subgroups);

  OpBuilder& b = kernel.builder();
  const IndexMath i = kernel.math();
  LoweredKernel& launch = kernel.launch();
  WorkGroup group(b, kernel.function(), launch, tiles[0].subgroups * target.matrix.lanes, target.matrix.lanes);
  SmallVector<std::unique_ptr<FragmentGradient>, 2> kinds;
  int64_t elements = 0, sums = 0;
  launch.grain = 1;
  for (const auto& [one, tile] : llvm::zip_equal(calls, tiles)) {
    kinds.push_back(std::make_unique<FragmentGradient>(one, kernel, tile));
    elements = std::max(elements, kinds.back()->elements());
    sums = std::max(sums, kinds.back()->sums());
    launch.extent = launch.extent ? launch.extent + kinds.back()->groups() : kinds.back()->groups();
    launch.schedule.parts.push_back({kinds.back()->choice()});
  }
  Value array = group.localArray(b.getI16Type(), elements);
  Value sums_array = sums == 0 ? Value() : group.localArray(b.getF32Type(), sums);
  if (kinds.size() == 1)
    return kinds[0]->emit(group, group.group(), array, sums_array);
  Value first_of_second = kernel.expression(kinds[0]->groups());
  auto branch =
      scf::IfOp::create(b, b.getUnknownLoc(), i.less(group.group(), first_of_second), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  kinds[0]->emit(group, group.group(), array, sums_array);
  b.setInsertionPointToStart(branch.elseBlock());
  kinds[1]->emit(group, i.subtract(group.group(), first_of_second), array, sums_array);
}

}  // namespace zefuse
