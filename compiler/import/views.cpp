// Rearrangements: each becomes one zefuse.view (an index map), concatenations tensor.concat. Nothing moves data here.
#include "compiler/import/indexing.h"
#include "compiler/import/op_table.h"
#include "lowering/dialect/Zefuse.h"

using namespace mlir;

namespace zefuse {
namespace {

Exprs resultSizes(Op& op, unsigned index = 0) { return Exprs(shapeOf(op.resultType(index))); }

Values emitReshape(Op& op) { return {op.build.reshape(op.tensor("self"), resultSizes(op))}; }

Values emitIdentity(Op& op) { return {op.tensor("self")}; }

// A fresh tensor in eager: a loop that yields its input, which fusion makes a view where nobody can tell.
Values emitCopy(Op& op) {
  Value self = op.tensor("self");
  return {op.build.loop({self}, typeOf(self), [](Body&, ArrayRef<Scalar> in) { return in[0]; })};
}

// As another dtype, which a plan has no operation for.
Values emitViewAs(Op& op) {
  Value self = op.tensor("self");
  if (typeOf(self) != op.resultType(0))
    op.refuse("it is another dtype of the same bits");
  return {self};
}

Values emitPermute(Op& op) {
  Value self = op.tensor("self");
  SmallVector<int64_t> dims = op.integers("dims");
  for (int64_t& dim : dims)
    dim += dim < 0 ? rankOf(self) : 0;
  return {op.build.permute(self, dims)};
}

Value swapDims(Op& op, Value self, int64_t first, int64_t second) {
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, rankOf(self)));
  if (!dims.empty())
    std::swap(dims[first], dims[second]);
  return op.build.permute(self, dims);
}

Values emitTranspose(Op& op) {
  Value self = op.tensor("self");
  return {swapDims(op, self, op.dim("dim0", rankOf(self)), op.dim("dim1", rankOf(self)))};
}

Values emitT(Op& op) {
  Value self = op.tensor("self");
  return {rankOf(self) < 2 ? self : swapDims(op, self, 0, 1)};
}

// copy_ made functional: src in self's place.
Values emitOverwrite(Op& op) {
  return {op.build.expand(op.build.convert(op.tensor("src"), op.element()), resultSizes(op))};
}

Values emitExpand(Op& op) { return {op.build.expand(op.tensor("self"), resultSizes(op))}; }

// A position along a dimension: clamped as Python slices are, where both are constants. A symbolic start must be known
// not to need it.
AffineExpr slicePosition(Op& op, StringRef name, AffineExpr size) {
  AffineExpr given = op.size(name);
  auto position = dyn_cast<AffineConstantExpr>(given);
  if (!position)
    return given;
  if (position.getValue() < 0)
    given = size + position.getValue();
  auto known = dyn_cast<AffineConstantExpr>(given), limit = dyn_cast<AffineConstantExpr>(size);
  if (known && limit)
    return op.build.constant(std::clamp<int64_t>(known.getValue(), 0, limit.getValue()));
  return given;
}

Values emitSlice(Op& op) {
  Value self = op.tensor("self");
  int64_t dim = op.dim("dim", rankOf(self));
  AffineExpr size = shapeOf(typeOf(self))[dim];
  AffineExpr start = op.isNone("start") ? op.build.constant(0) : slicePosition(op, "start", size);
  return {op.build.slice(self, dim, start, resultSizes(op)[dim], op.integer("step"))};
}

Value selectIndex(Op& op, Value self, int64_t dim, AffineExpr index) {
  Exprs sizes(shapeOf(typeOf(self))), indices;
  sizes.erase(sizes.begin() + dim);
  for (int64_t position = 0, result = 0; position < rankOf(self); ++position)
    indices.push_back(position == dim ? index : op.build.dim(result++));
  return op.build.view(self, indices, sizes);
}

Values emitSelect(Op& op) {
  Value self = op.tensor("self");
  int64_t dim = op.dim("dim", rankOf(self));
  return {selectIndex(op, self, dim, selectedPosition(op, shapeOf(typeOf(self)), dim))};
}

Values emitUnbind(Op& op) {
  Value self = op.tensor("self");
  int64_t dim = op.dim("dim", rankOf(self));
  Values results;
  for (unsigned i = 0; i < op.numResults(); ++i)
    results.push_back(selectIndex(op, self, dim, op.build.constant(i)));
  return results;
}

// split, split_with_sizes, chunk: consecutive slices whose sizes torch already worked out.
Values emitSplit(Op& op) {
  Value self = op.tensor("self");
  int64_t dim = op.dim("dim", rankOf(self));
  AffineExpr start = op.build.constant(0);
  Values results;
  for (unsigned i = 0; i < op.numResults(); ++i) {
    AffineExpr size = resultSizes(op, i)[dim];
    results.push_back(op.build.slice(self, dim, start, size, 1));
    start = start + size;
  }
  return results;
}

Values emitFlip(Op& op) {
  Value self = op.tensor("self");
  Exprs sizes(shapeOf(typeOf(self))), indices;
  SmallVector<int64_t> flipped = op.integers("dims");
  for (int64_t position = 0; position < rankOf(self); ++position) {
    bool flip = llvm::is_contained(flipped, position) || llvm::is_contained(flipped, position - rankOf(self));
    indices.push_back(flip ? sizes[position] - 1 - op.build.dim(position) : op.build.dim(position));
  }
  return {op.build.view(self, indices, sizes)};
}

// Where index i of a rolled dimension comes from: (i - shift) mod size, with the shift made positive first.
AffineExpr rolledIndex(AffineExpr index, int64_t shift, AffineExpr size) {
  auto count = dyn_cast<AffineConstantExpr>(size);
  if (!count)  // any size of at least 1
    return shift <= 0 ? (index - shift) % size : (index + (size - 1) * shift) % size;
  int64_t forward = ((-shift % count.getValue()) + count.getValue()) % count.getValue();
  return (index + forward) % size;
}

// Rolled by a number that is known when the kernel runs, of either sign: no index map, whose numbers are not negative.
Value rolledBy(TensorBuilder& build, Value source, int64_t dim, AffineExpr shift) {
  AffineExpr size = shapeOf(typeOf(source))[dim];
  return build.loop({}, typeOf(source), [&](Body& body, ArrayRef<Scalar>) {
    Scalar count =
        maximum(body.size(size), body.constant(body.b.getI64Type(), 1));  // the division may stand before loops
    Scalar by(body.b, arith::RemSIOp::create(body.b, body.size(shift).value(), count.value()));
    Scalar from = body.position(dim) - by;
    from = select(from < count, from, from - count);  // a negative one is wrapped below
    SmallVector<Value> indices;
    for (int64_t position = 0; position < rankOf(source); ++position)
      indices.push_back(position == dim ? body.checkedIndex(from, size, true, "index_error", "roll left its dimension")
                                        : body.index(position));
    return body.extract(source, indices);
  });
}

Value rolled(TensorBuilder& build, Value source, ArrayRef<int64_t> dims, ArrayRef<AffineExpr> shifts) {
  Exprs sizes(shapeOf(typeOf(source))), indices;
  for (int64_t position = 0; position < rankOf(source); ++position)
    indices.push_back(build.dim(position));
  for (auto [shift, dim] : llvm::zip(shifts, dims))
    if (auto constant = dyn_cast<AffineConstantExpr>(shift))
      indices[dim] = rolledIndex(indices[dim], constant.getValue(), sizes[dim]);
  Value result = build.view(source, indices, sizes);
  for (auto [shift, dim] : llvm::zip(shifts, dims))
    if (!isa<AffineConstantExpr>(shift))
      result = rolledBy(build, result, dim, shift);
  return result;
}

Values emitRoll(Op& op) {
  Value self = op.tensor("self");
  Exprs shifts = op.sizes("shifts"), sizes(shapeOf(typeOf(self)));
  SmallVector<int64_t> dims = op.integers("dims");
  AffineExpr count = numElements(typeOf(self));
  if (isConstant(count, 0))
    return {self};
  if (dims.empty())  // rolls the flattened tensor
    return {op.build.reshape(rolled(op.build, op.build.reshape(self, {count}), {0}, shifts), sizes)};
  for (int64_t& dim : dims)
    dim += dim < 0 ? rankOf(self) : 0;
  return {rolled(op.build, self, dims, shifts)};
}

Values emitRepeat(Op& op) {
  Value self = op.tensor("self");
  Exprs sizes = resultSizes(op), from(shapeOf(typeOf(self))), indices;
  size_t added = sizes.size() - from.size();
  if (llvm::any_of(sizes, [](AffineExpr size) { return isConstant(size, 0); }))
    return {op.build.full(op.resultType(), 0)};
  for (auto [position, size] : llvm::enumerate(from)) {
    AffineExpr dim = op.build.dim(added + position);
    indices.push_back(isConstant(size, 1) ? op.build.constant(0) : sizes[added + position] == size ? dim : dim % size);
  }
  return {op.build.view(self, indices, sizes)};
}

Values emitDiagonal(Op& op) {
  Value self = op.tensor("self");
  int64_t rank = rankOf(self), first = op.dim("dim1", rank), second = op.dim("dim2", rank),
          offset = op.integer("offset");
  Exprs sizes = resultSizes(op), indices;
  AffineExpr along = op.build.dim(sizes.size() - 1);
  for (int64_t position = 0, result = 0; position < rank; ++position) {
    if (position == first)
      indices.push_back(along + std::max<int64_t>(-offset, 0));
    else if (position == second)
      indices.push_back(along + std::max<int64_t>(offset, 0));
    else
      indices.push_back(op.build.dim(result++));
  }
  return {op.build.view(self, indices, sizes)};
}

// Eager raises for a view that leaves the storage, unless it has no elements. `last`: the place of its last one.
void requireStorage(Op& op, const Op::Memory& memory, const Exprs& sizes, const Exprs& strides, AffineExpr last) {
  const AffineExpr count = numElements(sizes, op.build.b.getContext());
  const int64_t bytes = std::max(1u, op.element().getIntOrFloatBitWidth() / 8);
  Exprs numbers(sizes);
  numbers.append(strides);
  numbers.append({op.isNone("storage_offset") ? memory.offset : op.size("storage_offset"), (last + 1) * bytes,
                  numElements(typeOf(memory.row)) * bytes});
  const AffineExpr rest = numElements(typeOf(memory.row)) - 1 - last;
  op.require(isa<AffineConstantExpr>(count) ? rest : rest * count, "runtime_error",
             "setStorage: sizes " + placesOf(sizes) + ", strides " + placesOf(strides) +
                 ", storage offset {}, and itemsize " + Twine(bytes) +
                 " requiring a storage size of {} are out of bounds for storage of size {}",
             numbers);
}

// Defined by the source's storage: only a tensor that is contiguous in eager says which element lies where.
Values emitAsStrided(Op& op) {
  const Op::Memory memory = op.memoryOf("self");
  Exprs sizes = resultSizes(op), strides = op.sizes("stride");
  const AffineExpr first = (op.isNone("storage_offset") ? memory.offset : op.size("storage_offset")) - memory.begin;
  AffineExpr linear = first, last = first;
  for (size_t position = 0; position < sizes.size(); ++position) {
    linear = linear + op.build.dim(position) * strides[position];
    last = last + (sizes[position] - 1) * strides[position];
  }
  auto begins = dyn_cast<AffineConstantExpr>(first),
       leaves = dyn_cast<AffineConstantExpr>(numElements(typeOf(memory.row)) - 1 - last);
  if ((begins && begins.getValue() < 0) || (leaves && leaves.getValue() < 0))
    op.refuse("a view that reaches beyond its source is not lowered");
  if (memory.whole)
    requireStorage(op, memory, sizes, strides, last);
  Value view = op.build.view(memory.row, {linear}, sizes);
  // Sizes that only a call knows: on the CPU the rest of an input's storage is there to be read.
  if (auto made = memory.whole || (begins && leaves) ? ViewOp() : view.getDefiningOp<ViewOp>()) {
    made->setDiscardableAttr("zefuse.only_on_host", op.build.b.getUnitAttr());
    op.elseFallback("a view that may reach beyond its source is not lowered for a GPU");
  }
  return {view};
}

Values emitUnfold(Op& op) {
  Value self = op.tensor("self");
  int64_t dim = op.dim("dimension", rankOf(self)), step = op.integer("step");
  Exprs sizes = resultSizes(op), indices;
  if (rankOf(self) > 0)
    op.require(shapeOf(typeOf(self))[dim] - op.integer("size"), "runtime_error",
               "maximum size for tensor at dimension " + Twine(dim) + " is {} but size is " + Twine(op.integer("size")),
               {shapeOf(typeOf(self))[dim]});
  AffineExpr window = op.build.dim(sizes.size() - 1);
  for (int64_t position = 0; position < rankOf(self); ++position)
    indices.push_back(position == dim ? op.build.dim(position) * step + window : op.build.dim(position));
  return {op.build.view(self, indices, sizes)};
}

// A 1-d tensor of size 0 joins with anything: torch skips it.
Values emitCat(Op& op) {
  RankedTensorType result = op.resultType();
  SmallVector<Value> parts;
  for (Value part : op.tensors("tensors")) {
    auto sizes = shapeOf(typeOf(part));
    if (sizes.size() == 1 && isConstant(sizes[0], 0) && result.getRank() != 1)
      continue;
    parts.push_back(op.build.convert(part, result.getElementType()));
  }
  if (parts.empty())
    return {op.build.full(result, 0)};
  return {op.build.concat(parts, op.dim("dim", result.getRank()), result)};
}

Values emitStack(Op& op) {
  RankedTensorType result = op.resultType();
  int64_t dim = op.dim("dim", result.getRank());
  SmallVector<Value> parts;
  for (Value part : op.tensors("tensors"))
    parts.push_back(op.build.unsqueeze(op.build.convert(part, result.getElementType()), {dim}));
  return {op.build.concat(parts, dim, result)};
}

// A slice where the padding is negative.
Values emitPad(Op& op) {
  Value tensor = op.tensor("self");
  const Exprs pads = op.sizes("pad");
  double value = op.argument("value").kind == fx::Argument::Kind::none ? 0 : op.real("value");
  SmallVector<int64_t> low(rankOf(tensor), 0);
  Exprs sizes(shapeOf(typeOf(tensor)));
  for (size_t pair = 0; pair * 2 < pads.size(); ++pair) {
    const int64_t dim = rankOf(tensor) - 1 - pair;
    const auto first = dyn_cast<AffineConstantExpr>(pads[pair * 2]);
    const auto last = dyn_cast<AffineConstantExpr>(pads[pair * 2 + 1]);
    if (!first || !last) {
      sizes[dim] = resultSizes(op)[dim];
      tensor = op.build.padBy(tensor, dim, pads[pair * 2], sizes[dim], value);
      continue;
    }
    const int64_t before = first.getValue(), after = last.getValue();
    AffineExpr kept = sizes[dim] + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    // Less than nothing kept is an error of eager's. A size that is a symbol is at least 2.
    const AffineExpr two = op.build.constant(2);
    const auto least =
        dyn_cast<AffineConstantExpr>(kept.replaceSymbols(SmallVector<AffineExpr>(op.build.num_symbols, two)));
    if ((before < 0 || after < 0) && (!least || least.getValue() < 0))
      op.refuse("padding may take away more than there is");
    if (before < 0 || after < 0)
      tensor = op.build.slice(tensor, dim, op.build.constant(std::max<int64_t>(-before, 0)), kept, 1);
    low[dim] = std::max<int64_t>(before, 0);
    sizes[dim] = kept + low[dim] + std::max<int64_t>(after, 0);
  }
  if (ArrayRef<AffineExpr>(sizes) == ArrayRef<AffineExpr>(shapeOf(typeOf(tensor))))
    return {tensor};
  return {op.build.pad(tensor, low, sizes, value)};
}

}  // namespace

void registerViews(OpTable& table) {
  for (StringRef target : {"view.default", "_unsafe_view.default", "reshape.default", "squeeze.default", "squeeze.dim",
                           "squeeze.dims", "unsqueeze.default", "flatten.using_ints", "_reshape_alias.default",
                           "view_copy.default", "unsqueeze_copy.default", "squeeze_copy.dim", "unflatten.int"})
    table.add(("aten." + target).str(), emitReshape);
  for (StringRef target : {"alias.default", "detach.default", "lift_fresh.default", "contiguous.default",
                           "alias_copy.default", "detach_copy.default"})
    table.add(("aten." + target).str(), emitIdentity);
  for (StringRef target : {"lift_fresh_copy.default", "clone.default"})
    table.add(("aten." + target).str(), emitCopy);
  table.add("aten.view.dtype", emitViewAs);
  table.add("aten.permute.default", emitPermute);
  table.add("aten.permute_copy.default", emitPermute);
  table.add("aten.transpose.int", emitTranspose);
  table.add("aten.t.default", emitT);
  table.add("aten.expand.default", emitExpand);
  table.add("aten.expand_copy.default", emitExpand);
  table.add("aten.copy.default", emitOverwrite);
  table.add("aten.slice.Tensor", emitSlice);
  table.add("aten.slice_copy.Tensor", emitSlice);
  table.add("aten.select.int", emitSelect);
  table.add("aten.select_copy.int", emitSelect);
  table.add("aten.unbind.int", emitUnbind);
  for (StringRef target :
       {"split.Tensor", "split_with_sizes.default", "chunk.default", "split_with_sizes_copy.default"})
    table.add(("aten." + target).str(), emitSplit);
  table.add("aten.flip.default", emitFlip);
  table.add("aten.roll.default", emitRoll);
  table.add("aten.repeat.default", emitRepeat);
  table.add("aten.diagonal.default", emitDiagonal);
  table.add("aten.diagonal_copy.default", emitDiagonal);
  table.add("aten.as_strided.default", emitAsStrided);
  table.add("aten.as_strided_copy.default", emitAsStrided);
  table.add("aten.unfold.default", emitUnfold);
  table.add("aten.unfold_copy.default", emitUnfold);
  table.add("aten.cat.default", emitCat);
  table.add("aten.stack.default", emitStack);
  table.add("aten.constant_pad_nd.default", emitPad);
}

}  // namespace zefuse
