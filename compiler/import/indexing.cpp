// Gathers: loops that read an index tensor, check it, and extract from the source. The messages are eager's, without
// the offending value, which is known only inside the kernel.
#include "compiler/import/indexing.h"

#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {

std::string outOfBounds(int64_t dim, AffineExpr size) {
  std::string text = "index is out of bounds for dimension " + std::to_string(dim);
  if (auto constant = dyn_cast<AffineConstantExpr>(size))
    text += " with size " + std::to_string(constant.getValue());
  return text;
}

void requireSizesOfPart(Op& op, Value source, ArrayRef<AffineExpr> part) {
  auto sizes = shapeOf(typeOf(source));
  if (sizes.size() != part.size() || !llvm::all_of(llvm::zip_equal(sizes, part), [](auto pair) {
        return std::get<1>(pair) && sameValue(std::get<0>(pair), std::get<1>(pair));
      }))
    op.refuse("a source that may have other sizes than the part that it replaces is not lowered");
}

std::string placesOf(ArrayRef<AffineExpr> sizes) {
  std::string text = "[";
  for (size_t position = 0; position < sizes.size(); ++position)
    text += position == 0 ? "{}" : ", {}";
  return text + "]";
}

void requirePlaces(Op& op, AffineExpr count, AffineExpr bound, StringRef error, StringRef message) {
  if (auto known = dyn_cast<AffineConstantExpr>(bound); !known || known.getValue() == 0)
    op.require((bound - 1) * count, error, message);
}

AffineExpr selectedPosition(Op& op, ArrayRef<AffineExpr> sizes, int64_t dim) {
  const AffineExpr size = sizes[dim], given = op.size("index");
  const auto known = dyn_cast<AffineConstantExpr>(given);
  const bool from_the_end = known && known.getValue() < 0;
  const AffineExpr index = from_the_end ? size + known.getValue() : given;
  // What the reader has counted from the beginning reads as the caller wrote it.
  const auto before = dyn_cast<AffineConstantExpr>(index - size);
  Exprs numbers = {before && before.getValue() < 0 ? AffineExpr(before) : index};
  numbers.append(sizes.begin(), sizes.end());
  const std::string message =
      "select(): index {} out of range for tensor of size " + placesOf(sizes) + " at dimension " + std::to_string(dim);
  op.require(size - 1 - index, "index_error", message, numbers);
  op.require(index, "index_error", message, numbers);
  return index;
}

namespace {

Value indexTensor(Op& op, Value index) {
  Type element = elementOf(index);
  if (!element.isInteger(64) && !element.isInteger(32))
    op.refuse("an index of " + fx::dtypeName(element) + " is not lowered");
  return index;
}

// result[i..., j...] = source[i..., index[...], j...]: `index` has `index_rank` dimensions that replace `dim`.
Value gatherAlong(Op& op, Value source, int64_t dim, Value index, bool wrap_negative, StringRef message) {
  RankedTensorType result = op.resultType();
  int64_t rank = result.getRank(), index_rank = rankOf(index);
  AffineExpr bound = shapeOf(typeOf(source))[dim];
  requirePlaces(op, numElements(typeOf(index)), bound, "index_error", message);
  SmallVector<AffineExpr> index_dims;
  for (int64_t position = 0; position < index_rank; ++position)
    index_dims.push_back(op.build.dim(dim + position));
  AffineMap map = AffineMap::get(rank, 0, index_dims, op.build.b.getContext());
  return op.build.loop({Operand(index, map)}, result, [&](Body& body, ArrayRef<Scalar> in) {
    SmallVector<Value> indices;
    for (int64_t position = 0; position < rankOf(source); ++position) {
      if (position == dim)
        indices.push_back(body.checkedIndex(in[0], bound, wrap_negative, "index_error", message));
      else
        indices.push_back(body.index(position < dim ? position : position - 1 + index_rank));
    }
    return body.extract(source, indices);
  });
}

// Of a source of rank 0 or 1: an element for each index, in the result's shape.
Value gatherFlat(Op& op, Value source, Value index, bool wrap_negative, StringRef error, StringRef message) {
  if (rankOf(source) == 0)
    source = op.build.unsqueeze(source, {0});
  AffineExpr bound = shapeOf(typeOf(source))[0];
  RankedTensorType result = op.resultType();
  return op.build.loop({op.build.reshape(index, shapeOf(result))}, result, [&](Body& body, ArrayRef<Scalar> in) {
    return body.extract(source, {body.checkedIndex(in[0], bound, wrap_negative, error, message)});
  });
}

// Eager looks at the indices where no element is read, too: a loop over none would not.
void refuseWithoutElements(Op& op) {
  if (isConstant(numElements(op.resultType()), 0))
    op.refuse("a result without elements is not lowered");
}

Values emitEmbedding(Op& op) {
  if (op.boolean("sparse"))
    op.refuse("argument sparse=True is not lowered");
  refuseWithoutElements(op);
  Value indices = indexTensor(op, op.tensor("indices"));
  return {gatherAlong(op, op.tensor("weight"), 0, indices, false, "index out of range in self")};
}

Values emitIndexSelect(Op& op) {
  Value self = op.tensor("self"), index = indexTensor(op, op.tensor("index"));
  if (rankOf(self) == 0)
    return {gatherFlat(op, self, index, true, "index_error", "index out of range in self")};
  if (rankOf(index) == 0)
    index = op.build.unsqueeze(index, {0});
  const int64_t dim = op.dim("dim", rankOf(self));
  if (isConstant(shapeOf(typeOf(self))[dim], 0))  // an error also where the result has no elements
    op.refuse("selects of a dimension of size 0");
  refuseWithoutElements(op);
  return {gatherAlong(op, self, dim, index, false, "index out of range in self")};
}

// result[i...] = self[i... with index[i...] at dim]; index may be smaller than self elsewhere.
Values emitGather(Op& op) {
  Value self = op.tensor("self"), index = indexTensor(op, op.tensor("index"));
  int64_t rank = rankOf(self), dim = op.dim("dim", rank);
  if (rank == 0 || rankOf(index) == 0) {
    AffineExpr bound = rank == 0 ? op.build.constant(1) : shapeOf(typeOf(self))[0];
    return {gatherFlat(op, self, index, false, "index_error", outOfBounds(0, bound))};
  }
  AffineExpr bound = shapeOf(typeOf(self))[dim];
  requirePlaces(op, numElements(typeOf(index)), bound, "index_error", outOfBounds(dim, bound));
  return {op.build.loop({index}, op.resultType(), [&](Body& body, ArrayRef<Scalar> in) {
    SmallVector<Value> indices;
    for (int64_t position = 0; position < rank; ++position)
      indices.push_back(position == dim ? body.checkedIndex(in[0], bound, false, "index_error", outOfBounds(dim, bound))
                                        : body.index(position));
    return body.extract(self, indices);
  })};
}

// self[:, index, other_index]: integer tensors broadcast together; their dimensions stand where the first of them stood
// when they are adjacent, in front otherwise.
Values emitIndex(Op& op) {
  Value self = op.tensor("self");
  const fx::Argument& given = op.argument("indices");
  int64_t rank = rankOf(self);
  SmallVector<Value> indices(rank);
  int64_t broadcast_rank = 0, first = -1, last = -1;
  for (auto [position, item] : llvm::enumerate(given.items)) {
    if (item.kind == fx::Argument::Kind::none)
      continue;
    Value index = op.tensorOf(item, "indices");
    if (elementOf(index).isInteger(1))
      op.refuse("a boolean mask as index (the result's size depends on data) is not lowered");
    if (isConstant(shapeOf(typeOf(self))[position], 0))  // an error also where the result has no elements
      op.refuse("an index into a dimension of size 0 is not lowered");
    indices[position] = indexTensor(op, index);
    broadcast_rank = std::max(broadcast_rank, rankOf(index));
    first = first < 0 ? position : first;
    last = position;
  }
  if (first < 0)
    return {self};
  bool adjacent = true;
  for (int64_t position = first; position <= last; ++position)
    adjacent &= static_cast<bool>(indices[position]);
  int64_t start = adjacent ? first : 0;  // of the broadcast dimensions in the result

  RankedTensorType result = op.resultType();
  auto result_sizes = shapeOf(result), sizes = shapeOf(typeOf(self));
  SmallVector<Operand> operands;
  const AffineExpr together =  // so many elements have the indices, as they broadcast
      numElements(llvm::ArrayRef(result_sizes).slice(start, broadcast_rank), op.build.b.getContext());
  for (int64_t position = first; position <= last; ++position)
    if (indices[position])
      requirePlaces(op, together, sizes[position], "index_error", outOfBounds(position, sizes[position]));
  for (Value index : indices) {
    if (!index)
      continue;
    SmallVector<AffineExpr> dims;
    auto index_sizes = shapeOf(typeOf(index));
    int64_t offset = start + broadcast_rank - rankOf(index);
    for (auto [position, size] : llvm::enumerate(index_sizes))
      dims.push_back(isConstant(size, 1) && !isConstant(result_sizes[offset + position], 1)
                         ? op.build.constant(0)
                         : op.build.dim(offset + position));
    operands.emplace_back(index, AffineMap::get(result.getRank(), 0, dims, op.build.b.getContext()));
  }
  return {op.build.loop(operands, result, [&](Body& body, ArrayRef<Scalar> in) {
    SmallVector<Value> positions;
    int64_t plain = 0;  // dimensions of the source that are not indexed, so far
    for (int64_t position = 0; position < rank; ++position) {
      if (indices[position]) {
        positions.push_back(body.checkedIndex(in.front(), sizes[position], true, "index_error",
                                              outOfBounds(position, sizes[position])));
        in = in.drop_front();
        continue;
      }
      positions.push_back(body.index(plain < start ? plain : plain + broadcast_rank));
      ++plain;
    }
    return body.extract(self, positions);
  })};
}

// select_scatter and slice_scatter: where the position is outside, self; inside, src.
Values emitSelectScatter(Op& op) {
  Value self = op.tensor("self"), src = op.tensor("src");
  int64_t rank = rankOf(self), dim = op.dim("dim", rank);
  Exprs part(shapeOf(typeOf(self)));
  const AffineExpr index = selectedPosition(op, part, dim);
  part.erase(part.begin() + dim);
  requireSizesOfPart(op, src, part);
  Type element = op.element();
  Operand inserted(src, op.build.unreduced(rank, {dim}));
  return {op.build.loop({self, inserted}, op.resultType(), [&](Body& body, ArrayRef<Scalar> in) {
    return select(body.position(dim) == body.size(index), in[1].to(element), in[0]);
  })};
}

// Eager raises where the slice is shorter than what takes its place.
void requireSlice(Op& op, AffineExpr least) {
  const Exprs sizes(shapeOf(typeOf(op.tensor("src"))));
  op.require(least, "runtime_error",
             "expected src to have a size equal to the slice of self. src size = " + placesOf(sizes), sizes);
}

// Of the slice that slice_scatter replaces, as far as its bounds tell; `length` where it may be that, and null where
// nobody here can tell.
AffineExpr sliceLength(Op& op, AffineExpr size, AffineExpr length) {
  const int64_t step = op.integer("step");
  auto bound = [&](StringRef name, AffineExpr otherwise) {
    AffineExpr at = op.isNone(name) ? otherwise : op.size(name);
    auto known = dyn_cast<AffineConstantExpr>(at), limit = dyn_cast<AffineConstantExpr>(size);
    if (known && limit)
      return op.build.constant(std::clamp<int64_t>(
          known.getValue() < 0 ? known.getValue() + limit.getValue() : known.getValue(), 0, limit.getValue()));
    if (known && known.getValue() == std::numeric_limits<int64_t>::max())
      return size;
    return known && known.getValue() < 0 ? size + known.getValue() : at;
  };
  const AffineExpr start = bound("start", op.build.constant(0)), end = bound("end", size);
  auto first = dyn_cast<AffineConstantExpr>(start), last = dyn_cast<AffineConstantExpr>(end);
  if (first && last) {
    const int64_t count = std::max<int64_t>(last.getValue() - first.getValue(), 0);
    if (isa<AffineConstantExpr>(size))
      return op.build.constant((count + step - 1) / step);
  }
  // Either may end the slice, and torch need not have guarded which is less.
  auto until = [&](AffineExpr ends) { return step == 1 ? ends - start : (ends - start + step - 1).floorDiv(step); };
  for (auto [ends, other] : {std::pair(end, size), std::pair(size, end)})
    if (sameValue(length, until(ends))) {
      const AffineExpr more = until(other) - length;
      requireSlice(op, isa<AffineConstantExpr>(length) && !isConstant(length, 0) ? more : more * length);
      return length;
    }
  return nullptr;
}

Values emitSliceScatter(Op& op) {
  if (op.integer("step") < 1)
    op.refuse("argument step=" + Twine(op.integer("step")) + " is not lowered");
  Value self = op.tensor("self"), src = op.build.convert(op.tensor("src"), op.element());
  int64_t dim = op.dim("dim", rankOf(self));
  Exprs part(shapeOf(typeOf(self)));
  AffineExpr size = part[dim];
  const AffineExpr length = dim < rankOf(src) ? shapeOf(typeOf(src))[dim] : nullptr;
  part[dim] = length ? sliceLength(op, size, length) : nullptr;
  requireSizesOfPart(op, src, part);
  AffineExpr start = op.isNone("start") ? op.build.constant(0) : op.size("start");
  if (auto constant = dyn_cast<AffineConstantExpr>(start)) {
    if (constant.getValue() < 0)
      start = size + constant.getValue();
    auto limit = dyn_cast<AffineConstantExpr>(size), known = dyn_cast<AffineConstantExpr>(start);
    if (limit && known)
      start = op.build.constant(std::clamp<int64_t>(known.getValue(), 0, limit.getValue()));
  }
  if (int64_t step = op.integer("step"); step != 1) {
    Exprs coordinates;
    for (int64_t position = 0; position < rankOf(self); ++position)
      coordinates.push_back(position == dim ? start + op.build.dim(position) * step : op.build.dim(position));
    return {op.build.scatter(self, src, {}, coordinates, [](Scalar, Scalar update) { return update; })};
  }
  SmallVector<Value> parts;
  AffineExpr rest = size - start - length;
  if (!isConstant(start, 0))
    parts.push_back(op.build.slice(self, dim, op.build.constant(0), start, 1));
  parts.push_back(src);
  if (!isConstant(rest, 0))
    parts.push_back(op.build.slice(self, dim, start + length, rest, 1));
  return {op.build.concat(parts, dim, op.resultType())};
}

}  // namespace

void registerIndexing(OpTable& table) {
  table.add("aten.embedding.default", emitEmbedding);
  table.add("aten.index_select.default", emitIndexSelect);
  table.add("aten.gather.default", emitGather);
  table.add("aten.index.Tensor", emitIndex);
  table.add("aten._unsafe_index.Tensor", emitIndex);
  table.add("aten.select_scatter.default", emitSelectScatter);
  table.add("aten.slice_scatter.default", emitSliceScatter);
}

}  // namespace zefuse
