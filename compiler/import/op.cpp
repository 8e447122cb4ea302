#include "compiler/import/op.h"

#include <cmath>

#include "compiler/import/storage.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/simplify.h"

using namespace mlir;

namespace zefuse {
using fx::Argument;

Type TensorOrNumber::numberType(MLIRContext* context) const {
  switch (number.kind) {
  case Argument::Kind::boolean: return IntegerType::get(context, 1);
  case Argument::Kind::formula:
  case Argument::Kind::real: return Float32Type::get(context);
  default: return IntegerType::get(context, 64);
  }
}

void Op::refuse(const Twine& reason) const { throw NotLowered((node.schema->op + ": " + reason).str()); }

void Op::refuseType(Type type) const { refuse("eager has no kernel of it for " + fx::dtypeName(type)); }

// c10::overflows: infinity is an element of a floating-point tensor, a negative whole number one of an unsigned tensor.
static bool overflows(const Argument& number, Type element) {
  const bool real = number.kind == Argument::Kind::real;
  if ((!real && number.kind != Argument::Kind::integer) || element.isInteger(1))
    return false;
  const double value = real ? number.real : static_cast<double>(number.integer);
  if (auto floating = dyn_cast<FloatType>(element)) {
    APFloat most = APFloat::getLargest(floating.getFloatSemantics());
    bool exact = false;
    most.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &exact);
    return std::isfinite(value) && std::abs(value) > most.convertToDouble();
  }
  const auto whole = cast<IntegerType>(element);
  const bool wraps = whole.isUnsigned() && !real;
  const double end = std::ldexp(1.0, static_cast<int>(whole.getWidth()) - (whole.isUnsigned() ? 0 : 1));
  const double most = whole.getWidth() == 64 ? end : end - 1;  // of 64 bits as C++ compares it, rounded
  return !(value <= most && value >= (wraps ? -most : whole.isUnsigned() ? 0 : -end));
}

void Op::refuseOtherType(StringRef name) const {
  Value tensor = optionalTensor(name);
  if (!tensor || elementOf(tensor) == element())
    return;
  const bool parameter = name != "source" && name != "values";
  if (!parameter || !elementOf(tensor).isF32() || element().getIntOrFloatBitWidth() != 16)
    refuse("eager raises for tensors of two dtypes");
}

void Op::refuseOverflow(StringRef name) const {
  if (overflows(argument(name), element()))
    refuse("eager raises for a number that its dtype cannot hold");
}

void Op::require(AffineExpr least, StringRef error, const Twine& message, const Exprs& numbers) {
  const auto known = dyn_cast<AffineConstantExpr>(simplifyAffine(least, 0, build.num_symbols));
  if (known && known.getValue() >= 0)
    return;
  requirements_.push_back({least, error.str(), message.str(), numbers});
  if (known)
    refuse("eager raises for its sizes");
}

const Argument& Op::argument(StringRef name) const {
  for (auto [position, parameter] : llvm::enumerate(node.schema->parameters))
    if (parameter.name == name)
      return node.arguments[position];
  refuse("its schema has no argument '" + name + "'");
}

bool Op::takes(StringRef name) const {
  return llvm::any_of(node.schema->parameters, [&](const fx::Schema::Parameter& p) { return p.name == name; });
}

Value Op::tensorOf(const Argument& argument, StringRef name) const {
  if (argument.kind != Argument::Kind::node || values_[argument.node].empty())
    refuse("argument '" + name + "' is not a tensor");
  return values_[argument.node][0];
}

Value Op::tensor(StringRef name) const { return tensorOf(argument(name), name); }

Value Op::optionalTensor(StringRef name) const { return isNone(name) ? Value() : tensor(name); }

SmallVector<Value> Op::tensors(StringRef name) const {
  SmallVector<Value> result;
  for (const Argument& item : argument(name).items)
    result.push_back(tensorOf(item, name));
  return result;
}

TensorOrNumber Op::operand(StringRef name) const {
  const Argument& given = argument(name);
  switch (given.kind) {
  case Argument::Kind::node: return {tensorOf(given, name), {}};
  case Argument::Kind::integer:
  case Argument::Kind::real:
  case Argument::Kind::boolean:
  case Argument::Kind::formula:
  case Argument::Kind::size: return {{}, given};
  default: refuse("argument '" + name + "' is neither a tensor nor a number");
  }
}

int64_t Op::integer(StringRef name) const {
  const Argument& given = argument(name);
  if (given.kind == Argument::Kind::size)
    refuse("argument '" + name + "' is a symbolic size");
  if (given.kind != Argument::Kind::integer && given.kind != Argument::Kind::boolean)
    refuse("argument '" + name + "' is not an integer");
  return given.integer;
}

double Op::real(StringRef name) const {
  const Argument& given = argument(name);
  return given.kind == Argument::Kind::real ? given.real : static_cast<double>(integer(name));
}

bool Op::boolean(StringRef name) const {
  return argument(name).kind == Argument::Kind::none ? false : integer(name) != 0;
}

StringRef Op::text(StringRef name) const {
  const Argument& given = argument(name);
  if (given.kind != Argument::Kind::text)
    refuse("argument '" + name + "' is not a string");
  return given.text;
}

AffineExpr Op::size(StringRef name) const {
  const Argument& given = argument(name);
  return given.kind == Argument::Kind::size ? given.size : build.constant(integer(name));
}

Exprs Op::sizes(StringRef name) const {
  const Argument& given = argument(name);
  if (given.kind != Argument::Kind::list)
    refuse("argument '" + name + "' is not a list");
  Exprs result;
  for (const Argument& item : given.items) {
    if (item.kind == Argument::Kind::size)
      result.push_back(item.size);
    else if (item.kind == Argument::Kind::integer)
      result.push_back(build.constant(item.integer));
    else
      refuse("argument '" + name + "' is not a list of sizes");
  }
  return result;
}

SmallVector<int64_t> Op::integers(StringRef name) const {
  SmallVector<int64_t> result;
  for (AffineExpr expr : sizes(name)) {
    auto number = dyn_cast<AffineConstantExpr>(expr);
    if (!number)
      refuse("argument '" + name + "' holds a symbolic size");
    result.push_back(number.getValue());
  }
  return result;
}

int64_t Op::dim(StringRef name, int64_t rank) const {
  const int64_t value = integer(name), dims = std::max<int64_t>(rank, 1);
  if (value < -dims || value >= dims)  // not every shape rule of torch's looks
    refuse("a dimension out of range is not lowered");
  return value < 0 ? value + dims : value;
}

SmallVector<int64_t> Op::dims(StringRef name, int64_t rank) const {
  const Argument& given = argument(name);
  SmallVector<int64_t> result;
  if (given.kind == Argument::Kind::integer)
    result = {given.integer};
  else if (given.kind == Argument::Kind::list)
    result = integers(name);
  if (result.empty())
    return llvm::to_vector(llvm::seq<int64_t>(0, rank));
  for (int64_t& value : result)
    value = value < 0 ? value + rank : value;
  if (rank == 0)  // torch lets a 0-d tensor be reduced over dim 0 or -1
    result.clear();
  llvm::sort(result);
  return result;
}

unsigned Op::numResults() const { return node.meta.kind == fx::Meta::Kind::list ? node.meta.items.size() : 1; }

const fx::TensorMeta& Op::meta(unsigned index) const {
  const fx::Meta* meta = &node.meta;
  if (meta->kind == fx::Meta::Kind::list && index < meta->items.size())
    meta = &meta->items[index];
  if (meta->kind != fx::Meta::Kind::tensor)
    refuse("result " + Twine(index) + " is not a tensor");
  return meta->tensor;
}

const fx::TensorMeta& Op::metaOf(StringRef name) const {
  const Argument& given = argument(name);
  if (given.kind != Argument::Kind::node || graph_.nodes[given.node].meta.kind != fx::Meta::Kind::tensor)
    refuse("argument '" + name + "' is not a tensor");
  return graph_.nodes[given.node].meta.tensor;
}

// The dims from the outermost in memory to the innermost, of a tensor that fills its memory.
static std::optional<SmallVector<int64_t>> orderInMemory(ArrayRef<AffineExpr> sizes, const fx::Sizes& strides) {
  SmallVector<int64_t> inner, left;  // `inner` begins with the innermost
  for (int64_t dim = int64_t(sizes.size()) - 1; dim >= 0; --dim)
    left.push_back(dim);
  if (left.empty())
    return inner;
  AffineExpr packed = getAffineConstantExpr(1, sizes[0].getContext());
  while (!left.empty()) {
    auto* next =
        llvm::find_if(left, [&](int64_t dim) { return isConstant(sizes[dim], 1) || sameValue(strides[dim], packed); });
    if (next == left.end())
      return std::nullopt;
    packed = sizes[*next] * packed;
    inner.push_back(*next);
    left.erase(next);
  }
  return llvm::to_vector(llvm::reverse(inner));
}

Op::Memory Op::memoryOf(StringRef name) const {
  (void)metaOf(name);
  const unsigned given = argument(name).node, behind = tensorBehind(graph_, given);
  const fx::Node& node = graph_.nodes[behind];
  if (values_[behind].empty() || !values_[behind][0])
    refuse("argument '" + name + "' is not a tensor");
  Value value = values_[behind][0];
  const auto order = orderInMemory(shapeOf(typeOf(value)), node.meta.tensor.strides);
  if (!order)
    refuse("a source with gaps, or elements that share memory, is not lowered");
  if (!llvm::is_sorted(*order))
    value = build.permute(value, *order);
  const fx::Node::Kind storage = graph_.nodes[storageOf(graph_, behind)].kind;
  return {build.reshape(value, {numElements(typeOf(value))}), eagerOffset(graph_, behind), eagerOffset(graph_, given),
          storage == fx::Node::Kind::call || storage == fx::Node::Kind::getitem};
}

void Op::elseFallback(const Twine& reason) {
  if (fallback_reason_.empty())
    fallback_reason_ = (node.schema->op + ": " + reason).str();
}

Value Op::inTorchsForm(unsigned index, Value value) {
  RankedTensorType made = typeOf(value), wanted = resultType(index);
  if (made == wanted || made.getShape() != wanted.getShape() || made.getElementType() != wanted.getElementType())
    return value;
  AffineMap identity = build.map(rankOf(value), build.b.getMultiDimIdentityMap(rankOf(value)).getResults());
  return ViewOp::create(build.b, wanted, value, AffineMapAttr::get(identity));
}

Values Op::alternatives(ArrayRef<llvm::function_ref<Values()>> forms) {
  SmallVector<std::unique_ptr<Region>> regions;
  SmallVector<Values> results;
  for (auto [number, form] : llvm::enumerate(forms)) {
    auto region = std::make_unique<Region>();
    OpBuilder::InsertionGuard guard(build.b);
    build.b.setInsertionPointToEnd(&region->emplaceBlock());
    try {
      Values made = form();
      for (auto [index, value] : llvm::enumerate(made))
        if (value)
          value = inTorchsForm(index, value);
      results.push_back(std::move(made));
      regions.push_back(std::move(region));
    } catch (const NotLowered& refusal) {
      if (regions.empty() && number + 1 == forms.size())
        throw;
      if (number + 1 == forms.size() && fallback_reason_.empty())
        fallback_reason_ = refusal.what();
    }
  }
  // A result that one form leaves out is one that nobody asks for.
  Values kept(results.front());
  SmallVector<Type> types;
  for (auto [index, value] : llvm::enumerate(kept)) {
    if (llvm::any_of(results, [&](const Values& made) { return index >= made.size() || !made[index]; }))
      value = Value();
    if (value)
      types.push_back(value.getType());
  }
  auto op = AlternativesOp::create(build.b, types, unsigned(regions.size()));
  for (auto [form, region, made] : llvm::zip(op.getForms(), regions, results)) {
    form.takeBody(*region);
    OpBuilder at_end = OpBuilder::atBlockEnd(&form.front());
    SmallVector<Value> yielded;
    for (auto [index, value] : llvm::enumerate(kept))
      if (value)
        yielded.push_back(made[index]);
    YieldOp::create(at_end, op.getLoc(), yielded);
  }
  unsigned next = 0;
  for (Value& value : kept)
    if (value)
      value = op.getResult(next++);
  return kept;
}

RankedTensorType Op::resultType(unsigned index) const {
  const fx::TensorMeta& tensor = meta(index);
  Type element = fx::elementType(tensor.dtype, build.b.getContext());
  if (!element)
    refuse("dtype " + fx::dtypeName(tensor.dtype) + " of the result is not lowered");
  return build.type(exprs(tensor.sizes), element);
}

}  // namespace zefuse
