// The derivatives of scaled dot product attention on a GPU, after Dao, "FlashAttention-2" (2023), section 3.1.2: the
// scores come again from the rows' log-sum-exps, tile by tile, and are never in memory. No atomics: a group owns rows
// of the queries and keys pass by, or it owns keys and queries pass by, those of all the heads that share the keys.
//
// Both are the same two steps, with P the softmax and dS = P * (dP - delta):
//   scores   of the group's rows by those that pass: S = own[0] @ passing[0]^T, dP = own[1] @ passing[1]^T
//   results  dS @ passing[0], and of keys P @ passing[1]
// A group's sub-groups share each step by rows and columns, as a product's do (gpu_product.h), so that the results of
// wide heads fit into registers. Between the steps P and dS are in local memory. Where lanes hold fragments:
// fragment_attention_gradient.cpp.
#include "lowering/dialect/shape.h"
#include "lowering/schedule/products/attention_gradient_emitter.h"
#include "lowering/schedule/products/fragment_attention_gradient.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/schedule/products/products.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

int64_t whole(int64_t size, int64_t block) { return (size + block - 1) / block * block; }

// Operands of a matrix engine have what is summed over innermost, so what passes lies there in both orders; else rows
// are innermost in f32, and each array serves both steps.
struct GradientTile {
  const MatrixOperation* engine;  // null: without
  bool of_keys;
  int64_t lanes;
  int64_t depth, columns;         // of a head
  int64_t rows = 8;               // of a sub-group
  int64_t across = 1, along = 1;  // sub-groups, by rows and by columns
  int64_t passing = 32;           // rows at a time

  int64_t own() const { return rows * across; }
  // A head's size, as many columns for each sub-group.
  int64_t width(int64_t size) const { return whole(size, std::max(lanes * along, engine ? engine_depth : 1)); }
  int64_t blocks(int64_t size) const { return width(size) / (lanes * along); }
  int64_t scoreBlocks() const { return passing / (lanes * along); }
  // Lines are padded so that neighbouring ones start in different banks.
  int64_t ownLine(int64_t size) const { return engine ? width(size) + engine_pad : own() + 4; }
  int64_t passingLine(int64_t size) const { return engine ? width(size) + engine_pad : passing + 1; }
  int64_t acrossLine() const { return passing + engine_pad; }  // the other order
  int64_t probabilityLine() const { return engine ? passing + engine_pad : own() + 4; }
  int64_t ownElements(int64_t size) const { return ownLine(size) * (engine ? own() : width(size)); }
  int64_t passingElements(int64_t size) const { return passingLine(size) * (engine ? passing : width(size)); }
  int64_t acrossElements(int64_t size) const { return engine ? acrossLine() * width(size) : 0; }
  int64_t probabilityElements() const { return probabilityLine() * (engine ? own() : passing); }

  int64_t localBytes() const {
    int64_t elements = probabilityElements() * (of_keys ? 2 : 1) + acrossElements(depth);
    if (of_keys)
      elements += acrossElements(columns);
    for (int64_t size : {depth, columns})
      elements += ownElements(size) + passingElements(size);
    return elements * (engine ? 2 : 4);
  }
  // Of a sub-group: the results, and S, dP and P at once.
  int64_t registerBytes() const {
    return rows * 4 * lanes * (blocks(depth) + (of_keys ? blocks(columns) : 0) + 3 * scoreBlocks());
  }
};

// None: even the smallest does not fit into registers and local memory.
std::optional<GradientTile> chooseTile(const AttentionGradientCall& call, const TargetDescription& target,
                                       const MatrixOperation* engine) {
  struct Shape {
    int64_t rows, across, along, passing;
  };
  constexpr Shape on_engine[] = {{8, 4, 4, 32}, {8, 4, 2, 32}, {4, 8, 4, 32}, {4, 8, 2, 32}, {4, 4, 2, 32},
                                 {2, 8, 4, 32}, {2, 8, 2, 32}, {2, 8, 2, 16}, {2, 8, 1, 16}};
  constexpr Shape ordinary[] = {{8, 4, 2, 32},  {4, 8, 2, 32}, {4, 4, 2, 32}, {2, 8, 2, 32},
                                {1, 16, 2, 32}, {1, 8, 2, 32}, {2, 4, 1, 16}, {1, 8, 1, 16}};
  const int64_t limit = engine ? target.engine_accumulator_bytes * 11 / 8 : target.accumulator_bytes;
  const int64_t lanes = engine ? target.matrix.lanes : target.subgroup_size;
  for (const Shape& shape : engine ? ArrayRef(on_engine) : ArrayRef(ordinary)) {
    GradientTile tile{engine,
                      call.of_keys,
                      lanes,
                      call.q.getShape().back(),
                      call.v.getShape().back(),
                      shape.rows,
                      shape.across,
                      shape.along,
                      std::max(shape.passing, shape.along * lanes)};  // sub-groups of 32 are wider than the table's
    if (tile.passing % (tile.lanes * tile.along) != 0 ||
        tile.across * tile.along * tile.lanes > target.max_group_size || tile.registerBytes() > limit)
      continue;
    const int64_t own = (call.of_keys ? call.k : call.q).getShape()[call.q.getRank() - 2];
    while (tile.across > 1 && !ShapedType::isDynamic(own) && tile.own() / 2 >= own)  // few rows get a small group
      tile.across /= 2;
    if (tile.localBytes() <= target.local_memory_bytes)
      return tile;
  }
  return std::nullopt;
}

std::optional<GradientTile> chooseTile(const AttentionGradientCall& call, const TargetDescription& target) {
  const MatrixOperation* engine = matrixOperation(call.q.getElementType(), call.k.getElementType(), target);
  if (engine && target.matrix.form == MatrixForm::columns)
    if (auto tile = chooseTile(call, target, engine))
      return tile;
  return chooseTile(call, target, nullptr);
}

class GradientSchedule : AttentionGradientEmitter {
public:
  GradientSchedule(const AttentionGradientCall& call, CallKernel& kernel, const GradientTile& tile)
      : AttentionGradientEmitter(call, kernel, tile.rows, tile.lanes, tile.engine), tile_(tile) {}

  void run() {
    AffineExpr batches = getAffineConstantExpr(1, b_.getContext());
    AffineExpr tiles = result(0).sizes[rank_ - 2].ceilDiv(tile_.own());
    for (AffineExpr size : ArrayRef(result(0).sizes).drop_back(2))
      batches = batches * size;
    LoweredKernel& launch = k_.launch();
    launch.extent = batches * tiles;
    launch.grain = 1;
    launch.schedule.add(choice::AttentionGradient{call_.of_keys, tile_.own(), tile_.across * tile_.along, tile_.passing,
                                                  tile_.engine != nullptr});
    WorkGroup group(b_, k_.function(), launch, tile_.across * tile_.along * tile_.lanes, tile_.lanes);
    group_ = &group;

    Value tile_count = k_.expression(tiles);
    first_own_ = i_.multiply(i_.modulo(group.group(), tile_count), tile_.own());
    const int64_t sharers = bindBatch(i_.divide(group.group(), tile_count));
    my_row_ = i_.multiply(i_.divide(group.subgroupIndex(), tile_.along), rows_);
    my_column_ = i_.modulo(group.subgroupIndex(), tile_.along);
    allocate();

    stageOwn();
    if (!call_.of_keys)
      loadRowSums();

    const int64_t count = tile_.blocks(tile_.depth) + (call_.of_keys ? tile_.blocks(tile_.columns) : 0);
    SmallVector<Value> totals(count, real(0));
    store(overSharers(sharers, totals, [&](SmallVector<Value> before) { return pass(std::move(before)); }));
  }

private:
  // A side of a product whose lines are rows (with the head or what passes innermost) on the engine, else the reverse.
  Side side(Value array, Value first, int64_t line) const {
    return tile_.engine ? Side{array, first, line, 1} : Side{array, first, 1, line};
  }

  void allocate() {
    for (int number : {0, 1}) {
      const int64_t size = headSize(number);
      own_arrays_[number] = group_->localArray(local_, tile_.ownElements(size));
      passing_arrays_[number] = group_->localArray(local_, tile_.passingElements(size));
      if (!multiplied(number))
        continue;
      if (tile_.engine)
        across_arrays_[number] = group_->localArray(local_, tile_.acrossElements(size));
      probability_arrays_[number] = group_->localArray(local_, tile_.probabilityElements());
    }
  }

  void stageOwn() {
    for (int number : {0, 1}) {
      const int64_t size = headSize(number);
      TileSide rows{own_, first_own_, tile_.own(), 1};
      TileSide columns{{i_.number(size), size}, i_.number(0), tile_.width(size), tile_.ownLine(size)};
      if (tile_.engine)
        std::swap(rows.step, columns.step);
      stageTile(b_, *group_, source(own(number)), local_, rows, columns, own_arrays_[number]);
    }
  }

  void stagePassing(Value first) {
    for (int number : {0, 1}) {
      const int64_t size = headSize(number);
      TileSide rows{passing_, first, tile_.passing, 1};
      TileSide columns{{i_.number(size), size}, i_.number(0), tile_.width(size), tile_.passingLine(size)};
      std::optional<TileCopy> again;
      if (tile_.engine) {
        std::swap(rows.step, columns.step);
        if (multiplied(number))
          again = TileCopy{across_arrays_[number], 1, tile_.acrossLine()};
      }
      stageTile(b_, *group_, source(passing(number)), local_, rows, columns, passing_arrays_[number], again);
    }
  }

  // Of the sub-group's own queries: each in the lane of its number.
  void loadRowSums() {
    Value query = i_.add(i_.add(first_own_, my_row_), group_->lane());
    std::tie(my_log_sum_, my_delta_) = rowSums(query, i_.less(query, queries_.value));
  }

  // Adds all that passes.
  SmallVector<Value> pass(SmallVector<Value> totals) {
    // Query i sees keys 0..i.
    Value start = i_.number(0), end = passing_.value;
    if (call_.causal && call_.of_keys)
      start = i_.multiply(i_.divide(first_own_, tile_.passing), tile_.passing);
    else if (call_.causal)
      end = i_.smaller(end, i_.add(first_own_, tile_.own()));
    auto loop = scf::ForOp::create(b_, loc_, start, end, i_.number(tile_.passing), totals);
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(loop.getBody());
    Value first = loop.getInductionVar();
    stagePassing(first);
    group_->barrier();
    emitScores(first);
    group_->barrier();
    totals = SmallVector<Value>(loop.getRegionIterArgs());
    SmallVector<Value> next;
    for (int number : {0, 1}) {
      if (!multiplied(number))
        continue;
      const int64_t size = headSize(number), blocks = tile_.blocks(size);
      Value column = i_.multiply(my_column_, blocks * tile_.lanes);
      // What passes is what is summed over now.
      Side columns = tile_.engine ? Side{across_arrays_[number], column, tile_.acrossLine(), 1}
                                  : Side{passing_arrays_[number], column, tile_.passingLine(size), 1};
      SmallVector<Value> mine(ArrayRef(totals).slice(next.size(), blocks));
      next.append(multiply(*group_, tile_.passing, side(probability_arrays_[number], my_row_, tile_.probabilityLine()),
                           columns, mine));
    }
    group_->barrier();  // before the next tiles overwrite what is read here
    scf::YieldOp::create(b_, loc_, next);
    return SmallVector<Value>(loop.getResults());
  }

  // dS and, for the values, P of this sub-group's part of the tile, to local memory.
  void emitScores(Value first) {
    const int64_t blocks = tile_.scoreBlocks();
    Value start = i_.multiply(my_column_, blocks * tile_.lanes);
    SmallVector<Value> products[2];
    for (int number : {0, 1}) {
      const int64_t size = headSize(number);
      products[number] =
          multiply(*group_, tile_.engine ? whole(size, engine_depth) : size,
                   side(own_arrays_[number], my_row_, tile_.ownLine(size)),
                   side(passing_arrays_[number], start, tile_.passingLine(size)), SmallVector<Value>(blocks, real(0)));
    }
    for (int64_t block = 0; block < blocks; ++block) {
      Value column = i_.add(i_.add(start, group_->lane()), block * tile_.lanes), other = i_.add(first, column);
      Value exists = i_.less(other, passing_.value);
      Value log_sum, delta;
      if (call_.of_keys)
        std::tie(log_sum, delta) = rowSums(other, exists);
      SmallVector<Value> probabilities, gradients;
      for (int64_t r = 0; r < rows_; ++r) {
        Value mine = i_.add(i_.add(first_own_, my_row_), r);
        if (!call_.of_keys) {
          log_sum = group_->broadcast(my_log_sum_, r);
          delta = group_->broadcast(my_delta_, r);
        }
        Value seen =
            score(element(products[0][block], r), call_.of_keys ? other : mine, call_.of_keys ? mine : other, exists);
        Value probability = exponential(seen, log_sum);
        Value difference = arith::SubFOp::create(b_, loc_, element(products[1][block], r), delta);
        probabilities.push_back(probability);
        gradients.push_back(arith::MulFOp::create(b_, loc_, probability, difference));
      }
      Type type = k_.tensor(0).element;
      if (call_.of_keys)
        storeRows(*group_, joined(probabilities), side(probability_arrays_[1], my_row_, tile_.probabilityLine()),
                  column, type);
      storeRows(*group_, joined(gradients), side(probability_arrays_[0], my_row_, tile_.probabilityLine()), column,
                type);
    }
  }

  void store(ArrayRef<Value> totals) {
    for (int number : {0, 1}) {
      if (!multiplied(number))
        continue;
      const int64_t size = headSize(number), blocks = tile_.blocks(size);
      for (int64_t block = 0; block < blocks; ++block) {
        Value column =
            i_.add(i_.add(i_.multiply(my_column_, blocks * tile_.lanes), group_->lane()), block * tile_.lanes);
        for (int64_t r = 0; r < rows_; ++r) {
          Value row = i_.add(i_.add(first_own_, my_row_), r);
          OpBuilder::InsertionGuard guard(b_);
          Value exists = i_.both(i_.less(row, own_.value), i_.less(column, i_.number(size)));
          auto branch = scf::IfOp::create(b_, loc_, exists, false);
          b_.setInsertionPointToStart(branch.thenBlock());
          Value value = element(totals[block], r);
          if (number == 0)
            value = arith::MulFOp::create(b_, loc_, value, scalar(call_.scale));
          k_.store(result(number), k_.offset(result(number), indices(result(number), row, column)), value);
        }
      }
      totals = totals.drop_front(blocks);
    }
  }

  const GradientTile tile_;
  WorkGroup* group_ = nullptr;
  Value first_own_, my_row_, my_column_;  // rows of the group and of the sub-group; the sub-group's number along
  Value my_log_sum_, my_delta_;
  // [0]: with queries and keys (and dS), [1]: with values and their gradient (and P)
  Value own_arrays_[2], passing_arrays_[2], across_arrays_[2], probability_arrays_[2];
};

}  // namespace

std::string whyNoAttentionGradient(const AttentionGradientCall& call, const TargetDescription& target) {
  if (!target.supports.products)
    return "has kernels of its own on GPU targets only";
  Type element = call.q.getElementType();
  if (!element.isF32() && !element.isF16() && !element.isBF16())
    return "no GPU kernel for elements of another type than f32, f16 and bf16";
  for (RankedTensorType operand : {call.k, call.v, call.grad})
    if (operand.getElementType() != element)
      return "operands of different types";
  const int64_t rank = call.q.getRank();
  for (RankedTensorType operand : {call.k, call.v, call.grad})
    if (rank < 3 || operand.getRank() != rank)
      return "wants q, k, v and the gradient of one rank, 3 or more";
  SmallVector<AffineExpr> q = shapeOf(call.q), k = shapeOf(call.k), v = shapeOf(call.v), grad = shapeOf(call.grad);
  if (!constantOf(q.back()) || !constantOf(v.back()) || *constantOf(q.back()) == 0 || *constantOf(v.back()) == 0)
    return "the sizes of a head must be known and not 0";
  // Keys and values are as many, which eager checks; their symbols may be two.
  if (ArrayRef(grad).drop_back() != ArrayRef(q).drop_back() || grad.back() != v.back() || k.back() != q.back() ||
      ArrayRef(v).drop_back(2) != ArrayRef(k).drop_back(2))
    return "sizes of q, k, v and the gradient that are not known to belong together";
  const size_t head = size_t(rank) - 3;
  for (size_t dim = 0; dim <= head; ++dim) {
    auto fewer = constantOf(k[dim]), all = constantOf(q[dim]);
    if (k[dim] != q[dim] && !(dim == head && fewer && all && *fewer > 0 && *all % *fewer == 0))
      return "the batches of the keys are not known to be those of the queries, with heads that divide theirs";
  }
  for (RankedTensorType sums : {call.log_sums, call.delta})
    if (!sums.getElementType().isF32() || ArrayRef(shapeOf(sums)) != ArrayRef(q).drop_back())
      return "wants an f32 for each row";
  if (call.mask) {
    Type bits = call.mask.getElementType();
    if (!bits.isInteger(1) && !bits.isF32() && !bits.isF16() && !bits.isBF16())
      return "no GPU kernel for a mask of another type than f32, f16, bf16 and i1";
    SmallVector<AffineExpr> scores(q), mask = shapeOf(call.mask);
    scores.back() = k[rank - 2];
    if (mask.size() > scores.size())
      return "the mask has more dimensions than the scores";
    for (auto [size, all] : llvm::zip(mask, ArrayRef(scores).take_back(mask.size())))
      if (size != all && constantOf(size) != 1)
        return "the mask's sizes are not known to be those of the scores";
  }
  if (!chooseFragmentGradient(call, target) && !chooseTile(call, target))
    return "heads of " + std::to_string(call.q.getShape().back()) + " and " + std::to_string(call.v.getShape().back()) +
           " elements do not fit into registers and local memory";
  return {};
}

bool joinsAttentionGradients(const AttentionGradientCall& call, const TargetDescription& target) {
  return joinsFragmentGradients(call, target);
}

FailureOr<ScheduledKernel> scheduleAttentionGradient(Operation* op, const AttentionGradientCall& call,
                                                     const TargetDescription& target) {
  auto refuse = [&](const Twine& reason) { return op->emitError() << "attention's derivative: " << reason, failure(); };
  if (std::string reason = whyNoAttentionGradient(call, target); !reason.empty())
    return refuse(reason);
  SmallVector<Type> operands{call.q, call.k, call.v, call.grad, call.log_sums, call.delta};
  if (call.mask)
    operands.push_back(call.mask);
  operands.append(call.results.begin(), call.results.end());
  CallKernel kernel(op, "attention_gradient", operands, unsigned(call.results.size()), call.layouts);
  if (!kernel.ok())
    return refuse(kernel.refusal());
  if (chooseFragmentGradient(call, target))
    scheduleFragmentGradient(call, kernel, target);
  else if (call.all)
    return refuse("three results of one launch, of lanes that hold no fragments");
  else
    GradientSchedule(call, kernel, chooseTile(call, target).value()).run();
  return kernel.finish();
}

}  // namespace zefuse
