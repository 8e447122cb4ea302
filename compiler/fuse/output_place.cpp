#include "compiler/fuse/output_place.h"

#include "lowering/analysis/index_space.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "lowering/dialect/simplify.h"

using namespace mlir;

namespace zefuse {
namespace {

/// An output as a view of `base`: the base's indices over the output's dimensions.
SmallVector<AffineExpr> indicesIn(Value base, Value output) {
  const int64_t rank = cast<RankedTensorType>(output.getType()).getRank();
  SmallVector<AffineExpr> indices;
  for (int64_t dim = 0; dim < rank; ++dim)
    indices.push_back(getAffineDimExpr(unsigned(dim), output.getContext()));
  // The output's own view comes last: its indices go through those of what it is a view of.
  SmallVector<Value> chain = viewsBehind(output);
  for (Value value : ArrayRef(chain.begin(), llvm::find(chain, base))) {
    SmallVector<AffineExpr> next;
    for (AffineExpr expr : value.getDefiningOp<ViewOp>().getMap().getResults())
      next.push_back(expr.replaceDims(indices));
    indices = std::move(next);
  }
  return indices;
}

/// What `expr`, over the dimensions of `output`, is at their beginnings and how it steps along each.
std::optional<Strided> stepsOf(AffineExpr expr, Value output) {
  auto type = cast<RankedTensorType>(output.getType());
  unsigned symbols = numSymbols(type);
  expr.walk([&](AffineExpr part) {
    if (auto symbol = dyn_cast<AffineSymbolExpr>(part))
      symbols = std::max(symbols, symbol.getPosition() + 1);
  });
  return asStrided(AffineMap::get(unsigned(type.getRank()), symbols, expr), shapeOf(type));
}

/// Whether the outputs lie, as views of the base with these strides, as they do in eager.
bool lieAs(ArrayRef<AffineExpr> base_strides, ArrayRef<OutputPlace> outputs, Value base) {
  AffineExpr first;  // where the base begins in eager's storage
  for (const OutputPlace& output : outputs) {
    Value value = output.use->get();
    AffineExpr position = getAffineConstantExpr(0, value.getContext());
    for (auto [index, stride] : llvm::zip_equal(indicesIn(base, value), base_strides))
      position = position + index * stride;
    const auto steps = stepsOf(position, value);
    if (!steps)
      return false;
    for (auto [size, mine, eagers] :
         llvm::zip_equal(shapeOf(cast<RankedTensorType>(value.getType())), steps->strides, output.strides.getResults()))
      if (constantOf(size) != 1 && !sameValue(mine, eagers))
        return false;
    if (!output.offset)
      continue;
    AffineExpr begins = output.offset - steps->offset;
    if (first && !sameValue(first, begins))
      return false;
    first = begins;
  }
  return true;
}

/// The strides that a value has in eager's storage, as far as its views tell.
class Strides {
public:
  explicit Strides(size_t rank) : known_(rank) {}

  /// False: another view tells something else.
  bool learn(ArrayRef<Strided> indices, const OutputPlace& output) {
    const SmallVector<AffineExpr> sizes = shapeOf(cast<RankedTensorType>(output.use->get().getType()));
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (constantOf(sizes[dim]) == 1)
        continue;
      std::optional<size_t> along;
      for (size_t k = 0; k < indices.size(); ++k)
        if (constantOf(indices[k].strides[dim]) != 0) {
          if (along)
            return false;  // a diagonal
          along = k;
        }
      AffineExpr stride = output.strides.getResult(dim);
      if (!along) {  // repeated here: there, too
        if (constantOf(stride) != 0)
          return false;
        continue;
      }
      const auto step = constantOf(indices[*along].strides[dim]);
      if (!step || *step < 1 || !isMultipleOf(stride, *step))
        return false;
      AffineExpr found = stride.floorDiv(*step);
      if (known_[*along] && !sameValue(known_[*along], found))
        return false;
      known_[*along] = found;
    }
    return true;
  }

  /// Whether what lies between the first elements of two views here is what lies between them there.
  bool agree(ArrayRef<Strided> a, ArrayRef<Strided> b, AffineExpr a_offset, AffineExpr b_offset) const {
    AffineExpr here = a_offset;  // where b's first element lies if all lies as the strides say
    bool apart = false;          // along a dimension whose stride is not known, so that no element is in both
    for (size_t k = 0; k < a.size(); ++k) {
      if (sameValue(a[k].offset, b[k].offset))
        continue;
      if (known_[k])
        here = here + (b[k].offset - a[k].offset) * known_[k];
      else
        apart = true;
    }
    return sameValue(here, b_offset) != apart;
  }

  /// Those of all dimensions, where they are known.
  std::optional<SmallVector<AffineExpr>> all(ArrayRef<AffineExpr> sizes) const {
    SmallVector<AffineExpr> strides(known_);
    for (auto [stride, size] : llvm::zip_equal(strides, sizes))
      if (!stride && constantOf(size) == 1)
        stride = getAffineConstantExpr(0, size.getContext());
      else if (!stride)
        return std::nullopt;
    return strides;
  }

private:
  SmallVector<AffineExpr> known_;  // null: not known
};

/// An output's indices in `base`, where each is a sum of steps along the output's dimensions.
std::optional<SmallVector<Strided>> stepsIn(Value base, const OutputPlace& output) {
  SmallVector<Strided> steps;
  for (AffineExpr index : indicesIn(base, output.use->get())) {
    auto found = stepsOf(index, output.use->get());
    if (!found)
      return std::nullopt;
    steps.push_back(std::move(*found));
  }
  return steps;
}

/// What a symbol is computed as, of sums, products and quotients; null for others.
AffineExpr computed(Attribute tree) {
  if (auto leaf = dyn_cast<AffineMapAttr>(tree))
    return leaf.getValue().getResult(0);
  auto parts = dyn_cast<ArrayAttr>(tree);
  if (!parts || parts.size() != 3)
    return {};
  const StringRef op = cast<StringAttr>(parts[0]).getValue();
  const AffineExpr left = computed(parts[1]), right = computed(parts[2]);
  if (!left || !right)
    return {};
  return op == "add"        ? left + right
         : op == "mul"      ? left * right
         : op == "floordiv" ? left.floorDiv(right)
         : op == "mod"      ? left % right
                            : AffineExpr();
}

/// The n of a symbol that is computed as max(1, n); null for others.
AffineExpr atLeastOne(Attribute source) {
  auto parts = dyn_cast<ArrayAttr>(source);
  if (!parts || parts.size() != 3 || parts[0] != StringAttr::get(source.getContext(), "max"))
    return {};
  const AffineExpr left = computed(parts[1]), right = computed(parts[2]);
  if (!left || !right)
    return {};
  return constantOf(left) == 1 ? right : constantOf(right) == 1 ? left : AffineExpr();
}

bool isEmpty(const OutputPlace& output) {
  return llvm::is_contained(cast<RankedTensorType>(output.use->get().getType()).getShape(), 0);
}

/// The strides of a base whose dimensions have these sizes: those that its views tell, and others that fit them.
class BaseStrides {
public:
  explicit BaseStrides(ArrayRef<AffineExpr> sizes) : sizes_(sizes), strides_(sizes.size()) {
    for (auto [size, stride] : llvm::zip_equal(sizes, strides_))
      if (constantOf(size) == 1)  // any
        stride = getAffineConstantExpr(1, size.getContext());
  }

  /// By the steps of an output that go along one dimension each.
  void learn(ArrayRef<Strided> indices, const OutputPlace& output) {
    const SmallVector<AffineExpr> sizes = shapeOf(cast<RankedTensorType>(output.use->get().getType()));
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      auto along = [&](const Strided& index) { return constantOf(index.strides[dim]) != 0; };
      const auto* index = llvm::find_if(indices, along);
      if (constantOf(sizes[dim]) != 1 && index != indices.end() && llvm::count_if(indices, along) == 1)
        set(size_t(index - indices.begin()), index->strides[dim], output.strides.getResult(dim));
    }
  }

  /// By what lies between two outputs that begin at other indices of one dimension whose stride is not known yet.
  void learnBetween(ArrayRef<Strided> a, ArrayRef<Strided> b, AffineExpr between) {
    std::optional<size_t> unknown;
    for (size_t dim = 0; dim < strides_.size(); ++dim) {
      if (sameValue(a[dim].offset, b[dim].offset))
        continue;
      if (strides_[dim])
        between = between - (b[dim].offset - a[dim].offset) * strides_[dim];
      else if (unknown)
        return;
      else
        unknown = dim;
    }
    if (unknown)
      set(*unknown, b[*unknown].offset - a[*unknown].offset, between);
  }

  /// Puts each dimension that no view steps along around all others. False: those are in no order.
  bool placeOthers() {
    for (size_t dim = strides_.size(); dim-- > 0;) {
      if (strides_[dim])
        continue;
      const auto order = rowMajor();
      if (!order)
        return false;
      strides_[dim] = order->empty() ? getAffineConstantExpr(1, sizes_[dim].getContext())
                                     : sizes_[order->back()] * strides_[order->back()];
    }
    return true;
  }

  /// Whether no two elements lie in one place.
  bool lieApart() const {
    return llvm::any_of(sizes_, [](AffineExpr size) { return constantOf(size) == 0; }) || rowMajor();
  }

  ArrayRef<AffineExpr> get() const { return strides_; }

private:
  /// An order of the dimensions, the innermost first, in which each steps over the one before; maybe with gaps. Of two
  /// symbolic strides it may not be known which is the greater, where between them a third one tells.
  std::optional<SmallVector<size_t>> rowMajor() const {
    SmallVector<size_t> left, order;
    for (size_t dim = 0; dim < sizes_.size(); ++dim)
      if (strides_[dim] && constantOf(sizes_[dim]) != 1)
        left.push_back(dim);
    auto complete = [&](auto& self) -> bool {
      if (left.empty())
        return true;
      for (size_t dim : SmallVector<size_t>(left)) {
        if (isAtLeast(getAffineConstantExpr(0, strides_[dim].getContext()), strides_[dim]) ||  // turned or repeated
            (!order.empty() && !isAtLeast(strides_[dim], sizes_[order.back()] * strides_[order.back()])))
          continue;
        order.push_back(dim);
        llvm::erase(left, dim);
        if (self(self))
          return true;
        left.push_back(order.pop_back_val());
      }
      return false;
    };
    return complete(complete) ? std::optional(order) : std::nullopt;
  }

  void set(size_t dim, AffineExpr step, AffineExpr distance) {
    auto by = constantOf(step);
    if (by && *by < 0) {
      by = -*by;
      distance = -distance;
    }
    if (!strides_[dim] && by && *by != 0 && isMultipleOf(distance, *by))
      strides_[dim] = distance.floorDiv(*by);
  }

  SmallVector<AffineExpr> sizes_, strides_;  // null: not known
};

}  // namespace

SmallVector<Value> viewsBehind(Value value) {
  SmallVector<Value> chain = {value};
  while (auto view = chain.back().getDefiningOp<ViewOp>())
    chain.push_back(view.getSource());
  return chain;
}

Value commonBase(Value a, Value b) {
  const SmallVector<Value> others = viewsBehind(b);
  for (Value value : viewsBehind(a))
    if (llvm::is_contained(others, value))
      return value;
  return {};
}

AffineExpr placeOfElements(AffineExpr place, ArrayRef<AffineExpr> sizes, ArrayAttr sources) {
  if (!place || !sources)
    return place;
  DenseMap<AffineExpr, AffineExpr> smaller;
  for (auto [number, source] : llvm::enumerate(sources)) {
    const AffineExpr size = atLeastOne(source);
    if (size && llvm::any_of(sizes, [&](AffineExpr each) { return sameValue(each, size); }))
      smaller[getAffineSymbolExpr(unsigned(number), place.getContext())] = size;
  }
  return place.replace(smaller);
}

bool overlapAsInEager(const OutputPlace& a, const OutputPlace& b, Value base) {
  if (!a.offset || !b.offset)
    return true;  // a graph that says nothing of places
  if (isEmpty(a) || isEmpty(b))
    return true;  // nowhere: the place of a view of it is not told either
  auto type = cast<RankedTensorType>(base.getType());
  const OutputPlace* whole = a.use->get() == base ? &a : b.use->get() == base ? &b : nullptr;
  if (lieAs(whole ? SmallVector<AffineExpr>(whole->strides.getResults())
                  : contiguousStrides(shapeOf(type), base.getContext()),
            {a, b}, base))
    return true;
  // Of views that step along the base's dimensions its strides can be told: of both together, or of one all of them, by
  // which the other one (an as_strided) may be placed.
  const std::optional<SmallVector<Strided>> steps[] = {stepsIn(base, a), stepsIn(base, b)};
  Strides both(size_t(type.getRank()));
  if (steps[0] && steps[1] && both.learn(*steps[0], a) && both.learn(*steps[1], b) &&
      both.agree(*steps[0], *steps[1], a.offset, b.offset))
    return true;
  const OutputPlace* outputs[] = {&a, &b};
  for (auto [known, output] : llvm::zip_equal(steps, outputs)) {
    Strides one(size_t(type.getRank()));
    if (!known || !one.learn(*known, *output))
      continue;
    if (const auto strides = one.all(shapeOf(type)); strides && lieAs(*strides, {a, b}, base))
      return true;
  }
  return false;
}

std::optional<SmallVector<AffineExpr>> stridesFor(Value base, ArrayRef<OutputPlace> outputs) {
  const SmallVector<AffineExpr> sizes = shapeOf(cast<RankedTensorType>(base.getType()));
  SmallVector<OutputPlace> places;
  llvm::copy_if(outputs, std::back_inserter(places), [](const OutputPlace& output) { return !isEmpty(output); });
  BaseStrides told(sizes);
  SmallVector<std::pair<SmallVector<Strided>, AffineExpr>> begins;  // of outputs whose place is known
  for (const OutputPlace& output : places)
    if (auto steps = stepsIn(base, output)) {
      told.learn(*steps, output);
      if (output.offset)
        begins.emplace_back(std::move(*steps), output.offset);
    }
  for (size_t i = 1; i < begins.size(); ++i)
    told.learnBetween(begins[i - 1].first, begins[i].first, begins[i].second - begins[i - 1].second);
  // Mostly the base begins where eager's storage does.
  BaseStrides from_start = told;
  if (!begins.empty()) {
    AffineExpr zero = getAffineConstantExpr(0, base.getContext());
    const SmallVector<Strided> start(sizes.size(), Strided{{}, zero});
    from_start.learnBetween(start, begins.front().first, begins.front().second);
  }
  for (BaseStrides* strides : {&from_start, &told})
    if (strides->placeOthers() && strides->lieApart() && lieAs(strides->get(), places, base))
      return SmallVector<AffineExpr>(strides->get());
  return std::nullopt;
}

}  // namespace zefuse
