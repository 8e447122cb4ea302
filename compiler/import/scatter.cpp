// Updates at computed places: each a zefuse.scatter, or an elementwise loop where one update per row can be found by
// comparing positions. Order is eager's (row-major over the updates). Low-precision sums are rounded where eager's are:
// index_put and the embedding's gradient at each update, scatter_add, scatter_reduce and index_add once.
#include <cmath>

#include "compiler/import/elementwise.h"
#include "compiler/import/indexing.h"
#include "compiler/import/op_table.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {
namespace {

using Combine = Scalar (*)(Scalar, Scalar);

Scalar assign(Scalar, Scalar update) { return update; }

// In the type that the element computes in, rounded at each update.
Scalar inCompute(Scalar present, Scalar update, Combine combine) {
  Type compute = fx::computeType(present.type());
  return combine(present.to(compute), update.to(compute)).to(present.type());
}
Scalar add(Scalar present, Scalar update) {
  return inCompute(present, update, [](Scalar a, Scalar b) { return a + b; });
}
Scalar multiply(Scalar present, Scalar update) {
  return inCompute(present, update, [](Scalar a, Scalar b) { return a * b; });
}
Scalar largest(Scalar present, Scalar update) {
  return inCompute(present, update, [](Scalar a, Scalar b) { return maximum(a, b); });
}
Scalar smallest(Scalar present, Scalar update) {
  return inCompute(present, update, [](Scalar a, Scalar b) { return minimum(a, b); });
}

// `index`, read through `map` at each position of `sizes`, as i64 within [0, bound). A view of as many elements as
// `index` has: several scatters by the same index share those, and see which positions share an element.
Value checked(TensorBuilder& build, Value index, AffineMap map, ArrayRef<AffineExpr> sizes, AffineExpr bound, bool wrap,
              StringRef error, StringRef message) {
  Type i64 = build.b.getI64Type();
  Value safe = build.loop({index}, build.type(shapeOf(typeOf(index)), i64), [&](Body& body, ArrayRef<Scalar> in) {
    Value place = body.checkedIndex(in[0], bound, wrap, error, message);
    return Scalar(body.b, arith::IndexCastOp::create(body.b, i64, place));
  });
  return build.view(safe, map.getResults(), sizes);
}

void requireIndex(Op& op, Value index) {
  Type element = elementOf(index);
  if (!element.isInteger(64) && !element.isInteger(32))
    op.refuse("an index of " + fx::dtypeName(element) + " is not lowered");
}

// One entry per schema argument 'indices': null where a dimension is taken whole.
SmallVector<Value> indexTensors(Op& op, int64_t rank) {
  SmallVector<Value> indices(rank);
  for (auto [position, item] : llvm::enumerate(op.argument("indices").items))
    if (item.kind != fx::Argument::Kind::none)
      indices[position] = op.tensorOf(item, "indices");
  return indices;
}

// self[mask] = value (or +=) with one value: a select.
Values putWhere(Op& op, Value self, Value mask, Value value, bool accumulate) {
  if (!isConstant(numElements(typeOf(value)), 1))
    op.refuse("values for a boolean mask (how many depends on data) are not lowered");
  int64_t rank = rankOf(self), masked = rankOf(mask);
  SmallVector<AffineExpr> leading;
  for (int64_t position = 0; position < masked; ++position)
    leading.push_back(op.build.dim(position));
  AffineMap map = AffineMap::get(rank, 0, leading, op.build.b.getContext());
  Value one = op.build.reshape(value, {});
  AffineMap none = AffineMap::get(rank, 0, {}, op.build.b.getContext());
  return {
      op.build.loop({self, Operand(mask, map), Operand(one, none)}, op.resultType(), [&](Body&, ArrayRef<Scalar> in) {
        Scalar update = in[2].to(in[0].type());
        return select(in[1], accumulate ? add(in[0], update) : update, in[0]);
      })};
}

// self[..., index, other_index, ...] = values (or +=), with the places of aten.index (indexing.cpp).
Values emitIndexPut(Op& op) {
  TensorBuilder& build = op.build;
  Value self = op.tensor("self"), values = op.tensor("values");
  bool accumulate = op.boolean("accumulate");
  int64_t rank = rankOf(self);
  SmallVector<Value> indices = indexTensors(op, rank);
  auto given = llvm::count_if(indices, [](Value index) { return bool(index); });
  if (given == 0)
    op.refuse("no index is given");
  if (given == 1 && indices[0] && elementOf(indices[0]).isInteger(1))
    return putWhere(op, self, indices[0], values, accumulate);

  int64_t first = -1, last = -1, broadcast_rank = 0;
  for (int64_t position = 0; position < rank; ++position) {
    if (!indices[position])
      continue;
    if (elementOf(indices[position]).isInteger(1))
      op.refuse("a boolean mask among several indices is not lowered");
    requireIndex(op, indices[position]);
    broadcast_rank = std::max(broadcast_rank, rankOf(indices[position]));
    first = first < 0 ? position : first;
    last = position;
  }
  int64_t start = last - first + 1 == given ? first : 0;
  Exprs sizes, broadcast(broadcast_rank, build.constant(1));
  auto self_sizes = shapeOf(typeOf(self));
  for (Value index : indices)
    if (index)
      for (auto [position, size] : llvm::enumerate(shapeOf(typeOf(index))))
        if (AffineExpr& joint = broadcast[broadcast_rank - rankOf(index) + position]; isConstant(joint, 1))
          joint = size;
  for (int64_t position = 0; position < rank; ++position)
    if (!indices[position])
      sizes.push_back(self_sizes[position]);
  sizes.insert(sizes.begin() + start, broadcast.begin(), broadcast.end());
  const AffineExpr together = numElements(broadcast, build.b.getContext());

  Exprs coordinates;
  SmallVector<Value> safe;
  for (int64_t position = 0, plain = 0; position < rank; ++position) {
    Value index = indices[position];
    if (!index) {
      coordinates.push_back(build.dim(plain < start ? plain : plain + broadcast_rank));
      ++plain;
      continue;
    }
    SmallVector<AffineExpr> dims;
    int64_t offset = start + broadcast_rank - rankOf(index);
    for (auto [inner, size] : llvm::enumerate(shapeOf(typeOf(index))))
      dims.push_back(isConstant(size, 1) ? build.constant(0) : build.dim(offset + inner));
    coordinates.push_back(build.dim(sizes.size() + safe.size()));
    requirePlaces(op, together, self_sizes[position], "index_error", outOfBounds(position, self_sizes[position]));
    safe.push_back(checked(build, index, AffineMap::get(sizes.size(), 0, dims, build.b.getContext()), sizes,
                           self_sizes[position], true, "index_error", outOfBounds(position, self_sizes[position])));
  }
  Value updates = build.expand(build.convert(values, op.element()), sizes);
  return {build.scatter(self, updates, safe, coordinates, accumulate ? add : assign)};
}

// One update per row along `dim`: compare positions instead, so that the loop fuses with its neighbours.
Value scatterOne(Op& op, Value self, int64_t dim, Value index, Value updates, Combine combine) {
  TensorBuilder& build = op.build;
  AffineExpr bound = shapeOf(typeOf(self))[dim];
  SmallVector<AffineExpr> row;
  for (int64_t position = 0; position < rankOf(self); ++position)
    row.push_back(position == dim || isConstant(shapeOf(typeOf(index))[position], 1) ? build.constant(0)
                                                                                     : build.dim(position));
  AffineMap map = AffineMap::get(rankOf(self), 0, row, build.b.getContext());
  return build.loop({self, Operand(index, map), Operand(updates, map)}, typeOf(self),
                    [&](Body& body, ArrayRef<Scalar> in) {
                      Value at = body.checkedIndex(in[1], bound, false, "index_error", outOfBounds(dim, bound));
                      Scalar place(body.b, arith::IndexCastOp::create(body.b, body.b.getI64Type(), at));
                      return select(place == body.position(dim), combine(in[0], in[2]), in[0]);
                    });
}

// self[u with index[u] at dim] combined with updates[u], for each position u of index.
Value scatterAlong(Op& op, Value self, int64_t dim, Value index, Value updates, Combine combine) {
  TensorBuilder& build = op.build;
  requireIndex(op, index);
  auto sizes = shapeOf(typeOf(index)), self_sizes = shapeOf(typeOf(self));
  requirePlaces(op, numElements(typeOf(index)), self_sizes[dim], "index_error", outOfBounds(dim, self_sizes[dim]));
  bool one = isConstant(sizes[dim], 1);
  for (int64_t position = 0; position < rankOf(self); ++position)
    one &= position == dim || sizes[position] == self_sizes[position];
  if (one)
    return scatterOne(op, self, dim, index, updates, combine);
  Exprs coordinates;
  for (int64_t position = 0; position < rankOf(self); ++position)
    coordinates.push_back(build.dim(position == dim ? rankOf(self) : position));
  AffineMap identity = build.b.getMultiDimIdentityMap(rankOf(index));
  Value safe =
      checked(build, index, identity, sizes, self_sizes[dim], false, "index_error", outOfBounds(dim, self_sizes[dim]));
  return build.scatter(self, updates, {safe}, coordinates, combine);
}

struct Along {
  Value self, index, source;  // source: in index's shape and self's type
  int64_t dim;
};

// What sums are kept in while more updates come.
Type accumulator(Type element) { return isa<FloatType>(element) ? fx::computeType(element) : element; }

// A 0-d operand stands for a line of one element.
Value lineOf(Op& op, Value tensor) { return rankOf(tensor) == 0 ? op.build.unsqueeze(tensor, {0}) : tensor; }

// self and source are converted to `type`. They have at least one dimension, where the result may have none.
Along alongOf(Op& op, StringRef source, Type type) {
  TensorBuilder& build = op.build;
  Along along{lineOf(op, op.tensor("self")), lineOf(op, op.tensor("index")), Value(), 0};
  along.dim = op.dim("dim", rankOf(along.self));
  along.self = build.convert(along.self, type);
  Exprs sizes(shapeOf(typeOf(along.index)));
  TensorOrNumber given = op.operand(source);
  if (given.tensor) {
    Exprs indices;
    for (int64_t position = 0; position < rankOf(along.index); ++position)
      indices.push_back(build.dim(position));
    along.source = build.convert(build.view(lineOf(op, given.tensor), indices, sizes), type);
  } else {
    along.source = build.loop({}, build.type(sizes, type),
                              [&](Body& body, ArrayRef<Scalar>) { return loadNumber(body, given.number, type); });
  }
  return along;
}

Values emitScatter(Op& op, StringRef source, Combine combine) {
  Along along = alongOf(op, source, combine == assign ? op.element() : accumulator(op.element()));
  Value result = scatterAlong(op, along.self, along.dim, along.index, along.source, combine);
  return {op.build.reshape(op.build.convert(result, op.element()), shapeOf(op.resultType()))};
}

Values emitScatterReduced(Op& op, StringRef source) {
  StringRef reduce = op.text("reduce");
  if (reduce != "add" && reduce != "multiply")
    op.refuse("argument reduce='" + reduce + "' is not lowered");
  return emitScatter(op, source, reduce == "add" ? add : multiply);
}

Values emitScatterReduce(Op& op) {
  TensorBuilder& build = op.build;
  StringRef reduce = op.text("reduce");
  Type element = accumulator(op.element());
  Along along = alongOf(op, "src", element);
  bool mean = reduce == "mean";
  Combine combine = mean || reduce == "sum" ? add : reduce == "prod" ? multiply : reduce == "amax" ? largest : smallest;
  if (mean && !isa<FloatType>(element))
    op.refuse("argument reduce='mean' of " + fx::dtypeName(element) + " is not lowered");
  bool include = op.boolean("include_self");
  Value init = along.self;
  if (!include) {  // what is updated starts from the first update's neutral element
    double neutral = reduce == "prod" ? 1 : reduce == "amax" ? -HUGE_VAL : reduce == "amin" ? HUGE_VAL : 0;
    Value fill = build.loop({}, typeOf(along.source), [&](Body& body, ArrayRef<Scalar>) {
      if (isa<FloatType>(element) || std::isfinite(neutral))
        return body.constant(element, neutral);
      unsigned width = element.getIntOrFloatBitWidth();
      bool is_signed = !element.isUnsignedInteger() && width > 1;
      APInt limit = is_signed ? (neutral < 0 ? APInt::getSignedMinValue(width) : APInt::getSignedMaxValue(width))
                              : (neutral < 0 ? APInt::getMinValue(width) : APInt::getMaxValue(width));
      return constantScalar(body.b, element, is_signed ? limit.getSExtValue() : int64_t(limit.getZExtValue()));
    });
    init = scatterAlong(op, init, along.dim, along.index, fill, assign);
  }
  Value result = scatterAlong(op, init, along.dim, along.index, along.source, combine);
  auto returned = [&](Value made) { return Values{build.reshape(made, shapeOf(op.resultType()))}; };
  if (!mean)
    return returned(build.convert(result, op.element()));
  Type i64 = build.b.getI64Type();
  RankedTensorType counted = withElement(typeOf(result), i64);
  Value ones = build.full(withElement(typeOf(along.source), i64), 1);
  Value counts = scatterAlong(op, build.full(counted, include ? 1 : 0), along.dim, along.index, ones, add);
  RankedTensorType made = withElement(typeOf(result), op.element());
  return returned(build.loop({result, counts}, made, [&](Body&, ArrayRef<Scalar> in) {
    return (in[0] / select(in[1] == 0, in[1].constant(1), in[1]).to(element)).to(op.element());
  }));
}

// self[..., index[i], ...] += alpha * source[..., i, ...].
Values emitIndexAdd(Op& op) {
  TensorBuilder& build = op.build;
  Value self = lineOf(op, op.tensor("self")), index = lineOf(op, op.tensor("index")),
        source = lineOf(op, op.tensor("source"));
  int64_t rank = rankOf(self), dim = op.dim("dim", rank);
  requireIndex(op, index);
  if (rankOf(index) != 1 || rankOf(source) != rank)
    op.refuse("operands of rank " + Twine(rank) + " and " + Twine(rankOf(source)) + " are not lowered");
  if (rank > 1 && isConstant(numElements(typeOf(self)), 0))  // eager adds nothing, wherever it should
    return {self};
  TensorOrNumber alpha = op.operand("alpha");
  Type type = accumulator(op.element());
  source = build.convert(source, type);
  if (alpha.number.kind != fx::Argument::Kind::integer || alpha.number.integer != 1)
    source = build.loop({source}, typeOf(source), [&](Body& body, ArrayRef<Scalar> in) {
      Type compute = fx::computeType(type);
      return (in[0].to(compute) * loadNumber(body, alpha.number, compute)).to(type);
    });
  auto sizes = shapeOf(typeOf(source));
  AffineExpr bound = shapeOf(typeOf(self))[dim];
  Value safe = checked(build, index, AffineMap::get(rank, 0, build.dim(dim)), sizes, bound, false, "index_error",
                       "index out of range in self");
  Exprs coordinates;
  for (int64_t position = 0; position < rank; ++position)
    coordinates.push_back(build.dim(position == dim ? rank : position));
  Value result = build.scatter(build.convert(self, type), source, {safe}, coordinates, add);
  return {build.reshape(build.convert(result, op.element()), shapeOf(op.resultType()))};
}

// self[..., index[i], ...] = source[..., i, ...], where `source` has the sizes of what is written. `wrap`: a negative
// index counts from the end. Eager looks at an index where it writes an element, and so at none where another size is
// 0.
Values writeAlong(Op& op, Value self, Value source, int64_t dim, Value index, bool wrap) {
  TensorBuilder& build = op.build;
  auto sizes = shapeOf(typeOf(source));
  const AffineExpr bound = shapeOf(typeOf(self))[dim];
  requirePlaces(op, numElements(typeOf(source)), bound, "index_error", outOfBounds(dim, bound));
  AffineMap map = AffineMap::get(rankOf(self), 0, build.dim(dim));
  Value safe = checked(build, index, map, sizes, bound, wrap, "index_error", outOfBounds(dim, bound));
  Exprs coordinates;
  for (int64_t position = 0; position < rankOf(self); ++position)
    coordinates.push_back(build.dim(position == dim ? rankOf(self) : position));
  Value result = build.scatter(self, source, {safe}, coordinates, assign);
  return {build.reshape(result, shapeOf(op.resultType()))};
}

// A line of 64-bit numbers: eager takes no others.
Value lineOfPlaces(Op& op) {
  Value index = lineOf(op, op.tensor("index"));
  if (rankOf(index) != 1 || !elementOf(index).isInteger(64))
    op.refuse("an index of " + fx::dtypeName(elementOf(index)) + " and rank " + Twine(rankOf(index)) +
              " is not lowered");
  return index;
}

Values emitIndexCopy(Op& op) {
  Value self = lineOf(op, op.tensor("self")), source = lineOf(op, op.tensor("source")), index = lineOfPlaces(op);
  int64_t rank = rankOf(self);
  if (rankOf(source) != rank)
    op.refuse("operands of rank " + Twine(rank) + " and " + Twine(rankOf(source)) + " are not lowered");
  return writeAlong(op, self, op.build.convert(source, op.element()), op.dim("dim", rank), index, false);
}

Values emitIndexFill(Op& op) {
  TensorBuilder& build = op.build;
  Value self = lineOf(op, op.tensor("self")), index = lineOfPlaces(op);
  int64_t dim = op.dim("dim", rankOf(self));
  Exprs sizes(shapeOf(typeOf(self)));
  sizes[dim] = numElements(typeOf(index));
  TensorOrNumber value = op.operand("value");
  Value source = value.tensor ? build.expand(build.convert(value.tensor, op.element()), sizes)
                              : build.loop({}, build.type(sizes, op.element()), [&](Body& body, ArrayRef<Scalar>) {
                                  return loadNumber(body, value.number, op.element());
                                });
  return writeAlong(op, self, source, dim, index, true);
}

Values emitEmbeddingBackward(Op& op) {
  TensorBuilder& build = op.build;
  Value grad = op.tensor("grad_output"), indices = op.tensor("indices");
  requireIndex(op, indices);
  if (op.boolean("scale_grad_by_freq"))
    op.refuse("argument scale_grad_by_freq=True is not lowered");
  RankedTensorType result = op.resultType();
  auto result_sizes = shapeOf(result);
  Exprs sizes(shapeOf(typeOf(indices))), dims;
  for (size_t position = 0; position < sizes.size(); ++position)
    dims.push_back(build.dim(position));
  sizes.push_back(result_sizes[1]);
  AffineMap map = AffineMap::get(sizes.size(), 0, dims, build.b.getContext());
  int64_t padding = op.integer("padding_idx");
  Value updates = build.reshape(build.convert(grad, op.element()), sizes);
  if (padding >= 0)
    updates = build.loop({updates, Operand(indices, map)}, typeOf(updates), [&](Body&, ArrayRef<Scalar> in) {
      return select(in[1] == static_cast<double>(padding), in[0].constant(0), in[0]);
    });
  Value safe = checked(build, indices, map, sizes, result_sizes[0], false, "index_error", "index out of range in self");
  return {build.scatter(build.full(result, 0), updates, {safe}, {build.dim(sizes.size()), build.dim(sizes.size() - 1)},
                        add)};
}

// The places of a strided view of a contiguous tensor: a scatter without indices.
Values emitAsStridedScatter(Op& op) {
  TensorBuilder& build = op.build;
  Value self = op.tensor("self"), src = build.convert(op.tensor("src"), op.element());
  const fx::TensorMeta& meta = op.metaOf("self");
  auto sizes = shapeOf(typeOf(self));
  for (auto [size, stride, packed] : llvm::zip(sizes, meta.strides, contiguousStrides(sizes, build.b.getContext())))
    if (!isConstant(size, 1) && AffineExpr(stride) != packed)
      op.refuse("a source that is not contiguous is not lowered");
  if (!isConstant(op.memoryOf("self").offset, 0))
    op.refuse("a source inside a larger storage is not lowered");
  requireSizesOfPart(op, src, op.sizes("size"));
  AffineExpr linear = op.isNone("storage_offset") ? build.constant(0) : op.size("storage_offset");
  for (auto [position, stride] : llvm::enumerate(op.sizes("stride")))
    linear = linear + build.dim(position) * stride;
  AffineExpr count = numElements(typeOf(self));
  Value flat = build.scatter(build.reshape(self, {count}), src, {}, {linear}, assign);
  return {build.reshape(flat, sizes)};
}

// Null where it is not known.
AffineExpr diagonalLength(TensorBuilder& build, AffineExpr rows, AffineExpr columns, int64_t offset) {
  auto height = dyn_cast<AffineConstantExpr>(rows), width = dyn_cast<AffineConstantExpr>(columns);
  if (height && width)
    return build.constant(std::max<int64_t>(
        std::min(height.getValue() + std::min<int64_t>(offset, 0), width.getValue() - std::max<int64_t>(offset, 0)),
        0));
  return sameValue(rows, columns) ? rows - std::abs(offset) : nullptr;
}

Values emitDiagonalScatter(Op& op) {
  TensorBuilder& build = op.build;
  Value self = op.tensor("self"), src = build.convert(op.tensor("src"), op.element());
  int64_t rank = rankOf(self), first = op.dim("dim1", rank), second = op.dim("dim2", rank),
          offset = op.integer("offset");
  if (first == second)
    op.refuse("one dimension twice is not lowered");
  Exprs part;
  auto sizes = shapeOf(typeOf(self));
  for (auto [position, size] : llvm::enumerate(sizes))
    if (position != size_t(first) && position != size_t(second))
      part.push_back(size);
  part.push_back(diagonalLength(build, sizes[first], sizes[second], offset));
  requireSizesOfPart(op, src, part);
  Exprs coordinates;
  AffineExpr along = build.dim(rankOf(src) - 1);
  for (int64_t position = 0, kept = 0; position < rank; ++position)
    coordinates.push_back(position == first    ? along + std::max<int64_t>(-offset, 0)
                          : position == second ? along + std::max<int64_t>(offset, 0)
                                               : build.dim(kept++));
  return {build.scatter(self, src, {}, coordinates, assign)};
}

}  // namespace

void registerScatter(OpTable& table) {
  table.add("aten.index_put.default", emitIndexPut);
  table.add("aten._unsafe_index_put.default", emitIndexPut);
  table.add("aten.index_add.default", emitIndexAdd);
  table.add("aten.index_copy.default", emitIndexCopy);
  table.add("aten.index_fill.int_Scalar", emitIndexFill);
  table.add("aten.index_fill.int_Tensor", emitIndexFill);
  table.add("aten.scatter.src", [](Op& op) { return emitScatter(op, "src", assign); });
  table.add("aten.scatter.value", [](Op& op) { return emitScatter(op, "value", assign); });
  table.add("aten.scatter.reduce", [](Op& op) { return emitScatterReduced(op, "src"); });
  table.add("aten.scatter.value_reduce", [](Op& op) { return emitScatterReduced(op, "value"); });
  table.add("aten.scatter_add.default", [](Op& op) { return emitScatter(op, "src", add); });
  table.add("aten.scatter_reduce.two", emitScatterReduce);
  table.add("aten.embedding_dense_backward.default", emitEmbeddingBackward);
  table.add("aten.as_strided_scatter.default", emitAsStridedScatter);
  table.add("aten.diagonal_scatter.default", emitDiagonalScatter);
}

}  // namespace zefuse
