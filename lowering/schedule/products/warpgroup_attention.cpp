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

constexpr unsigned panel_alignment = 1024;
constexpr int64_t rows_of_warpgroup = WarpgroupAttentionTile::rows_of_warpgroup;

// Registers of a lane where a warpgroup copies for the others: all have the same at the launch, and give or take then.
struct Registers {
  int64_t copying = 0, multiplying = 0;  // 0: as at the launch
};
Registers registersOf(const WarpgroupAttentionTile& tile) {
  switch (tile.warpgroups) {
  case 2: return {56, 224};  // of 168
  case 3: return {32, 160};  // of 128
  default: return {};
  }
}

class WarpgroupAttention : FragmentRows {
public:
  WarpgroupAttention(const ScheduleContext& context, AttentionOp op, const WarpgroupAttentionTile& tile)
      : FragmentRows(context, op, tile.engine), tile_(tile), stages_(tile.stages(context.target)),
        sources_{source(0), source(1), source(2)}, query_{sources_[0], rows_of_warpgroup, tile.depth, tile.rows()},
        key_{sources_[1], tile.keys, tile.depth}, value_{sources_[2], tile.keys, tile.columns} {}

  void run() {
    const int64_t together = c_.target.matrix.together, subgroups = tile_.warpgroups * together + tile_.copying;
    describeLaunch(choice::Attention{tile_.rows(), subgroups, tile_.keys, true, true});
    const int64_t rounds = roundsOfGroup();
    c_.launch.grain = rounds;
    WorkGroup group(b_, c_.function, c_.launch, subgroups * lanes_, lanes_);
    group_ = &group;
    mine_ = i_.multiply(group.subgroupIndex(), rows_of_warpgroup / together);
    array_ = group.localArray(b_.getI16Type(), tile_.localElements(stages_), panel_alignment);
    // The same in all of a sub-group, which the device's compiler is to know.
    Value index = arith::IndexCastOp::create(b_, loc_, b_.getI32Type(), i_.divide(group.subgroupIndex(), together));
    own_turn_ = group.broadcast(index, 0);
    // Once more, which is opaque to LLVM: it would make a switch of comparisons with several numbers.
    behind_ = group.broadcast(arith::SubIOp::create(b_, loc_, index, number32(tile_.warpgroups - 1)), 0);
    if (tile_.copying == 0) {
      multiply(rounds);
      return;
    }
    const Registers registers = registersOf(tile_);
    auto only = [&](arith::CmpIPredicate predicate, int64_t count, auto&& body) {
      nodes_.open(arith::CmpIOp::create(b_, loc_, predicate, own_turn_, number32(tile_.warpgroups)));
      if (count > 0)
        group.keepRegisters(count, /*more=*/predicate == arith::CmpIPredicate::slt);
      body();
      nodes_.close();
    };
    only(arith::CmpIPredicate::sge, registers.copying, [&] { copyAll(rounds); });
    only(arith::CmpIPredicate::slt, registers.multiplying, [&] { multiply(rounds); });
  }

private:
  // Tiles that a group takes one after the other, so that its next keys are under way while it stores results.
  int64_t roundsOfGroup() const {
    auto count = constantOf(c_.launch.extent);
    return tile_.persistent && count && c_.launch.schedule.batch <= 1
               ? (*count + c_.target.engines - 1) / c_.target.engines
               : 1;
  }
  // Calls body(tile, next tile, whether there is one, carried) for this group's tiles.
  void forTiles(int64_t rounds, SmallVector<Value> carried,
                llvm::function_ref<SmallVector<Value>(Value, Value, Value, ValueRange)> body) {
    if (rounds == 1) {
      last_carried_ = body(group_->group(), {}, {}, carried);
      return;
    }
    const int64_t count = *constantOf(c_.launch.extent), groups = (count + rounds - 1) / rounds;
    auto loop = c_.evaluator.openLoop(group_->group(), i_.number(count), i_.number(groups), carried);
    Value next = i_.add(loop.index(), groups), more = i_.less(next, i_.number(count));
    carried = body(turned(loop.index(), groups, count), turned(next, groups, count), more, loop.carried());
    ValueRange results = c_.evaluator.closeLoop(loop, carried);
    last_carried_.assign(results.begin(), results.end());
  }
  // Causal tiles differ: every other round is turned, so that who began with a long one takes a short one then.
  Value turned(Value tile, int64_t groups, int64_t count) {
    if (!op_.getCausal())
      return tile;
    Value round = i_.divide(tile, groups), first = i_.multiply(round, groups), place = i_.subtract(tile, first);
    Value odd =
        i_.both(i_.equal(i_.modulo(round, 2), i_.number(1)), i_.less(i_.add(first, groups), i_.number(count + 1)));
    Value back = i_.add(first, i_.subtract(i_.number(groups - 1), place));
    return arith::SelectOp::create(b_, loc_, odd, back, tile);
  }

  // What multiplies: all, or those beside the ones that copy.
  void multiply(int64_t rounds) {
    Value warpgroup = arith::IndexCastOp::create(b_, loc_, b_.getIndexType(), own_turn_);
    first_of_mine_ = i_.multiply(warpgroup, rows_of_warpgroup);
    my_queries_ = at(i_.multiply(warpgroup, query_.elements()));
    totals_ = privateArray(f32_, tile_.columns / 2);
    scores_ = privateArray(f32_, tile_.keys / 2);
    probabilities_ = privateArray(b_.getI32Type(), tile_.keys / 4);
    Value next = arith::AddIOp::create(b_, loc_, own_turn_, number32(1));
    other_turn_ = arith::RemUIOp::create(b_, loc_, next, number32(tile_.warpgroups));
    if (rounds > 1) {
      nodes_.open({});
      copyQueries(bindTile(tile_.rows(), group_->group()));
      nodes_.close();
      giveTurn(/*of_last=*/true);
    }
    forTiles(rounds, {i_.number(0)}, [&](Value tile, Value next, Value more, ValueRange stage) {
      return SmallVector<Value>{multiplyTile(tile, next, more, stage[0])};
    });
  }

  // A warpgroup's own rows, by itself.
  void copyQueries(Value first_row) {
    const int64_t count = c_.target.matrix.together * lanes_;
    query_.copy(b_, *group_, {i_.modulo(group_->item(), count), count}, my_queries_, queries_,
                i_.add(first_row, first_of_mine_), all_depth_);
    group_->commitCopies();
  }

  // Returns the stage after its last one.
  Value multiplyTile(Value tile, Value next_tile, Value more, Value first_stage) {
    const Value first_row = beginTile(tile, more, first_stage);
    const bool all_whole = !op_.getCausal() && keys_.constant && *keys_.constant % tile_.keys == 0;
    Carried carried = firstStep(first_stage, /*whole=*/all_whole);
    // Steps whose keys all rows see, then the others.
    Value second = i_.number(tile_.keys), whole = second;
    if (!keys_.constant || *keys_.constant >= 2 * tile_.keys) {
      whole = op_.getCausal() ? i_.smaller(keys_.value, i_.add(first_row, 1)) : keys_.value;
      whole = i_.larger(i_.multiply(i_.divide(whole, tile_.keys), tile_.keys), second);
      laterSteps(second, whole, /*whole=*/true, carried);
    }
    if (!all_whole)
      laterSteps(whole, end_, /*whole=*/false, carried);
    lastValues(carried.stage, tile, next_tile, more);
    finish(carried.rows.bases, carried.rows.sums, blocksOfTotals());
    return stageAfter(carried.stage, 1);
  }

  struct Rows {
    Value bases[2], sums[2];  // per row: the base of its powers, and this lane's part of the sum
  };
  // From step to step.
  struct Carried {
    Rows rows;
    Value stage;  // of the step's keys
    SmallVector<Value> values() const { return {rows.bases[0], rows.bases[1], rows.sums[0], rows.sums[1], stage}; }
    static Carried of(ValueRange values) { return {{{values[0], values[1]}, {values[2], values[3]}}, values[4]}; }
  };
  Value stageAfter(Value stage, int64_t steps) { return i_.modulo(i_.add(stage, steps), stages_); }

  // The tile's queries, where nobody copied them before, the first keys where the group copies for itself, and sums of
  // 0. Returns its first row.
  Value beginTile(Value tile, Value more, Value first_stage) {
    WorkGroup& group = *group_;
    Value first_row = beginRows(group, tile_.rows(), mine_, /*squares=*/1, tile);
    if (!more)
      copyQueries(first_row);
    if (tile_.copying == 0) {
      key_.copy(b_, group, {group.item(), items()}, at(keysAt(first_stage)), keys_, i_.number(0), all_depth_);
      if (tile_.turns)
        copyStep(i_.number(1), i_.number(tile_.keys), i_.number(0), i_.number(0));
      else
        group.commitCopies();
    }
    group.waitForCopies(0);
    group.publishToProducts();
    if (tile_.copying == 0)
      group.barrier();  // else all of the warpgroup meet where they await the first stage
    if (!more)
      giveTurn(/*of_last=*/true);
    for (int64_t number = 0; number < tile_.columns / 2; ++number)
      store(scalar(0), totals_, f32_, number);
    return first_row;
  }

  // Nothing to multiply the values with yet.
  Carried firstStep(Value stage, bool whole) {
    WorkGroup& group = *group_;
    awaitStage(stage);
    takeTurn();
    group.beginTogether();
    multiplyKeys(stage);
    giveTurn();
    if (tile_.copying == 0) {
      if (tile_.turns)
        copyStep(i_.number(2), i_.number(2 * tile_.keys), i_.number(1), i_.number(tile_.keys));
      else
        copyStep(/*keys_stage=*/i_.number(1), i_.number(tile_.keys), /*values_stage=*/i_.number(0), i_.number(0));
    }
    group.waitTogether(scores_, tile_.keys / 2, probabilities_, 0, 0);
    releaseStage(stage);
    Rows rows{{scalar(-INFINITY), scalar(-INFINITY)}, {scalar(0), scalar(0)}};
    storeProbabilities(softmax(i_.number(0), whole, rows).probabilities);
    arrived();
    return {rows, stageAfter(stage, 1)};
  }

  // A loop over the keys from `first` to `last`: their scores, and the values of the step before.
  void laterSteps(Value first, Value last, bool whole, Carried& carried) {
    WorkGroup& group = *group_;
    auto loop = scf::ForOp::create(b_, loc_, first, last, i_.number(tile_.keys), carried.values());
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(loop.getBody());
    Carried now = Carried::of(loop.getRegionIterArgs());
    Value stage = now.stage, key = loop.getInductionVar();
    awaitStage(stage);
    takeTurn();
    group.beginTogether();
    multiplyKeys(stage);
    multiplyValues(stageOfLastValues(stage));
    giveTurn();
    if (tile_.copying == 0) {
      if (tile_.turns)
        copyStep(stageAfter(stage, 2), i_.add(key, 2 * tile_.keys), stageAfter(stage, 1), i_.add(key, tile_.keys));
      else
        copyStep(stageAfter(stage, 1), i_.add(key, tile_.keys), stage, key);
    }
    group.waitTogether(scores_, tile_.keys / 2, probabilities_, 0, 1);
    const Step step = softmax(key, whole, now.rows);
    group.computedBeforeWait(now.rows.sums[1]);
    group.waitTogether(totals_, tile_.columns / 2, probabilities_, tile_.keys / 4, 0);
    releaseStage(stage);
    shrinkTotals(step);
    storeProbabilities(step.probabilities);
    arrived();  // for all, and nobody reads this step's keys and the last one's values any more
    now.stage = stageAfter(stage, 1);
    scf::YieldOp::create(b_, loc_, now.values());
    carried = Carried::of(loop.getResults());
  }

  // The last step's values, whose stage is not that of the keys that would come; the next tile's queries meanwhile.
  void lastValues(Value stage, Value tile, Value next_tile, Value more) {
    WorkGroup& group = *group_;
    awaitStage(stage);
    if (more) {  // all of the warpgroup have read this tile's queries
      nodes_.open(more);
      copyQueries(bindTile(tile_.rows(), next_tile));
      nodes_.close();
      bindTile(tile_.rows(), tile);  // again: an inner scope's dims are none after it
    }
    takeTurn();
    group.beginTogether();
    multiplyValues(stageOfLastValues(stage));
    giveTurn(/*of_last=*/false);
    if (more) {
      nodes_.open(more);
      giveTurn(/*of_last=*/true);
      nodes_.close();
    }
    group.waitTogether(totals_, tile_.columns / 2, probabilities_, tile_.keys / 4, 0);
    releaseStage(stage);
  }

  SmallVector<Value> blocksOfTotals() {
    SmallVector<Value> blocks;
    for (int64_t block = 0; block < tile_.columns / 8; ++block) {
      SmallVector<Value> numbers;
      for (int64_t number = 0; number < 4; ++number)
        numbers.push_back(load(totals_, f32_, block * 4 + number));
      blocks.push_back(vector::FromElementsOp::create(b_, loc_, VectorType::get({4}, f32_), numbers));
    }
    return blocks;
  }

  // What only copies: for each step its keys and the last one's values, which are multiplied together, and the last
  // values alone. Copies of as many stages as there are but two are under way. A stage's number goes on from tile to
  // tile.
  void copyAll(int64_t rounds) {
    WorkGroup& group = *group_;
    const int64_t pending = stages_ - 2;
    const Copiers by{i_.subtract(group.item(), i_.number(items())), tile_.copying * lanes_};
    auto when = [&](Value condition, auto&& body) {
      auto branch = scf::IfOp::create(b_, loc_, condition, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(branch.thenBlock());
      body();
    };
    auto atLeast = [&](Value value, int64_t least) { return i_.less(i_.number(least - 1), value); };
    auto awaitReleased = [&](Value number) {
      when(atLeast(number, stages_),
           [&] { group.takeTurn(releasedBarrier(i_.modulo(number, stages_)), releasedItems()); });
    };
    auto publish = [&](Value number) {  // what was copied as many stages before as are under way
      group.commitCopies();
      group.waitForCopies(pending);
      group.publishToProducts();
      auto give = [&] {
        Value stage = i_.modulo(i_.add(number, 2), stages_);
        for (int64_t each = 0; each < tile_.warpgroups; ++each)
          group.giveTurn(stageBarrier(stage, number32(each)), stageItems());
      };
      pending == 0 ? give() : when(atLeast(number, pending), give);
    };
    auto forNumbers = [&](Value first, Value end, auto&& body) {
      auto loop = scf::ForOp::create(b_, loc_, first, end, i_.number(1));
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      body(loop.getInductionVar());
    };
    forTiles(rounds, {i_.number(0)}, [&](Value tile, Value, Value, ValueRange carried) {
      beginRows(group, tile_.rows(), mine_, /*squares=*/1, tile);
      Value first = carried[0];
      Value last = i_.larger(i_.divide(i_.add(end_, tile_.keys - 1), tile_.keys), i_.number(1));
      forNumbers(i_.number(0), i_.add(last, 1), [&](Value step) {
        Value number = i_.add(first, step), stage = i_.modulo(number, stages_), key = i_.multiply(step, tile_.keys);
        awaitReleased(number);
        when(i_.less(step, last), [&] { key_.copy(b_, group, by, at(keysAt(stage)), keys_, key, all_depth_); });
        when(atLeast(step, 1), [&] {
          value_.copy(b_, group, by, at(valuesAt(stage)), keys_, i_.subtract(key, i_.number(tile_.keys)), all_columns_);
        });
        publish(number);
      });
      return SmallVector<Value>{i_.add(i_.add(first, last), 1)};
    });
    // The last copies, and all stages' release: nobody is waited for any more at the end.
    Value end = last_carried_[0];
    if (pending > 0)
      forNumbers(end, i_.add(end, pending), publish);
    forNumbers(end, i_.add(end, stages_), awaitReleased);
  }

  // Numbers of barriers, and who is there.
  Value stageBarrier(Value stage, Value warpgroup) {
    Value first = i_.add(i_.multiply(stage, tile_.warpgroups + 1), tile_.warpgroups);
    first = arith::IndexCastOp::create(b_, loc_, b_.getI32Type(), first);
    return arith::AddIOp::create(b_, loc_, first, warpgroup);
  }
  Value releasedBarrier(Value stage) { return stageBarrier(stage, number32(tile_.warpgroups)); }
  int64_t stageItems() const { return (tile_.copying + c_.target.matrix.together) * lanes_; }
  int64_t releasedItems() const { return items() + tile_.copying * lanes_; }
  void awaitStage(Value stage) {
    if (tile_.copying > 0)
      group_->takeTurn(stageBarrier(stage, own_turn_), stageItems());
  }
  void releaseStage(Value stage) {
    if (tile_.copying > 0)
      group_->giveTurn(releasedBarrier(stage), releasedItems());
  }
  // Of the last step: with those that copy they lie beside this step's keys.
  Value stageOfLastValues(Value stage) {
    return tile_.copying > 0 ? stage : i_.modulo(i_.add(stage, stages_ - 1), stages_);
  }
  Value number32(int64_t number) { return arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(number))); }

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
  Value keysAt(Value stage) { return i_.add(i_.multiply(stage, key_.elements()), tile_.queryElements()); }
  Value valuesAt(Value stage) {
    return i_.add(i_.multiply(stage, value_.elements()), tile_.queryElements() + stages_ * key_.elements());
  }

  // The keys from `next` on, and the values from `key` on, if there are any.
  void copyStep(Value keys_stage, Value next, Value values_stage, Value key) {
    auto copy = [&](const PanelTile& tile, Value place, Value first, const Extent& columns, bool always) {
      OpBuilder::InsertionGuard guard(b_);
      if (!always) {
        auto branch = scf::IfOp::create(b_, loc_, i_.less(first, end_), /*withElseRegion=*/false);
        b_.setInsertionPointToStart(branch.thenBlock());
      }
      tile.copy(b_, *group_, {group_->item(), items()}, at(place), keys_, first, columns);
    };
    copy(value_, valuesAt(values_stage), key, all_columns_, /*always=*/!tile_.turns);
    copy(key_, keysAt(keys_stage), next, all_depth_, /*always=*/false);
    group_->commitCopies();
  }

  // What was copied is there for the products of all: now, or when this warpgroup gave its next turn.
  void arrived() {
    if (tile_.copying > 0)
      return;
    group_->waitForCopies(0);
    group_->publishToProducts();
    if (!tile_.turns)
      group_->barrier();
  }

  int64_t items() const { return tile_.warpgroups * c_.target.matrix.together * lanes_; }  // that multiply
  int64_t turnItems() const { return 2 * c_.target.matrix.together * lanes_; }
  void takeTurn() {
    if (tile_.turns)
      group_->takeTurn(own_turn_, turnItems());
  }
  // By all, or only by the last warpgroup or by the others.
  void giveTurn(std::optional<bool> of_last = std::nullopt) {
    if (!tile_.turns)
      return;
    OpBuilder::InsertionGuard guard(b_);
    if (of_last) {
      auto predicate = *of_last ? arith::CmpIPredicate::sge : arith::CmpIPredicate::slt;
      Value is = arith::CmpIOp::create(b_, loc_, predicate, behind_, number32(0));
      auto branch = scf::IfOp::create(b_, loc_, is, /*withElseRegion=*/false);
      b_.setInsertionPointToStart(branch.thenBlock());
    }
    group_->giveTurn(other_turn_, turnItems());
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
  const int64_t stages_;
  const ProductSource sources_[3];
  const PanelTile query_, key_, value_;
  Value array_, my_queries_, mine_, first_of_mine_;
  SmallVector<Value> last_carried_;
  Value own_turn_, other_turn_, behind_;   // i32
  Value totals_, scores_, probabilities_;  // private
};

}  // namespace

void scheduleWarpgroupAttention(const ScheduleContext& context, const WarpgroupAttentionTile& tile) {
  WarpgroupAttention(context, cast<AttentionOp>(context.domain.product->op), tile).run();
}

}  // namespace zefuse
