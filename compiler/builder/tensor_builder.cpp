#include "compiler/builder/tensor_builder.h"

#include <algorithm>
#include <cmath>

#include "compiler/builder/dtype.h"
#include "compiler/builder/not_lowered.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace zefuse {
namespace {

// A size as constant * symbols (or opaque expressions), so that products compare whatever their order.
struct Product {
  int64_t constant = 1;
  SmallVector<AffineExpr, 4> factors;

  void multiply(AffineExpr expr) {
    if (auto number = dyn_cast<AffineConstantExpr>(expr)) {
      constant *= number.getValue();
    } else if (expr.getKind() == AffineExprKind::Mul) {
      multiply(cast<AffineBinaryOpExpr>(expr).getLHS());
      multiply(cast<AffineBinaryOpExpr>(expr).getRHS());
    } else {
      auto less = [](AffineExpr a, AffineExpr b) { return a.getAsOpaquePointer() < b.getAsOpaquePointer(); };
      factors.insert(std::upper_bound(factors.begin(), factors.end(), expr, less), expr);
    }
  }
  bool operator==(const Product& other) const { return constant == other.constant && factors == other.factors; }
  bool divides(const Product& other) const {
    if (other.constant % constant != 0)
      return false;
    size_t found = 0;
    for (AffineExpr factor : other.factors)
      found += found < factors.size() && factors[found] == factor;
    return found == factors.size();
  }
};

// The indices into one group of source dimensions whose elements, in row-major order, are numbered by `linear`.
void delinearize(AffineExpr linear, ArrayRef<AffineExpr> sizes, SmallVectorImpl<AffineExpr>& indices) {
  MLIRContext* context = sizes.empty() ? nullptr : sizes[0].getContext();
  SmallVector<AffineExpr> reversed;
  AffineExpr inner;
  auto last_real = llvm::find_if(sizes, [](AffineExpr size) { return !isConstant(size, 1); });
  for (int64_t k = sizes.size() - 1; k >= 0; --k) {
    if (isConstant(sizes[k], 1)) {
      reversed.push_back(getAffineConstantExpr(0, context));
      continue;
    }
    AffineExpr index = inner ? linear.floorDiv(inner) : linear;
    if (k != last_real - sizes.begin())
      index = index % sizes[k];
    reversed.push_back(index);
    inner = inner ? inner * sizes[k] : sizes[k];
  }
  indices.append(reversed.rbegin(), reversed.rend());
}

TypedAttr identityOf(ReductionKind combiner, Type type, MLIRContext* context) {
  auto floating = dyn_cast<FloatType>(type);
  auto number = [&](double value) -> TypedAttr {
    return floating ? TypedAttr(FloatAttr::get(floating, value))
                    : TypedAttr(IntegerAttr::get(type, static_cast<int64_t>(value)));
  };
  auto infinity = [&](bool negative) -> TypedAttr {
    if (floating)
      return FloatAttr::get(floating, APFloat::getInf(floating.getFloatSemantics(), negative));
    unsigned width = type.getIntOrFloatBitWidth();
    return IntegerAttr::get(type, negative ? APInt::getSignedMinValue(width) : APInt::getSignedMaxValue(width));
  };
  switch (combiner) {
  case ReductionKind::add: return number(0);
  case ReductionKind::mul: return number(1);
  case ReductionKind::max: return infinity(true);
  case ReductionKind::min: return infinity(false);
  case ReductionKind::logical_and: return BoolAttr::get(context, true);
  case ReductionKind::logical_or: return BoolAttr::get(context, false);
  }
  llvm_unreachable("combiner");
}

// Of ui8, the bits as i8: arith has no ui8 constants.
TypedAttr numberAttribute(Type element, double number) {
  MLIRContext* context = element.getContext();
  if (element.isUnsignedInteger(8))
    return IntegerAttr::get(IntegerType::get(context, 8), static_cast<uint8_t>(number));
  if (auto floating = dyn_cast<FloatType>(element))
    return FloatAttr::get(floating, number);
  if (element.isInteger(1))
    return BoolAttr::get(context, number != 0);
  unsigned width = element.getIntOrFloatBitWidth();
  if (std::isinf(number))
    return IntegerAttr::get(element, number < 0 ? APInt::getSignedMinValue(width) : APInt::getSignedMaxValue(width));
  return IntegerAttr::get(element, APInt(64, static_cast<int64_t>(number), true).trunc(width));
}

}  // namespace

Value Body::index(int64_t dim) { return linalg::IndexOp::create(b, dim); }

Scalar Body::position(int64_t dim) { return {b, arith::IndexCastOp::create(b, b.getI64Type(), index(dim))}; }

Scalar Body::size(AffineExpr size) {
  if (auto number = dyn_cast<AffineConstantExpr>(size))
    return constantScalar(b, b.getI64Type(), number.getValue());
  Value value = SizeOp::create(b, b.getIndexType(), AffineMap::get(0, num_symbols_, size));
  return {b, arith::IndexCastOp::create(b, b.getI64Type(), value)};
}

Value Body::checkedIndex(Scalar value, AffineExpr bound, bool wrap_negative, StringRef error, StringRef message) {
  Value limit;
  if (auto number = dyn_cast<AffineConstantExpr>(bound))
    limit = arith::ConstantIndexOp::create(b, number.getValue());
  else
    limit = SizeOp::create(b, b.getIndexType(), AffineMap::get(0, num_symbols_, bound));
  return CheckedIndexOp::create(b, b.getIndexType(), value.value(), limit, b.getBoolAttr(wrap_negative),
                                b.getStringAttr(error), b.getStringAttr(message));
}

Scalar Body::extract(Value tensor, ValueRange indices) { return {b, tensor::ExtractOp::create(b, tensor, indices)}; }

Value TensorBuilder::size(AffineExpr expr) {
  return SizeOp::create(b, b.getIndexType(), AffineMap::get(0, num_symbols, expr));
}

Value TensorBuilder::empty(RankedTensorType type) {
  SmallVector<Value> sizes;
  for (auto [position, expr] : llvm::enumerate(shapeOf(type)))
    if (type.isDynamicDim(position))
      sizes.push_back(size(expr));
  return tensor::EmptyOp::create(b, type.getShape(), type.getElementType(), sizes, type.getEncoding());
}

Value TensorBuilder::loop(ArrayRef<Operand> inputs, RankedTensorType result, BodyFunction body) {
  unsigned rank = result.getRank();
  auto result_sizes = shapeOf(result);
  SmallVector<AffineMap> maps;
  SmallVector<Value> values;
  for (const Operand& input : inputs) {
    values.push_back(input.tensor);
    if (input.map) {
      maps.push_back(input.map);
      continue;
    }
    SmallVector<AffineExpr> indices;
    auto sizes = shapeOf(typeOf(input.tensor));
    unsigned offset = rank - sizes.size();
    for (auto [position, expr] : llvm::enumerate(sizes))
      indices.push_back(isConstant(expr, 1) && !isConstant(result_sizes[offset + position], 1)
                            ? constant(0)
                            : dim(offset + position));
    maps.push_back(AffineMap::get(rank, 0, indices, b.getContext()));
  }
  maps.push_back(b.getMultiDimIdentityMap(rank));

  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  Value init = empty(result);
  auto generic = linalg::GenericOp::create(b, TypeRange{result}, values, ValueRange{init}, maps, iterators);
  // The block is made here, not by a callback from MLIR: an emitter's exception must not unwind through its frames.
  Block& block = generic.getRegion().emplaceBlock();
  for (Value value : values)
    block.addArgument(elementOf(value), b.getLoc());
  block.addArgument(result.getElementType(), b.getLoc());
  OpBuilder at_end = OpBuilder::atBlockEnd(&block);
  Body inside(at_end, b.getLoc(), num_symbols);
  SmallVector<Scalar> elements;
  for (size_t i = 0; i < inputs.size(); ++i)
    elements.emplace_back(inside.b, block.getArgument(i));
  Scalar element = body(inside, elements);
  if (element.type() != result.getElementType())
    throw NotLowered("the formula gives " + fx::dtypeName(element.type()) + " where " +
                     fx::dtypeName(result.getElementType()) + " is expected");
  linalg::YieldOp::create(inside.b, element.value());
  return generic.getResult(0);
}

Value TensorBuilder::full(RankedTensorType type, double number) {
  return loop({}, type, [&](Body& body, ArrayRef<Scalar>) { return body.constant(type.getElementType(), number); });
}

AffineMap TensorBuilder::unreduced(unsigned rank, ArrayRef<int64_t> dims) {
  SmallVector<AffineExpr> kept;
  for (unsigned position = 0; position < rank; ++position)
    if (!llvm::is_contained(dims, position))
      kept.push_back(dim(position));
  return AffineMap::get(rank, 0, kept, b.getContext());
}

Value TensorBuilder::reduce(Value input, ArrayRef<int64_t> dims, ReductionKind combiner) {
  if (dims.empty()) {
    if (combiner != ReductionKind::add || !isa<FloatType>(elementOf(input)))
      return input;
    return loop({input}, typeOf(input),  // a sum begins with 0: of -0.0 it is 0.0
                [](Body&, ArrayRef<Scalar> in) { return in[0] + in[0].constant(0); });
  }
  unsigned rank = rankOf(input);
  Type element = elementOf(input);
  auto sizes = shapeOf(typeOf(input));
  SmallVector<AffineExpr> kept;
  SmallVector<utils::IteratorType> iterators;
  for (unsigned position = 0; position < rank; ++position) {
    bool reduced = llvm::is_contained(dims, position);
    iterators.push_back(reduced ? utils::IteratorType::reduction : utils::IteratorType::parallel);
    if (!reduced)
      kept.push_back(sizes[position]);
  }
  RankedTensorType result = type(kept, element);
  Value identity = arith::ConstantOp::create(b, identityOf(combiner, element, b.getContext()));
  Value init = linalg::FillOp::create(b, identity, empty(result)).getResult(0);
  SmallVector<AffineMap> maps = {b.getMultiDimIdentityMap(rank), unreduced(rank, dims)};
  auto generic = linalg::GenericOp::create(b, TypeRange{result}, ValueRange{input}, ValueRange{init}, maps, iterators);
  Block& block = generic.getRegion().emplaceBlock();
  block.addArguments({element, element}, {b.getLoc(), b.getLoc()});
  OpBuilder at_end = OpBuilder::atBlockEnd(&block);
  ImplicitLocOpBuilder inside(b.getLoc(), at_end);
  Scalar value(inside, block.getArgument(0)), accumulator(inside, block.getArgument(1));
  Scalar combined = accumulator;
  switch (combiner) {
  case ReductionKind::add: combined = accumulator + value; break;
  case ReductionKind::mul: combined = accumulator * value; break;
  case ReductionKind::max: combined = maximum(accumulator, value); break;
  case ReductionKind::min: combined = minimum(accumulator, value); break;
  case ReductionKind::logical_and: combined = accumulator & value; break;
  case ReductionKind::logical_or: combined = accumulator | value; break;
  }
  linalg::YieldOp::create(inside, combined.value());
  return generic.getResult(0);
}

Value TensorBuilder::view(Value source, ArrayRef<AffineExpr> indices, ArrayRef<AffineExpr> sizes) {
  AffineMap indices_map = simplifyInBounds(map(sizes.size(), indices), sizes);
  RankedTensorType result = type(sizes, elementOf(source));
  if (indices_map.isIdentity() && result == source.getType())
    return source;
  return ViewOp::create(b, result, source, AffineMapAttr::get(indices_map));
}

Value TensorBuilder::reshape(Value source, ArrayRef<AffineExpr> sizes) {
  auto from = shapeOf(typeOf(source));
  if (ArrayRef<AffineExpr>(from) == sizes)
    return source;
  if (llvm::any_of(sizes, [](AffineExpr size) { return isConstant(size, 0); }))
    return full(type(sizes, elementOf(source)), 0);

  // Groups of source and result dimensions that hold the same elements, as small as possible: simple index maps.
  SmallVector<AffineExpr> indices;
  size_t i = 0, j = 0;
  while (i < from.size() || j < sizes.size()) {
    size_t source_begin = i, result_begin = j;
    Product source_size, result_size;
    auto takeSource = [&] { source_size.multiply(from[i++]); };
    auto takeResult = [&] { result_size.multiply(sizes[j++]); };
    if (i < from.size())
      takeSource();
    if (j < sizes.size())
      takeResult();
    while (!(source_size == result_size) && (i < from.size() || j < sizes.size())) {
      bool result_left = j < sizes.size(), source_left = i < from.size();
      bool result_smaller = result_size.divides(source_size) ||
                            (!source_size.divides(result_size) && result_size.constant < source_size.constant);
      if (result_left && (result_smaller || !source_left))
        takeResult();
      else
        takeSource();
    }
    AffineExpr linear = constant(0), stride = constant(1);
    for (size_t k = j; k-- > result_begin;) {
      if (!isConstant(sizes[k], 1))
        linear = dim(k) * stride + linear;
      stride = stride * sizes[k];
    }
    delinearize(linear, ArrayRef(from).slice(source_begin, i - source_begin), indices);
  }
  return view(source, indices, sizes);
}

Value TensorBuilder::permute(Value source, ArrayRef<int64_t> dims) {
  auto from = shapeOf(typeOf(source));
  SmallVector<AffineExpr> indices(dims.size()), sizes;
  for (auto [position, source_dim] : llvm::enumerate(dims)) {
    indices[source_dim] = dim(position);
    sizes.push_back(from[source_dim]);
  }
  return view(source, indices, sizes);
}

Value TensorBuilder::expand(Value source, ArrayRef<AffineExpr> sizes) {
  auto from = shapeOf(typeOf(source));
  size_t added = sizes.size() - from.size();
  SmallVector<AffineExpr> indices;
  for (auto [position, size] : llvm::enumerate(from))
    indices.push_back(isConstant(size, 1) ? constant(0) : dim(added + position));
  return view(source, indices, sizes);
}

Value TensorBuilder::slice(Value source, int64_t sliced, AffineExpr start, AffineExpr size, int64_t step) {
  auto sizes = shapeOf(typeOf(source));
  SmallVector<AffineExpr> indices;
  for (int64_t position = 0; position < rankOf(source); ++position)
    indices.push_back(position == sliced ? start + dim(position) * step : dim(position));
  sizes[sliced] = size;
  return view(source, indices, sizes);
}

Value TensorBuilder::concat(ArrayRef<Value> parts, int64_t dim, RankedTensorType result) {
  // A kernel takes at most 240 tensors (compiler/fuse/graph.h), so more are joined first to some that are fewer. Views
  // of one tensor are one.
  constexpr size_t max_tensors = 200;
  if (parts.size() == 1)
    return parts[0];
  SmallVector<Value> joined;
  llvm::SmallPtrSet<Value, 16> read;
  size_t first = 0;
  auto join = [&](size_t end) {
    SmallVector<AffineExpr> sizes = shapeOf(typeOf(parts[first]));
    for (Value part : parts.slice(first + 1, end - first - 1))
      sizes[dim] = sizes[dim] + shapeOf(typeOf(part))[dim];
    joined.push_back(concat(parts.slice(first, end - first), dim, type(sizes, result.getElementType())));
    first = end;
    read.clear();
  };
  for (auto [number, part] : llvm::enumerate(parts)) {
    Value source = part;
    while (auto view = source.getDefiningOp<ViewOp>())
      source = view.getSource();
    if (!read.contains(source) && read.size() == max_tensors)
      join(number);
    read.insert(source);
  }
  if (!joined.empty()) {
    join(parts.size());
    return concat(joined, dim, result);
  }
  return tensor::ConcatOp::create(b, result, dim, parts);
}

Value TensorBuilder::unsqueeze(Value source, ArrayRef<int64_t> dims) {
  auto sizes = shapeOf(typeOf(source));
  SmallVector<AffineExpr> indices;
  for (int64_t position : dims)
    sizes.insert(sizes.begin() + position, constant(1));
  for (size_t position = 0; position < sizes.size(); ++position)
    if (!llvm::is_contained(dims, static_cast<int64_t>(position)))
      indices.push_back(isConstant(sizes[position], 1) ? constant(0) : dim(position));
  return view(source, indices, sizes);
}

Value TensorBuilder::pad(Value source, ArrayRef<int64_t> low, ArrayRef<AffineExpr> sizes, double number) {
  TypedAttr value = numberAttribute(elementOf(source), number);
  return PadOp::create(b, type(sizes, elementOf(source)), source, low, value);
}

// What is outside is the element behind the last one, which there always is. No index map: its numbers are not
// negative.
Value TensorBuilder::padBy(Value source, int64_t dim, AffineExpr low, AffineExpr result, double number) {
  Exprs longer = shapeOf(typeOf(source)), sizes = longer;
  const AffineExpr size = longer[dim];
  longer[dim] = size + 1;
  sizes[dim] = result;
  Value behind = pad(source, SmallVector<int64_t>(longer.size(), 0), longer, number);
  return loop({}, type(sizes, elementOf(source)), [&](Body& body, ArrayRef<Scalar>) {
    const Scalar from = body.position(dim) - body.size(low), count = body.size(size);
    const Scalar taken = select((from >= 0) & (from < count), from, count);
    SmallVector<Value> indices;
    for (int64_t position = 0; position < rankOf(source); ++position)
      indices.push_back(position == dim
                            ? body.checkedIndex(taken, longer[dim], false, "index_error", "padding left its dimension")
                            : body.index(position));
    return body.extract(behind, indices);
  });
}

Value TensorBuilder::scatter(Value init, Value updates, ArrayRef<Value> indices, ArrayRef<AffineExpr> coordinates,
                             Combine combine) {
  if (llvm::is_contained(typeOf(updates).getShape(), 0))  // no index is looked at
    return init;
  AffineMap at = map(rankOf(updates) + indices.size(), coordinates);
  auto op = ScatterOp::create(b, init.getType(), init, updates, indices, AffineMapAttr::get(at));
  fillBody(op.getBody(), elementOf(init), combine);
  return op.getResult();
}

Value TensorBuilder::scan(Value input, int64_t dim, double initial, Combine combine) {
  if (isConstant(shapeOf(typeOf(input))[dim], 1))  // one step: a scan's dimension is one that a loop walks
    return loop({input}, typeOf(input), [&](Body& body, ArrayRef<Scalar> in) {
      Value before = arith::ConstantOp::create(body.b, numberAttribute(elementOf(input), initial));
      return combine({body.b, before}, in[0]);
    });
  auto op =
      ScanOp::create(b, input.getType(), input, b.getI64IntegerAttr(dim), numberAttribute(elementOf(input), initial));
  fillBody(op.getBody(), elementOf(input), combine);
  return op.getResult();
}

std::pair<Value, Value> TensorBuilder::sort(Value input, int64_t dim, AffineExpr count, bool descending) {
  auto sizes = shapeOf(typeOf(input));
  sizes[dim] = count;
  auto op =
      SortOp::create(b, type(sizes, elementOf(input)), type(sizes, b.getI64Type()), input, uint64_t(dim), descending);
  return {op.getValues(), op.getPositions()};
}

void TensorBuilder::fillBody(Region& region, Type element, Combine combine) {
  Block& block = region.emplaceBlock();
  block.addArguments({element, element}, {b.getLoc(), b.getLoc()});
  OpBuilder at_end = OpBuilder::atBlockEnd(&block);
  ImplicitLocOpBuilder inside(b.getLoc(), at_end);
  Scalar combined = combine({inside, block.getArgument(0)}, {inside, block.getArgument(1)});
  YieldOp::create(inside, combined.value());
}

Value TensorBuilder::convert(Value tensor, Type element) {
  if (elementOf(tensor) == element)
    return tensor;
  return loop({tensor}, withElement(typeOf(tensor), element),
              [&](Body&, ArrayRef<Scalar> in) { return in[0].to(element); });
}

Value TensorBuilder::matmul(Value a, Value other, Value bias, double alpha, RankedTensorType result, bool bf16_math) {
  return MatmulOp::create(b, result, a, other, bias, ValueRange{}, b.getF32FloatAttr(static_cast<float>(alpha)),
                          bf16_math ? b.getUnitAttr() : UnitAttr(), b.getStrArrayAttr({}), AffineMapAttr());
}

Value TensorBuilder::groupedMatmul(Value a, Value other, Value offsets, Value index, RankedTensorType result,
                                   bool bf16_math) {
  return GroupedMatmulOp::create(b, result, a, other, offsets, index, bf16_math ? b.getUnitAttr() : UnitAttr(),
                                 AffineMapAttr());
}

Value TensorBuilder::groupIndex() { return GroupIndexOp::create(b, type({}, b.getI64Type()), AffineMapAttr()); }

static FloatAttr scaleAttribute(OpBuilder& builder, std::optional<double> scale) {
  return scale ? builder.getF32FloatAttr(static_cast<float>(*scale)) : FloatAttr();
}

ResultRange TensorBuilder::attention(Value query, Value key, Value value, Value mask, std::optional<double> scale,
                                     bool causal, RankedTensorType result, RankedTensorType log_sums) {
  return AttentionOp::create(b, result, log_sums, query, key, value, mask, scaleAttribute(b, scale),
                             b.getBoolAttr(causal), AffineMapAttr(), AffineMapAttr())
      ->getResults();
}

ResultRange TensorBuilder::recurrence(StringRef cell, ArrayRef<Value> operands, bool gradient, bool reverse,
                                      bool packed, bool projected, ArrayRef<RankedTensorType> results) {
  return RecurrenceOp::create(b, llvm::to_vector_of<Type>(results), operands, b.getStringAttr(cell),
                              gradient ? b.getUnitAttr() : UnitAttr(), reverse ? b.getUnitAttr() : UnitAttr(),
                              packed ? b.getUnitAttr() : UnitAttr(), projected ? b.getUnitAttr() : UnitAttr(),
                              ArrayAttr())
      ->getResults();
}

ResultRange TensorBuilder::attentionGradient(ArrayRef<Value> operands, Value mask, std::optional<double> scale,
                                             bool causal, ArrayRef<RankedTensorType> results) {
  return AttentionGradientOp::create(b, llvm::to_vector_of<Type>(results), operands[0], operands[1], operands[2],
                                     operands[3], operands[4], operands[5], mask, scaleAttribute(b, scale),
                                     b.getBoolAttr(causal), results.size() == 2 ? b.getUnitAttr() : UnitAttr(),
                                     ArrayAttr())
      ->getResults();
}

}  // namespace zefuse
