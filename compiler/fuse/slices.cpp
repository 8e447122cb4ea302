#include "compiler/fuse/slices.h"

#include "compiler/builder/tensor_builder.h"
#include "compiler/fuse/graph.h"
#include "lowering/analysis/dataflow.h"
#include "lowering/analysis/element_types.h"
#include "lowering/dialect/simplify.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace zefuse {

std::optional<SmallVector<AffineExpr>> loopSizes(linalg::GenericOp op) {
  if (!isReduction(op) || op.getNumResults() != 1 || !combinerOf(op).op || !initOf(op))
    return std::nullopt;
  // Partial results start from the combiner's neutral element, as the whole does.
  TypedAttr init;
  if (!matchPattern(initOf(op), m_Constant(&init)) || init != neutralElement(combinerOf(op).op))
    return std::nullopt;
  auto indexed = op.getBody()->walk([](linalg::IndexOp) { return WalkResult::interrupt(); });
  if (indexed.wasInterrupted())
    return std::nullopt;
  SmallVector<AffineExpr> sizes(op.getNumLoops());
  for (OpOperand* input : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(input);
    for (auto [expr, size] : llvm::zip_equal(map.getResults(), shapeOf(cast<RankedTensorType>(input->get().getType()))))
      if (auto dim = dyn_cast<AffineDimExpr>(expr))
        sizes[dim.getPosition()] = size;
      else if (!isa<AffineConstantExpr>(expr))
        return std::nullopt;
  }
  if (llvm::is_contained(sizes, AffineExpr()))
    return std::nullopt;
  return sizes;
}

namespace {

/// Elements start to start + size along a dimension. What is elementwise is computed anew for them, so that the part
/// and the rest of a tensor that is read nowhere else are not one in memory.
Value sliceOf(TensorBuilder& build, Value value, unsigned dim, AffineExpr start, AffineExpr size) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<AffineExpr> sizes = shapeOf(type);
  sizes[dim] = size;
  auto op = value.getDefiningOp<linalg::GenericOp>();
  // Along which dimension of an operand; none: it does not vary.
  auto dimOf = [&](OpOperand* input) -> std::optional<unsigned> {
    for (auto [position, expr] : llvm::enumerate(op.getMatchingIndexingMap(input).getResults()))
      if (expr == build.dim(dim))
        return position;
    return std::nullopt;
  };
  bool elementwise = op && !isReduction(op) && op.getNumResults() == 1 && op.getIndexingMapsArray().back().isIdentity();
  if (elementwise)
    for (OpOperand* input : op.getDpsInputOperands())
      elementwise &= llvm::count_if(op.getMatchingIndexingMap(input).getResults(), [&](AffineExpr expr) {
                       return expr.isFunctionOfDim(dim);
                     }) == (dimOf(input) ? 1 : 0);
  if (!elementwise) {
    SmallVector<AffineExpr> source;
    for (unsigned position = 0; position < sizes.size(); ++position)
      source.push_back(position == dim ? start + build.dim(position) : build.dim(position));
    return build.view(value, source, sizes);
  }
  SmallVector<Value> inputs;
  for (OpOperand* input : op.getDpsInputOperands()) {
    auto position = dimOf(input);
    inputs.push_back(position ? sliceOf(build, input->get(), *position, start, size) : input->get());
  }
  RankedTensorType sliced = build.type(sizes, type.getElementType());
  auto copy = linalg::GenericOp::create(build.b, op.getLoc(), TypeRange{sliced}, inputs, build.empty(sliced),
                                        op.getIndexingMapsArray(), op.getIteratorTypesArray());
  IRMapping mapping;
  op.getRegion().cloneInto(&copy.getRegion(), mapping);
  SmallVector<linalg::IndexOp> positions;
  copy.walk([&](linalg::IndexOp index) {
    if (index.getDim() == dim)
      positions.push_back(index);
  });
  for (linalg::IndexOp index : positions) {
    OpBuilder inner(index->getContext());
    inner.setInsertionPointAfter(index);
    TensorBuilder inside(index.getLoc(), inner, build.num_symbols);
    Value first = isa<AffineConstantExpr>(start)
                      ? Value(arith::ConstantIndexOp::create(inside.b, cast<AffineConstantExpr>(start).getValue()))
                      : inside.size(start);
    auto moved = arith::AddIOp::create(inside.b, index, first);
    index.getResult().replaceAllUsesExcept(moved, moved);
  }
  return copy.getResult(0);
}

/// The reduction's inputs with a loop cut into `count` pieces of `length` rounds: the piece is a loop of its own,
/// before that loop.
void readPieces(TensorBuilder& build, linalg::GenericOp op, const Split& plan, SmallVector<Value>& inputs,
                SmallVector<AffineMap>& maps) {
  auto moved = [&](unsigned loop) { return build.dim(loop <= *plan.loop ? loop : loop + 1); };
  for (OpOperand* input : op.getDpsInputOperands()) {
    SmallVector<AffineExpr> indices, source, sizes;
    auto next = [&](AffineExpr size, AffineExpr index) {
      sizes.push_back(size);
      indices.push_back(index);
      return build.dim(sizes.size() - 1);
    };
    auto shape = shapeOf(typeOf(input->get()));
    for (auto [expr, size] : llvm::zip_equal(op.getMatchingIndexingMap(input).getResults(), shape)) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      if (!dim || dim.getPosition() != *plan.loop) {
        source.push_back(next(size, dim ? moved(dim.getPosition()) : expr));
        continue;
      }
      AffineExpr piece = next(build.constant(plan.slices), build.dim(*plan.loop));
      source.push_back(piece * plan.length + next(plan.length, build.dim(*plan.loop + 1)));
    }
    inputs.push_back(build.view(input->get(), source, sizes));
    maps.push_back(AffineMap::get(op.getNumLoops() + 1, 0, indices, op.getContext()));
  }
}

/// The inputs past all pieces.
SmallVector<Value> readRest(TensorBuilder& build, linalg::GenericOp op, const Split& plan) {
  SmallVector<Value> inputs;
  for (OpOperand* input : op.getDpsInputOperands()) {
    Value value = input->get();
    for (auto [position, expr] : llvm::enumerate(op.getMatchingIndexingMap(input).getResults()))
      if (expr == build.dim(*plan.loop))
        value = sliceOf(build, value, position, plan.length * plan.slices, plan.rest);
    inputs.push_back(value);
  }
  return inputs;
}

Value reduceTo(TensorBuilder& build, linalg::GenericOp like, RankedTensorType type, ArrayRef<Value> inputs,
               ArrayRef<AffineMap> maps, ArrayRef<utils::IteratorType> iterators) {
  auto init = linalg::FillOp::create(build.b, initOf(like), build.empty(type));
  auto reduction = linalg::GenericOp::create(build.b, TypeRange{type}, inputs, init.getResults(), maps, iterators);
  IRMapping mapping;
  like.getRegion().cloneInto(&reduction.getRegion(), mapping);
  return reduction.getResult(0);
}

/// The values' combination: over the loops that `iterators` reduce, or element by element.
Value combined(TensorBuilder& build, Operation* combiner, TypeRange type, ValueRange inputs, Value init,
               ArrayRef<AffineMap> maps, ArrayRef<utils::IteratorType> iterators) {
  return linalg::GenericOp::create(build.b, type, inputs, init, maps, iterators,
                                   [&](OpBuilder& inner, Location at, ValueRange arguments) {
                                     Operation* combined = inner.clone(*combiner);
                                     combined->setOperands(arguments.take_front(2));
                                     linalg::YieldOp::create(inner, at, combined->getResults());
                                   })
      .getResult(0);
}

/// What slices give: a tensor of the reduction's results for each of them.
struct Partials {
  Value value;
  SmallVector<Value> inputs;    // of the loops, of which a cut one is two
  SmallVector<AffineMap> maps;  // theirs, and the partial results'
  SmallVector<utils::IteratorType> iterators;
  SmallVector<AffineExpr> sizes;  // of the loops
};

Partials partialResults(TensorBuilder& build, linalg::GenericOp op, const Split& plan) {
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  Partials made;
  made.sizes = *loopSizes(op);
  const unsigned loops = op.getNumLoops(), added = plan.loop ? 1 : 0;
  if (plan.loop) {
    readPieces(build, op, plan, made.inputs, made.maps);
  } else {
    made.inputs.assign(op.getInputs().begin(), op.getInputs().end());
    made.maps.assign(op.getIndexingMapsArray());
    made.maps.pop_back();
  }
  auto moved = [&](unsigned loop) { return plan.loop && loop > *plan.loop ? loop + 1 : loop; };
  made.iterators.assign(op.getIteratorTypesArray());
  SmallVector<AffineExpr> partial_sizes, indices, partial_loops;
  for (unsigned loop = 0; loop < loops; ++loop)
    if (plan.isSlice(loop)) {
      bool cut = plan.loop == loop;
      partial_sizes.push_back(cut ? build.constant(plan.slices) : made.sizes[loop]);
      partial_loops.push_back(build.dim(moved(loop)));
      if (!cut)
        made.iterators[loop] = utils::IteratorType::parallel;
    }
  if (plan.loop) {
    made.iterators.insert(made.iterators.begin() + *plan.loop, utils::IteratorType::parallel);
    made.sizes[*plan.loop] = plan.length;
    made.sizes.insert(made.sizes.begin() + *plan.loop, build.constant(plan.slices));
  }
  for (AffineExpr expr : op.getIndexingMapsArray().back().getResults())
    indices.push_back(build.dim(moved(cast<AffineDimExpr>(expr).getPosition())));
  SmallVector<AffineExpr> shape = shapeOf(type);
  shape.insert(plan.partials_innermost ? shape.end() : shape.begin(), partial_sizes.begin(), partial_sizes.end());
  indices.insert(plan.partials_innermost ? indices.end() : indices.begin(), partial_loops.begin(), partial_loops.end());
  made.maps.push_back(AffineMap::get(loops + added, 0, indices, op.getContext()));
  made.value = reduceTo(build, op, build.type(shape, type.getElementType()), made.inputs, made.maps, made.iterators);
  return made;
}

/// Of the loops over partial results those of the whole's results.
AffineMap wholeOf(TensorBuilder& build, const Split& plan, unsigned parts, unsigned rank) {
  SmallVector<AffineExpr> result;
  for (unsigned dim = 0; dim < rank; ++dim)
    result.push_back(build.dim((plan.partials_innermost ? 0 : parts) + dim));
  return AffineMap::get(rank + parts, 0, result, build.b.getContext());
}

/// The reduction of partial results.
Value wholeResults(TensorBuilder& build, linalg::GenericOp op, const Split& plan, Value partial) {
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  const auto rank = unsigned(type.getRank());
  const unsigned all = rankOf(partial), parts = all - rank;
  SmallVector<utils::IteratorType> outer(all, utils::IteratorType::parallel);
  std::fill_n(outer.begin() + (plan.partials_innermost ? rank : 0), parts, utils::IteratorType::reduction);
  return combined(build, combinerOf(op).op, type, partial, op.getOutputs()[0],
                  {build.b.getMultiDimIdentityMap(all), wholeOf(build, plan, parts, rank)}, outer);
}

void noteSlices(Value partial) {
  partial.getDefiningOp()->setAttr(
      "zefuse.note", StringAttr::get(partial.getContext(), "partial results of slices, which the next kernel combines: "
                                                           "too few results to fill the device"));
}

void walkedWithSlices(Value elements) {
  elements.getDefiningOp()->setAttr(with_slices, UnitAttr::get(elements.getContext()));
}

void replace(linalg::GenericOp op, Value whole, bool for_groups) {
  op.getResult(0).replaceAllUsesWith(whole);
  whole.getDefiningOp()->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  if (for_groups)
    whole.getDefiningOp()->setAttr(few_results, UnitAttr::get(op.getContext()));
  op.erase();
}

//===-- a mean and the deviations from it --------------------------------------------------------===//

/// Whether `op` is elementwise and yields what `matches` takes, of `inputs` tensors.
bool yields(linalg::GenericOp op, unsigned inputs, llvm::function_ref<bool(Value, Block&)> matches) {
  return op && !isReduction(op) && op.getNumDpsInputs() == inputs && op.getNumResults() == 1 &&
         op.getIndexingMapsArray().back().isIdentity() &&
         matches(op.getBody()->getTerminator()->getOperand(0), *op.getBody());
}

bool isSum(linalg::GenericOp op) {
  return op && isReduction(op) && loopSizes(op) && isa<arith::AddFOp>(combinerOf(op).op) && op.getNumDpsInputs() == 1 &&
         op.getIndexingMapsArray().front().isIdentity();
}

}  // namespace

void splitReduction(linalg::GenericOp op, const Split& plan, unsigned num_symbols, bool for_groups) {
  OpBuilder builder(op);
  TensorBuilder build(op.getLoc(), builder, num_symbols);
  auto type = cast<RankedTensorType>(op.getResult(0).getType());
  Value partial = partialResults(build, op, plan).value;
  if (for_groups)
    noteSlices(partial);
  Value whole = wholeResults(build, op, plan, partial);
  if (plan.loop && !isConstant(plan.rest, 0)) {
    Value rest =
        reduceTo(build, op, type, readRest(build, op, plan), op.getIndexingMapsArray(), op.getIteratorTypesArray());
    AffineMap same = build.b.getMultiDimIdentityMap(type.getRank());
    whole = combined(build, combinerOf(op).op, type, {whole, rest}, build.empty(type), {same, same, same},
                     SmallVector<utils::IteratorType>(type.getRank(), utils::IteratorType::parallel));
  }
  replace(op, whole, for_groups);
}

std::optional<Deviations> deviationsFromMeanOf(linalg::GenericOp sum) {
  if (!isSum(sum))
    return std::nullopt;
  const AffineMap kept = sum.getIndexingMapsArray().back();
  for (Operation* divided : sum.getResult(0).getUsers()) {
    auto mean = dyn_cast<linalg::GenericOp>(divided);
    if (!yields(mean, 1, [](Value value, Block& body) {
          auto division = value.getDefiningOp<arith::DivFOp>();
          return division && division.getLhs() == body.getArgument(0) && matchPattern(division.getRhs(), m_Constant());
        }))
      continue;
    for (Operation* squared : mean.getResult(0).getUsers()) {
      auto squares = dyn_cast<linalg::GenericOp>(squared);
      if (!yields(squares, 2,
                  [](Value value, Block& body) {
                    auto product = value.getDefiningOp<arith::MulFOp>();
                    auto centred = product ? product.getLhs().getDefiningOp<arith::SubFOp>() : nullptr;
                    return centred && product.getRhs() == product.getLhs() && centred.getLhs() == body.getArgument(0) &&
                           centred.getRhs() == body.getArgument(1);
                  }) ||
          squares.getInputs()[0] != sum.getInputs()[0] || squares.getInputs()[1] != mean.getResult(0) ||
          !squares.getIndexingMapsArray()[0].isIdentity() || squares.getIndexingMapsArray()[1] != kept ||
          !squares->hasOneUse())
        continue;
      auto of_squares = dyn_cast<linalg::GenericOp>(*squares->user_begin());
      if (isSum(of_squares) && of_squares.getIndexingMapsArray() == sum.getIndexingMapsArray() &&
          of_squares.getIteratorTypesArray() == sum.getIteratorTypesArray())
        return Deviations{mean.getResult(0), of_squares};
    }
  }
  return std::nullopt;
}

void splitDeviations(linalg::GenericOp sum, Deviations deviations, const Split& plan, unsigned num_symbols) {
  OpBuilder builder(sum);
  TensorBuilder build(sum.getLoc(), builder, num_symbols);
  auto type = cast<RankedTensorType>(sum.getResult(0).getType());
  Partials sums = partialResults(build, sum, plan);
  noteSlices(sums.value);
  AffineExpr count = build.constant(1);
  for (auto [size, iterator] : llvm::zip(sums.sizes, sums.iterators))
    if (iterator == utils::IteratorType::reduction)
      count = count * size;
  count = simplifyAffine(count, 0, num_symbols);
  auto elements = [&](Body& body) {
    auto known = dyn_cast<AffineConstantExpr>(count);
    return known ? body.constant(type.getElementType(), double(known.getValue()))
                 : body.size(count).to(type.getElementType());
  };
  auto ownMean = [&](Body& body, Scalar own_sum) { return own_sum / elements(body); };
  Value own_means = build.loop({sums.value}, typeOf(sums.value),
                               [&](Body& body, ArrayRef<Scalar> in) { return ownMean(body, in[0]); });
  Value squares = build.loop({Operand(sums.inputs[0], sums.maps[0]), Operand(own_means, sums.maps.back())},
                             build.type(sums.sizes, type.getElementType()), [&](Body&, ArrayRef<Scalar> in) {
                               Scalar centred = in[0] - in[1];
                               return centred * centred;
                             });
  walkedWithSlices(squares);
  Value inside = reduceTo(build, deviations.sum, typeOf(sums.value), squares,
                          {build.b.getMultiDimIdentityMap(sums.sizes.size()), sums.maps.back()}, sums.iterators);
  noteSlices(inside);
  replace(sum, wholeResults(build, sum, plan, sums.value), /*for_groups=*/true);

  build.b.setInsertionPoint(deviations.sum);
  const auto rank = unsigned(type.getRank());
  AffineMap whole = wholeOf(build, plan, unsigned(rankOf(inside)) - rank, rank);
  Value between =
      build.loop({sums.value, Operand(deviations.mean, whole)}, typeOf(inside), [&](Body& body, ArrayRef<Scalar> in) {
        Scalar centred = ownMean(body, in[0]) - in[1];
        return centred * centred * elements(body);
      });
  walkedWithSlices(between);
  Value both[] = {wholeResults(build, deviations.sum, plan, inside),
                  wholeResults(build, deviations.sum, plan, between)};
  for (Value value : both)
    value.getDefiningOp()->setAttr(few_results, builder.getUnitAttr());
  Operation* squares_from_whole = deviations.sum.getInputs()[0].getDefiningOp();
  replace(deviations.sum,
          build.loop({both[0], both[1]}, type, [](Body&, ArrayRef<Scalar> in) { return in[0] + in[1]; }),
          /*for_groups=*/true);
  squares_from_whole->erase();
}

}  // namespace zefuse
