// Attention by products of four sub-groups (wgmma), which run beside what their work-items do next (as in Shah et al.,
// "FlashAttention-3", 2024, section 3.2). In the loop's step a group's four sub-groups ask for the scores of 64 rows
// and a step's keys, and for the product of the last step's probabilities and values; when the scores are there, they
// compute the probabilities while that second product runs. Both sums are private memory, so that the products can be
// said to write it later than they are called; it becomes registers.
//
// All operands but the probabilities lie in local memory (PanelTile): queries once, keys and values in two stages each.
// What a step reads was copied during the one before.
//
// Where two groups of four take turns, one computes probabilities while the other's products run ("ping-pong" there):
// no barrier is for both. Who gives the turn has waited for what it read two steps before, and published what it copied
// then; so copies are two steps ahead, in four stages.
#include "lowering/schedule/products/warpgroup_attention.h"

#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/fragment_rows.h"
#include "lowering/schedule/products/panel_tile.h"
#include "lowering/schedule/products/product_splits.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

constexpr int64_t short_heads = 64, few_keys = 256;
// Of keys and of values in local memory.
int64_t stagesOf(const WarpgroupAttentionTile& tile) { return tile.turns ? 4 : 2; }
constexpr int64_t rows_of_warpgroup = 64;
constexpr unsigned panel_alignment = 1024;

Type elementIn(Value tensor) { return cast<RankedTensorType>(tensor.getType()).getElementType(); }

// Elements in local memory.
int64_t localElements(const WarpgroupAttentionTile& tile) {
  auto panels = [](int64_t columns) {
    return (columns + PanelShape::columns - 1) / PanelShape::columns * PanelShape::columns;
  };
  return tile.rows() * panels(tile.depth) + stagesOf(tile) * tile.keys * (panels(tile.depth) + panels(tile.columns));
}

class WarpgroupAttention : FragmentRows {
public:
  WarpgroupAttention(const ScheduleContext& context, AttentionOp op, const WarpgroupAttentionTile& tile)
      : FragmentRows(context, op, tile.engine), tile_(tile), sources_{source(0), source(1), source(2)},
        query_{sources_[0], tile.rows(), tile.depth}, key_{sources_[1], tile.keys, tile.depth},
        value_{sources_[2], tile.keys, tile.columns} {}

  void run() {
    const int64_t together = c_.target.matrix.together, subgroups = tile_.warpgroups * together;
    describeLaunch(choice::Attention{tile_.rows(), subgroups, tile_.keys, true, true});
    WorkGroup group(b_, c_.function, c_.launch, subgroups * lanes_, lanes_);
    Value mine = i_.multiply(group.subgroupIndex(), rows_of_warpgroup / together);
    Value first_row = beginRows(group, tile_.rows(), mine, /*squares=*/1);
    array_ = group.localArray(b_.getI16Type(), localElements(tile_), panel_alignment);
    // The same in all of a sub-group, which the device's compiler is to know.
    Value index = arith::IndexCastOp::create(b_, loc_, b_.getI32Type(), i_.divide(group.subgroupIndex(), together));
    own_turn_ = group.broadcast(index, 0);
    Value warpgroup = arith::IndexCastOp::create(b_, loc_, b_.getIndexType(), own_turn_);
    my_queries_ = at(i_.multiply(warpgroup, rows_of_warpgroup * PanelShape::columns));
    totals_ = privateArray(f32_, tile_.columns / 2);
    scores_ = privateArray(f32_, tile_.keys / 2);
    probabilities_ = privateArray(b_.getI32Type(), tile_.keys / 4);

    other_turn_ =
        arith::SubIOp::create(b_, loc_, arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(1)), own_turn_);
    query_.copy(b_, group, array_, queries_, first_row, all_depth_);
    key_.copy(b_, group, at(keysAt(i_.number(0))), keys_, i_.number(0), all_depth_);
    if (tile_.turns)
      copyStep(i_.number(1), i_.number(tile_.keys), i_.number(0), i_.number(0));
    else
      group.commitCopies();
    group.waitForCopies(0);
    group.publishToProducts();
    group.barrier();
    if (tile_.turns)
      giveTurn(/*only=*/1);
    for (int64_t number = 0; number < tile_.columns / 2; ++number)
      store(scalar(0), totals_, f32_, number);

    // The first step: nothing to multiply the values with yet.
    const bool all_whole = !op_.getCausal() && keys_.constant && *keys_.constant % tile_.keys == 0;
    takeTurn();
    group.beginTogether();
    multiplyKeys(i_.number(0));
    if (tile_.turns) {
      giveTurn();
      copyStep(i_.number(2), i_.number(2 * tile_.keys), i_.number(1), i_.number(tile_.keys));
    } else {
      copyStep(/*keys_stage=*/i_.number(1), i_.number(tile_.keys), /*values_stage=*/i_.number(0), i_.number(0));
    }
    group.waitTogether(scores_, tile_.keys / 2, probabilities_, 0, 0);
    Rows rows{{scalar(-INFINITY), scalar(-INFINITY)}, {scalar(0), scalar(0)}};
    storeProbabilities(softmax(i_.number(0), /*whole=*/all_whole, rows).probabilities);
    arrived();

    // Carried: per row the base of its powers and this lane's part of the sum; the stage of the step's keys.
    SmallVector<Value> carried{rows.bases[0], rows.bases[1], rows.sums[0], rows.sums[1], i_.number(1)};
    auto steps = [&](Value first, Value last, bool whole) {
      auto loop = scf::ForOp::create(b_, loc_, first, last, i_.number(tile_.keys), carried);
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      const auto now = loop.getRegionIterArgs();
      Rows rows{{now[0], now[1]}, {now[2], now[3]}};
      Value stage = now[4], key = loop.getInductionVar();
      auto after = [&](int64_t steps) { return i_.modulo(i_.add(stage, steps), stagesOf(tile_)); };
      takeTurn();
      group.beginTogether();
      multiplyKeys(stage);
      multiplyValues(after(stagesOf(tile_) - 1));
      if (tile_.turns) {
        giveTurn();
        copyStep(after(2), i_.add(key, 2 * tile_.keys), after(1), i_.add(key, tile_.keys));
      } else {
        copyStep(after(1), i_.add(key, tile_.keys), stage, key);
      }
      group.waitTogether(scores_, tile_.keys / 2, probabilities_, 0, 1);
      const Step step = softmax(key, whole, rows);
      group.computedBeforeWait(rows.sums[1]);
      group.waitTogether(totals_, tile_.columns / 2, probabilities_, tile_.keys / 4, 0);
      shrinkTotals(step);
      storeProbabilities(step.probabilities);
      arrived();  // for all, and nobody reads this step's keys and the last one's values any more
      scf::YieldOp::create(b_, loc_, ValueRange{rows.bases[0], rows.bases[1], rows.sums[0], rows.sums[1], after(1)});
      carried.assign(loop.getResults().begin(), loop.getResults().end());
    };
    // Steps whose keys all rows see, then the others.
    Value second = i_.number(tile_.keys), whole = second;
    if (!keys_.constant || *keys_.constant >= 2 * tile_.keys) {
      whole = op_.getCausal() ? i_.smaller(keys_.value, i_.add(first_row, 1)) : keys_.value;
      whole = i_.larger(i_.multiply(i_.divide(whole, tile_.keys), tile_.keys), second);
      steps(second, whole, /*whole=*/true);
    }
    if (!all_whole)
      steps(whole, end_, /*whole=*/false);

    // The last step's values, whose stage is not that of the keys that would come.
    takeTurn();
    group.beginTogether();
    multiplyValues(i_.modulo(i_.add(carried[4], stagesOf(tile_) - 1), stagesOf(tile_)));
    if (tile_.turns)
      giveTurn(/*only=*/0);
    group.waitTogether(totals_, tile_.columns / 2, probabilities_, tile_.keys / 4, 0);
    SmallVector<Value> blocks;
    for (int64_t block = 0; block < tile_.columns / 8; ++block) {
      SmallVector<Value> numbers;
      for (int64_t number = 0; number < 4; ++number)
        numbers.push_back(load(totals_, f32_, block * 4 + number));
      blocks.push_back(vector::FromElementsOp::create(b_, loc_, VectorType::get({4}, f32_), numbers));
    }
    const ValueRange done(carried);
    finish(done.take_front(2), done.slice(2, 2), blocks);
  }

private:
  struct Rows {
    Value bases[2], sums[2];
  };
  struct Step {
    SmallVector<Value> probabilities;  // fragments of 16 keys each
    Value far;                         // i1, of the sub-group: totals are to be multiplied
    Value shrinks[2];
  };

  // Private memory whose places are constants; at the function's start, as the device's compilers want it.
  Value privateArray(Type element, int64_t count) {
    OpBuilder::InsertionGuard guard(b_);
    func::FuncOp function = c_.function;
    b_.setInsertionPointToStart(&function.getBody().front());
    Value one = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(1));
    return LLVM::AllocaOp::create(b_, loc_, LLVM::LLVMPointerType::get(b_.getContext()),
                                  LLVM::LLVMArrayType::get(element, count), one, /*alignment=*/16);
  }
  Value address(Value array, Type element, int64_t number) {
    return LLVM::GEPOp::create(b_, loc_, array.getType(), element, array, ArrayRef<LLVM::GEPArg>{int32_t(number)},
                               LLVM::GEPNoWrapFlags::inbounds);
  }
  Value load(Value array, Type element, int64_t number) {
    return LLVM::LoadOp::create(b_, loc_, element, address(array, element, number), 4);
  }
  void store(Value value, Value array, Type element, int64_t number) {
    LLVM::StoreOp::create(b_, loc_, value, address(array, element, number), 4);
  }

  Value at(Value place) { return group_->at(array_, b_.getI16Type(), place); }
  Value keysAt(Value stage) { return i_.add(i_.multiply(stage, key_.elements()), query_.elements()); }
  Value valuesAt(Value stage) {
    return i_.add(i_.multiply(stage, value_.elements()), query_.elements() + stagesOf(tile_) * key_.elements());
  }

  // The keys from `next` on, and the values from `key` on, if there are any.
  void copyStep(Value keys_stage, Value next, Value values_stage, Value key) {
    auto copy = [&](const PanelTile& tile, Value place, Value first, const Extent& columns, bool always) {
      OpBuilder::InsertionGuard guard(b_);
      if (!always) {
        auto branch = scf::IfOp::create(b_, loc_, i_.less(first, end_), /*withElseRegion=*/false);
        b_.setInsertionPointToStart(branch.thenBlock());
      }
      tile.copy(b_, *group_, at(place), keys_, first, columns);
    };
    copy(value_, valuesAt(values_stage), key, all_columns_, /*always=*/!tile_.turns);
    copy(key_, keysAt(keys_stage), next, all_depth_, /*always=*/false);
    group_->commitCopies();
  }

  // What was copied is there for the products of all: now, or when this warpgroup gave its next turn.
  void arrived() {
    group_->waitForCopies(0);
    group_->publishToProducts();
    if (!tile_.turns)
      group_->barrier();
  }

  int64_t items() const { return tile_.warpgroups * c_.target.matrix.together * lanes_; }
  void takeTurn() {
    if (tile_.turns)
      group_->takeTurn(own_turn_, items());
  }
  void giveTurn(std::optional<int64_t> only = std::nullopt) {  // by this warpgroup alone
    OpBuilder::InsertionGuard guard(b_);
    if (only) {
      Value number = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(*only)));
      Value is = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, own_turn_, number);
      auto branch = scf::IfOp::create(b_, loc_, is, /*withElseRegion=*/false);
      b_.setInsertionPointToStart(branch.thenBlock());
    }
    group_->giveTurn(other_turn_, items());
  }

  void multiplyKeys(Value stage) {
    Value keys = at(keysAt(stage));
    for (int64_t k = 0; k < tile_.depth; k += engine_depth)
      group_->multiplyTogether(*engine_, scores_, my_queries_, keys, k, query_.shape(), key_.shape(), k > 0);
    group_->commitTogether();
  }

  void multiplyValues(Value stage) {
    Value values = at(valuesAt(stage));
    for (int64_t k = 0; k < tile_.keys; k += engine_depth)
      group_->multiplyRowsTogether(*engine_, totals_, address(probabilities_, b_.getI32Type(), k / 4), values, k,
                                   tile_.columns, value_.shape());
    group_->commitTogether();
  }

  // Of the scores of this step's keys. `rows` become what they are after it, but the totals.
  Step softmax(Value first_key, bool whole, Rows& rows) {
    const int64_t blocks = tile_.keys / 8;
    Step step;
    SmallVector<Value> shares(blocks * 4);  // as the blocks have them: two rows of two neighbours
    Value tops[2];
    for (size_t row = 0; row < 2; ++row) {
      Value limit = whole ? Value() : limitOf(row, first_key, tile_.keys);
      Value part[2];  // maxima, for shorter chains of instructions that wait for each other
      for (int64_t block = 0; block < blocks; ++block)
        for (int64_t one = 0; one < 2; ++one) {
          const int64_t number = block * 4 + int64_t(row) * 2 + one;
          Value score = seen(load(scores_, f32_, number), row, block * 8 + one, first_key, limit);
          shares[number] = score;
          part[one] = part[one] ? larger(part[one], score) : score;
        }
      tops[row] = maximumOfRow(larger(part[0], part[1]));
      step.far = i_.either(step.far, isFarAbove(tops[row], rows.bases[row]));
    }
    step.far = group_->anyOfSubgroup(step.far);
    for (size_t row = 0; row < 2; ++row) {
      Value base = rows.bases[row];
      Value top = arith::SelectOp::create(b_, loc_, step.far, larger(base, tops[row]), base);
      Value less = times(finite(top), scalar(-factor_));
      step.shrinks[row] = arith::SelectOp::create(b_, loc_, step.far, power(base, less), scalar(1));
      rows.bases[row] = top;
      Value part[2];
      for (int64_t block = 0; block < blocks; ++block)
        for (int64_t one = 0; one < 2; ++one) {
          Value& share = shares[block * 4 + int64_t(row) * 2 + one];
          share = power(share, less);
          part[one] = part[one] ? plus(part[one], share) : share;
        }
      rows.sums[row] = plus(times(rows.sums[row], step.shrinks[row]), plus(part[0], part[1]));
    }
    for (int64_t block = 0; block < blocks; block += 2)
      step.probabilities.push_back(fragmentsOf(ArrayRef(shares).slice(block * 4, 8)));
    return step;
  }

  void storeProbabilities(ArrayRef<Value> fragments) {
    for (auto [number, fragment] : llvm::enumerate(fragments))
      for (int64_t each = 0; each < 4; ++each)
        store(part(fragment, each), probabilities_, b_.getI32Type(), int64_t(number) * 4 + each);
  }

  void shrinkTotals(const Step& step) {
    OpBuilder::InsertionGuard guard(b_);
    auto branch = scf::IfOp::create(b_, loc_, step.far, /*withElseRegion=*/false);
    b_.setInsertionPointToStart(branch.thenBlock());
    for (int64_t number = 0; number < tile_.columns / 2; ++number)
      store(times(load(totals_, f32_, number), step.shrinks[number / 2 % 2]), totals_, f32_, number);
  }

  const WarpgroupAttentionTile tile_;
  const ProductSource sources_[3];
  const PanelTile query_, key_, value_;
  Value array_, my_queries_;
  Value own_turn_, other_turn_;            // i32
  Value totals_, scores_, probabilities_;  // private
};

}  // namespace

std::optional<WarpgroupAttentionTile> chooseWarpgroupAttention(AttentionOp op, const TargetDescription& target,
                                                               Decisions* decisions) {
  if (target.matrix.together == 0 || op.getMask())
    return std::nullopt;
  const MatrixOperation* engine = matrixOperation(elementIn(op.getQuery()), elementIn(op.getKey()), target);
  if (!engine || elementIn(op.getValue()) != elementIn(op.getQuery()))
    return std::nullopt;
  auto whole = [](int64_t size) { return (size + engine_depth - 1) / engine_depth * engine_depth; };
  const int64_t queries = op.getQuery().getType().getShape().end()[-2];
  const int64_t keys = op.getKey().getType().getShape().end()[-2];
  // Few rows are better spread over small groups, and the values of no key at all are not there to be multiplied.
  auto isFew = [](int64_t count) { return !ShapedType::isDynamic(count) && count < rows_of_warpgroup; };
  if (isFew(queries) || isFew(keys))
    return std::nullopt;
  WarpgroupAttentionTile tile{engine, 2, 128, whole(op.getQuery().getType().getShape().back()),
                              whole(op.getValue().getType().getShape().back())};
  // Of a lane: the result, the scores and the probabilities. Three warpgroups have 168 registers for each lane.
  const int64_t registers = target.engine_accumulator_bytes * 5 / 4 / 4 / target.matrix.lanes;
  auto fits = [&] {
    return tile.columns / 2 + tile.keys / 2 + tile.keys / 4 <= (tile.warpgroups > 2 ? registers * 4 / 5 : registers) &&
           2 * localElements(tile) <= target.local_memory_bytes;
  };
  // Of heads of 64 over many keys: two groups fit on a multiprocessor then, 0.76 to 0.81 of the time (H100). Over few
  // keys a step of all of them is quicker.
  if (!fits() ||
      (tile.depth <= short_heads && tile.columns <= short_heads && (ShapedType::isDynamic(keys) || keys > few_keys)))
    tile.keys = 64;
  // Few groups are made twice as many: each engine has one.
  int64_t groups = ShapedType::isDynamic(queries) ? -1 : (queries + tile.rows() - 1) / tile.rows();
  for (int64_t size : op.getQuery().getType().getShape().drop_back(2))
    groups = ShapedType::isDynamic(size) || groups < 0 ? -1 : groups * size;
  if ((!ShapedType::isDynamic(queries) && queries <= rows_of_warpgroup) || (groups >= 0 && groups < target.engines) ||
      !fits())
    tile.warpgroups = 1;
  if (!fits())
    return std::nullopt;
  // Of short heads turns are up to 0.92 of the time when causal, and as much when not (H100); of longer ones four
  // stages leave room for too few keys.
  tile.turns = tile.warpgroups == 2 && tile.keys == 64 && tile.depth <= short_heads && tile.columns <= short_heads;
  if (tile.turns && !fits())
    tile.turns = 0;
  if (decisions) {
    const int64_t turns = std::exchange(tile.turns, 0);  // of two alone, and of what is left for four stages
    decisions->choose("warpgroups", tile.warpgroups, {1, 2, 3}, fits);
    decisions->choose("keys of a step", tile.keys, {64, 96, 128}, fits);
    tile.turns = turns;
    if (tile.warpgroups != 2 || !fits())
      tile.turns = 0;
    decisions->choose("turns of warpgroups", tile.turns, {0, 1}, [&] { return tile.warpgroups == 2 && fits(); });
  }
  return tile;
}

void scheduleWarpgroupAttention(const ScheduleContext& context, const WarpgroupAttentionTile& tile) {
  WarpgroupAttention(context, cast<AttentionOp>(context.domain.product->op), tile).run();
}

}  // namespace zefuse
