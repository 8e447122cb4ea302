// Attention as in gpu_attention.cpp, where lanes hold fragments (fragment_rows.h): the squares of a sub-group share
// what it loads of keys and values, and nothing but keys and values goes through local memory, where the next step's
// copies are under way while one is computed.
//
// f32 is multiplied as torch's own kernel does it on these devices (its memory-efficient one): each operand is the sum
// of two numbers of tf32, and of the four products the three that count are added, small ones first. What is left out
// is 2^-22 of a product. The engine cuts its sums off and does not round them, which over thousands of keys is an error
// that grows with their number: it adds no more than a step's keys, or 64 elements of a head, and ordinary additions
// the rest.
#include "lowering/schedule/products/fragment_attention.h"

#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/fragment_rows.h"
#include "lowering/schedule/products/fragment_side.h"
#include "lowering/schedule/products/product_splits.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t square = 16;       // rows; what one load gives of an operand
constexpr int64_t stages = 2;        // of keys and values in local memory
constexpr size_t wide_together = 4;  // blocks of f32: sums that wait for each other are apart
constexpr int64_t longest_sum = 64;  // of the engine's, where its sums are to be those of f32

Type typeOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

class FragmentAttention : FragmentRows {
public:
  FragmentAttention(const ScheduleContext& context, AttentionOp op, const FragmentAttentionTile& tile)
      : FragmentRows(context, op, tile.engine), tile_(tile), sources_{source(0), source(1), source(2)},
        query_{sources_[0], /*of_a=*/true, /*across_is_rows=*/true, tile.rows(), tile.depth, tile.wide()},
        key_{sources_[1], /*of_a=*/false, /*across_is_rows=*/true, tile.keys, tile.depth, tile.wide()},
        value_{sources_[2], /*of_a=*/false, /*across_is_rows=*/false,  tile.columns,
               tile.keys,   tile.wide(),    /*neighbours=*/tile.wide()} {}

  void run() {
    describeLaunch(choice::Attention{tile_.rows(), tile_.subgroups, tile_.keys, true});
    WorkGroup group(b_, c_.function, c_.launch, tile_.subgroups * lanes_, lanes_);
    Value mine = i_.multiply(group.subgroupIndex(), tile_.squares * square);
    Value first_row = beginRows(group, tile_.rows(), mine, tile_.squares);

    stage_ = key_.elements() + value_.elements();
    array_ = group.localArray(query_.type(b_), query_.elements() + stages * stage_);
    Value query_place = query_.lanesPlace(b_, group, mine);
    key_place_ = key_.lanesPlace(b_, group, i_.number(0));
    value_place_ = i_.add(value_.lanesPlace(b_, group, i_.number(0)), key_.elements());

    query_.copy(b_, group, array_, queries_, first_row, all_depth_, i_.number(0));
    copyStep(i_.number(0), i_.number(0));
    group.waitForCopies(0);
    group.barrier();
    SmallVector<SmallVector<Value>> kept;
    auto queries = [&](int64_t k) {
      SmallVector<Value> loaded;
      for (int64_t each = 0; each < tile_.squares; ++each)
        loaded.push_back(query_.load(b_, group, array_, query_place, each * square, k));
      return loaded;
    };
    for (int64_t k = 0; tile_.keep_queries && k < tile_.depth; k += engine_->k)
      kept.push_back(queries(k));

    // Carried: per row the base of its powers and this lane's part of the sum; the result's blocks; the stage.
    const size_t rows = rows_of_lane_.size();
    SmallVector<Value> carried(rows, scalar(-INFINITY));
    carried.append(rows, scalar(0));
    carried.append(tile_.squares * tile_.columns / 8, zeros());
    carried.push_back(i_.number(0));
    auto steps = [&](Value first, Value last, bool whole) {
      auto loop = scf::ForOp::create(b_, loc_, first, last, i_.number(tile_.keys), carried);
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      SmallVector<Value> now(loop.getRegionIterArgs());
      Value stage = now.pop_back_val(), other = i_.subtract(i_.number(1), stage);
      copyStep(other, i_.add(loop.getInductionVar(), tile_.keys));
      Value start = i_.add(i_.multiply(stage, stage_), query_.elements());
      SmallVector<Value> scores(tile_.squares * tile_.keys / 8, zeros());
      for (int64_t first = 0; first < tile_.depth; first += longest_sum) {
        SmallVector<Value> part(scores.size(), zeros());
        for (int64_t k = first; k < std::min(first + longest_sum, tile_.depth); k += engine_->k)
          multiply(key_, i_.add(key_place_, start), k, tile_.keep_queries ? kept[k / engine_->k] : queries(k),
                   tile_.wide() ? part : scores);
        for (auto [score, more] : llvm::zip(scores, part))
          if (tile_.wide())
            score = first == 0 ? more : plus(score, more);
      }
      step(loop.getInductionVar(), start, whole, scores, now);
      group.waitForCopies(0);
      group.barrier();  // the next step is there for all, and nobody reads this one's any more
      now.push_back(other);
      scf::YieldOp::create(b_, loc_, now);
      carried.assign(loop.getResults().begin(), loop.getResults().end());
    };
    // Steps whose keys all rows see, then the others.
    const bool all_whole = !op_.getCausal() && keys_.constant && *keys_.constant % tile_.keys == 0;
    const bool none_whole = keys_.constant && *keys_.constant < tile_.keys;
    Value whole = i_.number(0);
    if (!none_whole) {
      whole = op_.getCausal() ? i_.smaller(keys_.value, i_.add(first_row, 1)) : keys_.value;
      whole = i_.multiply(i_.divide(whole, tile_.keys), tile_.keys);
      steps(i_.number(0), whole, /*whole=*/true);
    }
    if (!all_whole)
      steps(whole, end_, /*whole=*/false);
    const ValueRange done(carried);
    finish(done.take_front(rows), done.slice(rows, rows), done.drop_front(2 * rows).drop_back());
  }

private:
  Value zeros() {
    auto vector = VectorType::get({4}, f32_);
    return arith::ConstantOp::create(b_, loc_, vector, cast<TypedAttr>(b_.getZeroAttr(vector)));
  }
  Value at(Value place) { return group_->at(array_, query_.type(b_), place); }

  // Keys and values from `key` on, if there are any.
  void copyStep(Value stage, Value key) {
    {
      OpBuilder::InsertionGuard guard(b_);
      auto branch = scf::IfOp::create(b_, loc_, i_.less(key, end_), /*withElseRegion=*/false);
      b_.setInsertionPointToStart(branch.thenBlock());
      Value start = i_.add(i_.multiply(stage, stage_), query_.elements());
      key_.copy(b_, *group_, at(start), keys_, key, all_depth_, i_.number(0));
      value_.copy(b_, *group_, at(i_.add(start, key_.elements())), all_columns_, i_.number(0), keys_, key);
    }
    group_->commitCopies();
  }

  // totals += rows * side, at one k of the engine's: of each square of rows as many blocks of totals.
  void multiply(const FragmentSide& side, Value place, int64_t k, ArrayRef<Value> rows, MutableArrayRef<Value> totals) {
    const size_t blocks = totals.size() / rows.size();
    if (tile_.wide()) {
      multiplyWide(side, place, k, rows, totals);
      return;
    }
    for (size_t block = 0; block < blocks; block += 2) {
      Value both = side.load(b_, *group_, array_, place, int64_t(block) * 8, k);
      for (size_t one = 0; one < 2; ++one)
        for (size_t each = 0; each < rows.size(); ++each)
          add(totals[each * blocks + block + one], rows[each], pairOf(b_, both, int64_t(one) * 2));
    }
  }
  void add(Value& total, Value rows, Value columns) {
    total = group_->multiplyFragments(*engine_, rows, columns, total);
  }

  // The nearest number of tf32, and what is left of it: bits of both, of which the engine takes the first 19.
  std::pair<Value, Value> split(Value bits) {
    auto number = [&](int32_t value) {
      return splat(b_, arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(value)), lanesOf(bits));
    };
    Value large = arith::AddIOp::create(b_, loc_, bits, number(1 << 12));
    large = arith::AndIOp::create(b_, loc_, large, number(~0x1fff));
    auto real = [&](Value value) { return arith::BitcastOp::create(b_, loc_, withLanes(f32_, lanesOf(bits)), value); };
    Value small = arith::SubFOp::create(b_, loc_, real(bits), real(large));
    return {large, arith::BitcastOp::create(b_, loc_, bits.getType(), small)};
  }

  // `across`: the first of the side's that are multiplied.
  void multiplyWide(const FragmentSide& side, Value place, int64_t k, ArrayRef<Value> rows,
                    MutableArrayRef<Value> totals, int64_t across = 0) {
    const size_t blocks = totals.size() / rows.size();
    SmallVector<std::pair<Value, Value>> all_rows;
    for (Value each : rows)
      all_rows.push_back(split(each));
    for (size_t first = 0; first < blocks; first += wide_together) {
      SmallVector<std::pair<Value, Value>> columns;
      for (size_t block = first; block < std::min(first + wide_together, blocks); block += 2) {
        auto [large, small] = split(side.load(b_, *group_, array_, place, across + int64_t(block) * 8, k));
        for (int64_t one = 0; one < 2; ++one)
          columns.emplace_back(pairOf(b_, large, one * 2), pairOf(b_, small, one * 2));
      }
      for (int term = 0; term < 3; ++term)
        for (auto [block, column] : llvm::enumerate(columns))
          for (auto [each, row] : llvm::enumerate(all_rows))
            add(totals[each * blocks + first + block], term == 0 ? row.second : row.first,
                term == 1 ? column.second : column.first);
    }
  }

  // The softmax of a step's scores, and its share of the result. `now`: what is carried, but the stage.
  void step(Value first_key, Value start, bool whole, ArrayRef<Value> scores, SmallVector<Value>& now) {
    const size_t rows = rows_of_lane_.size(), blocks = size_t(tile_.keys / 8);
    SmallVector<Value> tops(rows);
    // Per block and row two neighbours: scores, then probabilities.
    SmallVector<Value> shares(blocks * rows * 2);
    for (size_t row = 0; row < rows; ++row) {
      Value limit;
      if (!whole)
        limit = limitOf(row, first_key, tile_.keys);
      for (size_t block = 0; block < blocks; ++block)
        for (size_t one = 0; one < 2; ++one) {
          Value product = part(scores[row / 2 * blocks + block], int64_t(row % 2 * 2 + one));
          Value score = seen(product, row, int64_t(block * 8 + one), first_key, limit);
          shares[(block * rows + row) * 2 + one] = score;
          tops[row] = tops[row] ? larger(tops[row], score) : score;
        }
    }
    rebase(tops, now);
    for (size_t row = 0; row < rows; ++row) {
      Value less = times(finite(now[row]), scalar(-factor_));
      Value& sum = now[rows + row];
      for (size_t block = 0; block < blocks; ++block)
        for (size_t one = 0; one < 2; ++one) {
          Value& share = shares[(block * rows + row) * 2 + one];
          share = power(share, less);
          sum = plus(sum, share);
        }
    }
    // Two blocks of scores are the fragments of 16 rows by 16 keys, or one those by 8.
    const size_t together = size_t(engine_->k / 8);
    SmallVector<SmallVector<Value>> all_fragments;
    for (size_t block = 0; block < blocks; block += together) {
      SmallVector<Value> fragments;
      for (size_t row = 0; row < rows; row += 2) {
        SmallVector<Value> pairs;
        for (size_t two = 0; two < together; ++two)
          pairs.append(&shares[((block + two) * rows + row) * 2], &shares[((block + two) * rows + row) * 2] + 4);
        fragments.push_back(tile_.wide() ? wideFragmentsOf(pairs) : fragmentsOf(pairs));
      }
      all_fragments.push_back(fragments);
    }
    Value place = i_.add(value_place_, start);
    MutableArrayRef<Value> totals = MutableArrayRef(now).drop_front(2 * rows);
    if (tile_.wide())
      multiplyValuesWide(place, all_fragments, totals);
    else
      for (auto [number, fragments] : llvm::enumerate(all_fragments))
        multiply(value_, place, int64_t(number) * engine_->k, fragments, totals);
  }

  // A few of the result's columns at a time, whose sums over the step are in registers of their own.
  void multiplyValuesWide(Value place, ArrayRef<SmallVector<Value>> fragments, MutableArrayRef<Value> totals) {
    const size_t squares = fragments[0].size(), blocks = totals.size() / squares;
    for (size_t first = 0; first < blocks; first += wide_together) {
      const size_t count = std::min(wide_together, blocks - first);
      SmallVector<Value> sums(squares * count, zeros());
      for (auto [number, rows] : llvm::enumerate(fragments))
        multiplyWide(value_, place, int64_t(number) * engine_->k, rows, sums, int64_t(first) * 8);
      for (size_t each = 0; each < squares; ++each)
        for (size_t block = 0; block < count; ++block) {
          Value& total = totals[each * blocks + first + block];
          total = plus(total, sums[each * count + block]);
        }
    }
  }

  // A block's numbers as fragments of 16 rows by 8 keys: a lane's two keys are neighbours.
  Value wideFragmentsOf(ArrayRef<Value> numbers) {
    auto type = VectorType::get({4}, f32_);
    Value vector = vector::FromElementsOp::create(b_, loc_, type, {numbers[0], numbers[2], numbers[1], numbers[3]});
    return arith::BitcastOp::create(b_, loc_, VectorType::get({4}, b_.getI32Type()), vector);
  }

  // Where a row of the sub-group has a new maximum (`tops`: of this lane) far above its base: bases, sums and totals
  // that begin at the maxima.
  void rebase(ArrayRef<Value> tops, SmallVector<Value>& now) {
    const size_t rows = tops.size();
    Value far;
    for (size_t row = 0; row < rows; ++row)
      far = i_.either(far, isFarAbove(tops[row], now[row]));
    auto branch = scf::IfOp::create(b_, loc_, TypeRange(ValueRange(now)), group_->anyOfSubgroup(far),
                                    /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b_, loc_, now);
    b_.setInsertionPointToStart(branch.thenBlock());
    const size_t blocks = size_t(tile_.columns / 8);
    SmallVector<Value> shrinks;  // of the square's two rows
    for (size_t row = 0; row < rows; ++row) {
      Value top = larger(now[row], maximumOfRow(tops[row]));
      Value shrink = power(now[row], times(finite(top), scalar(-factor_)));
      now[row] = top;
      now[rows + row] = times(now[rows + row], shrink);
      shrinks.append(2, shrink);
      if (row % 2 == 0)
        continue;
      Value both = vector::FromElementsOp::create(b_, loc_, VectorType::get({4}, f32_), shrinks);
      shrinks.clear();
      for (size_t block = 0; block < blocks; ++block) {
        Value& total = now[2 * rows + row / 2 * blocks + block];
        total = times(total, both);
      }
    }
    scf::YieldOp::create(b_, loc_, now);
    now.assign(branch.getResults().begin(), branch.getResults().end());
  }

  const FragmentAttentionTile tile_;
  const ProductSource sources_[3];
  const FragmentSide query_, key_, value_;
  int64_t stage_ = 0;  // elements
  Value array_, key_place_, value_place_;
};

}  // namespace

std::optional<FragmentAttentionTile> chooseFragmentAttention(AttentionOp op, const TargetDescription& target,
                                                             Decisions* decisions) {
  if (target.matrix.form != MatrixForm::fragments)
    return std::nullopt;
  const MatrixOperation* engine = matrixOperation(typeOf(op.getQuery()), typeOf(op.getKey()), target);
  if (typeOf(op.getQuery()).isF32() && typeOf(op.getKey()).isF32())
    engine = target.matrix.find("tf32");
  if (!engine || typeOf(op.getValue()) != typeOf(op.getQuery()))
    return std::nullopt;
  auto whole = [](int64_t size) { return (size + square - 1) / square * square; };
  FragmentAttentionTile tile{engine,
                             4,
                             2,
                             64,
                             whole(op.getQuery().getType().getShape().back()),
                             whole(op.getValue().getType().getShape().back()),
                             false};
  // Of a lane: the result, the scores, and the queries where they stay.
  const int64_t registers = target.engine_accumulator_bytes * 5 / 4 / 4 / target.matrix.lanes;
  auto fits = [&] {
    const int64_t kept = tile.keep_queries ? tile.depth / 4 : 0;
    return tile.squares * (tile.columns / 2 + tile.keys / 2 + (tile.wide() ? 16 : kept)) <= registers;
  };
  // Two squares of rows share what is loaded of keys and values: local memory is read half as often.
  tile.keep_queries = tile.depth <= 64 && !tile.wide();
  if (!fits())
    tile.keys = 32;
  const bool mask_too = op.getMask() && tile.columns > 64;  // ptxas spills
  if (mask_too || tile.wide() || !fits()) {
    const bool narrow_wide = tile.wide() && tile.columns <= 64;  // four groups on a multiprocessor
    tile = {engine,
            narrow_wide ? 4 : 8,
            1,
            tile.wide() ? 32 : 64,
            tile.depth,
            tile.columns,
            tile.depth <= 128 && !tile.wide()};
    while (tile.keys > square && !fits())
      tile.keys /= 2;
    tile.keep_queries = tile.keep_queries && fits();
    if (!fits())
      return std::nullopt;
  }
  int64_t queries = op.getQuery().getType().getShape().end()[-2], batches = 1;
  for (int64_t size : op.getQuery().getType().getShape().drop_back(2))
    batches = ShapedType::isDynamic(size) || batches < 0 ? -1 : batches * size;
  auto localBytes = [&] {
    return bytesOfSide(tile.rows(), tile.depth, tile.wide()) +
           stages *
               (bytesOfSide(tile.keys, tile.depth, tile.wide()) + bytesOfSide(tile.columns, tile.keys, tile.wide()));
  };
  auto roomy = [&] { return localBytes() <= target.local_memory_bytes; };
  const bool known = !ShapedType::isDynamic(queries);
  while (tile.wide() && tile.keys > 32 && !roomy())
    tile.keys /= 2;
  // Few queries get a small group, and so do few groups: each engine has one.
  while (tile.subgroups > 1 && ((known && tile.rows() / 2 >= queries) || !roomy() ||
                                (tile.subgroups > 2 && known && batches > 0 &&
                                 batches * ((queries + tile.rows() - 1) / tile.rows()) < target.engines)))
    (tile.squares > 1 ? tile.squares : tile.subgroups) /= 2;
  while (tile.wide() && tile.keys > square && !roomy())
    tile.keys /= 2;
  if (!roomy())
    return std::nullopt;
  if (decisions) {
    // One at a time, each within what the ones before leave of registers and local memory.
    auto all_fits = [&] { return fits() && roomy(); };
    decisions->choose("squares of query rows", tile.squares, {1, 2}, all_fits);
    decisions->choose("sub-groups", tile.subgroups, {1, 2, 4, 8}, all_fits);
    decisions->choose("keys of a step", tile.keys, {16, 32, 64, 128}, all_fits);
  }
  return tile;
}

void scheduleFragmentAttention(const ScheduleContext& context, const FragmentAttentionTile& tile) {
  FragmentAttention(context, cast<AttentionOp>(context.domain.product->op), tile).run();
}

}  // namespace zefuse
