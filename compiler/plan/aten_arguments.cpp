#include "compiler/plan/aten_arguments.h"

#include "common/plan/plan_generated.h"
#include "compiler/plan/exprs.h"
#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;

namespace zefuse {
namespace {

/// {tensor = n}, {size = map}, {formula = map}, {dtype = n} and so on: the one entry says what it is.
bool fillTagged(DictionaryAttr dictionary, ArrayRef<uint32_t> operands, ExprTable& exprs, plan::ArgumentT& argument) {
  if (dictionary.size() != 1)
    return false;
  StringRef tag = dictionary.begin()->getName().getValue();
  Attribute value = dictionary.begin()->getValue();
  if (auto map = dyn_cast<AffineMapAttr>(value); map && (tag == "size" || tag == "formula")) {
    argument.kind = tag == "size" ? plan::ArgumentKind::integer : plan::ArgumentKind::formula;
    argument.value = exprs.add(map.getValue().getResult(0));
    return true;
  }
  if (auto text = dyn_cast<StringAttr>(value); text && tag == "device") {
    argument.kind = plan::ArgumentKind::device;
    argument.text = text.str();
    return true;
  }
  auto number = dyn_cast<IntegerAttr>(value);
  if (!number)
    return false;
  if (tag == "tensor") {
    if (static_cast<size_t>(number.getInt()) >= operands.size())
      return false;
    argument.kind = plan::ArgumentKind::tensor;
    argument.value = operands[number.getInt()];
    return true;
  }
  argument.integer = number.getInt();
  if (tag == "dtype")
    argument.kind = plan::ArgumentKind::dtype;
  else if (tag == "layout")
    argument.kind = plan::ArgumentKind::layout;
  else if (tag == "memory_format")
    argument.kind = plan::ArgumentKind::memory_format;
  else
    return false;
  return true;
}

}  // namespace

std::unique_ptr<plan::ArgumentT> atenArgument(Attribute attr, ArrayRef<uint32_t> operands, ExprTable& exprs) {
  auto argument = std::make_unique<plan::ArgumentT>();
  auto integer = [&](int64_t value) {
    argument->kind = plan::ArgumentKind::integer;
    argument->value = exprs.constant(value, attr.getContext());
  };
  if (isa<UnitAttr>(attr)) {
    argument->kind = plan::ArgumentKind::none;
  } else if (auto boolean = dyn_cast<BoolAttr>(attr)) {  // before IntegerAttr: a BoolAttr is one too
    argument->kind = plan::ArgumentKind::boolean;
    argument->integer = boolean.getValue();
  } else if (auto number = dyn_cast<IntegerAttr>(attr)) {
    integer(number.getInt());
  } else if (auto real = dyn_cast<FloatAttr>(attr)) {
    argument->kind = plan::ArgumentKind::real;
    argument->real = real.getValueAsDouble();
  } else if (auto text = dyn_cast<StringAttr>(attr)) {
    argument->kind = plan::ArgumentKind::text;
    argument->text = text.str();
  } else if (auto numbers = dyn_cast<DenseI64ArrayAttr>(attr)) {
    argument->kind = plan::ArgumentKind::list;
    for (int64_t value : numbers.asArrayRef())
      argument->items.push_back(
          atenArgument(IntegerAttr::get(IntegerType::get(attr.getContext(), 64), value), operands, exprs));
  } else if (auto list = dyn_cast<ArrayAttr>(attr)) {
    argument->kind = plan::ArgumentKind::list;
    for (Attribute item : list) {
      argument->items.push_back(atenArgument(item, operands, exprs));
      if (!argument->items.back())
        return nullptr;
    }
  } else if (auto dictionary = dyn_cast<DictionaryAttr>(attr)) {
    if (!fillTagged(dictionary, operands, exprs, *argument))
      return nullptr;
  } else {
    return nullptr;
  }
  return argument;
}

}  // namespace zefuse
