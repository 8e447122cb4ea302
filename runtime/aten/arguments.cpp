#include "runtime/aten/arguments.h"

#include <algorithm>

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include "common/plan/plan_generated.h"
#include "runtime/aten/dtype.h"

namespace zefuse::aten {

using plan::ArgumentKind;

namespace {

Target ofType(const c10::TypePtr& real) {
  Target target;
  target.type = real->str();
  switch (real->kind()) {
  case c10::TypeKind::OptionalType: {
    target = ofType(real->expectRef<c10::OptionalType>().getElementType());
    target.optional = true;
    target.type += "?";
    return target;
  }
  case c10::TypeKind::ListType:
    target.kind = Target::Kind::list;
    target.element_type = real->expectRef<c10::ListType>().getElementType();
    target.element = std::make_shared<Target>(ofType(target.element_type));
    return target;
  case c10::TypeKind::TensorType: target.kind = Target::Kind::tensor; return target;
  case c10::TypeKind::IntType:
  case c10::TypeKind::SymIntType: target.kind = Target::Kind::integer; return target;
  case c10::TypeKind::FloatType:
  case c10::TypeKind::SymFloatType: target.kind = Target::Kind::real; return target;
  case c10::TypeKind::BoolType:
  case c10::TypeKind::SymBoolType: target.kind = Target::Kind::boolean; return target;
  case c10::TypeKind::StringType: target.kind = Target::Kind::text; return target;
  case c10::TypeKind::NumberType: target.kind = Target::Kind::scalar; return target;
  case c10::TypeKind::ScalarTypeType: target.kind = Target::Kind::dtype; return target;
  case c10::TypeKind::LayoutType: target.kind = Target::Kind::layout; return target;
  case c10::TypeKind::MemoryFormatType: target.kind = Target::Kind::memory_format; return target;
  case c10::TypeKind::DeviceObjType: target.kind = Target::Kind::device; return target;
  default: return target;
  }
}

[[noreturn]] void mismatch(const Target& target, const AtenArgument& argument) {
  throw BadArgument(std::string("wants ") + target.type + ", the plan has " +
                    plan::EnumNameArgumentKind(argument.kind));
}

at::Tensor tensorOf(const TensorRef& ref, BorrowedStorages& borrowed) {
  at::IntArrayRef sizes(ref.sizes.data(), ref.sizes.size());
  at::IntArrayRef strides(ref.strides.data(), ref.strides.size());
  c10::ScalarType type = scalarType(ref.dtype);
  if (!ref.owner) {
    at::Tensor tensor = at::for_blob(ref.data, sizes)
                            .strides(strides)
                            .options(at::TensorOptions().dtype(type))
                            .target_device(at::kCPU)
                            .make_tensor();
    borrowed.push_back(tensor.storage().unsafeGetStorageImpl());
    return tensor;
  }
  const auto& owner = *static_cast<const at::Tensor*>(ref.owner);
  if (owner.scalar_type() != type)
    throw BadArgument(std::string("is a view as ") + c10::toString(type) + " of a tensor of " +
                      c10::toString(owner.scalar_type()));
  if (owner.sizes() == sizes && owner.strides() == strides && owner.data_ptr() == ref.data)
    return owner;
  // Without elements it has no address either, wherever its storage is.
  auto* base = static_cast<const char*>(owner.storage().data());
  const bool empty = std::find(ref.sizes.begin(), ref.sizes.end(), 0) != ref.sizes.end();
  int64_t bytes = empty ? 0 : static_cast<const char*>(ref.data) - base;
  return at::as_strided(owner, sizes, strides, bytes / int64_t(c10::elementSize(type)));
}

// A Python number where the schema has a tensor (aten.mul.Tensor(x, 2)): it takes part in type
// promotion as a number.
at::Tensor wrappedNumber(const at::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

bool isNumber(ArgumentKind kind) {
  return kind == ArgumentKind::integer || kind == ArgumentKind::real || kind == ArgumentKind::boolean;
}

at::Scalar numberOf(const AtenArgument& argument) {
  if (argument.kind == ArgumentKind::real)
    return argument.real;
  if (argument.kind == ArgumentKind::boolean)
    return argument.integer != 0;
  return argument.integer;
}

template <typename T, typename Get> c10::IValue listOf(const AtenArgument& argument, Get get) {
  c10::List<T> list;
  list.reserve(argument.items.size());
  for (const AtenArgument& item : argument.items)
    list.push_back(get(item));
  return list;
}

c10::IValue convertList(const Target& target, const AtenArgument& argument, BorrowedStorages& borrowed) {
  const Target& element = *target.element;
  auto one = [&](const AtenArgument& item) { return convert(element, item, borrowed); };
  if (!element.optional) {
    switch (element.kind) {
    case Target::Kind::tensor: return listOf<at::Tensor>(argument, [&](auto& item) { return one(item).toTensor(); });
    case Target::Kind::integer: return listOf<int64_t>(argument, [&](auto& item) { return one(item).toInt(); });
    case Target::Kind::real: return listOf<double>(argument, [&](auto& item) { return one(item).toDouble(); });
    case Target::Kind::boolean: return listOf<bool>(argument, [&](auto& item) { return one(item).toBool(); });
    default: break;
    }
  }
  c10::impl::GenericList list(target.element_type);
  list.reserve(argument.items.size());
  for (const AtenArgument& item : argument.items)
    list.push_back(one(item));
  return list;
}

}  // namespace

Target Target::of(const c10::Argument& argument) {
  Target target = ofType(argument.real_type());
  if (argument.N())
    target.length = *argument.N();
  return target;
}

c10::IValue convert(const Target& target, const AtenArgument& argument, BorrowedStorages& borrowed) {
  ArgumentKind kind = argument.kind;
  if (kind == ArgumentKind::none) {
    if (target.optional || target.kind == Target::Kind::other)
      return c10::IValue();
    if (target.kind == Target::Kind::tensor)
      return at::Tensor();
    mismatch(target, argument);
  }
  switch (target.kind) {
  case Target::Kind::tensor:
    if (kind == ArgumentKind::tensor)
      return tensorOf(argument.tensor, borrowed);
    if (isNumber(kind))
      return wrappedNumber(numberOf(argument));
    break;
  case Target::Kind::integer:
    if (kind != ArgumentKind::none && kind != ArgumentKind::tensor && kind != ArgumentKind::real &&
        kind != ArgumentKind::text && kind != ArgumentKind::device && kind != ArgumentKind::list)
      return argument.integer;
    break;
  case Target::Kind::real:
    if (kind == ArgumentKind::real)
      return argument.real;
    if (isNumber(kind))
      return double(argument.integer);
    break;
  case Target::Kind::boolean:
    if (kind == ArgumentKind::boolean || kind == ArgumentKind::integer)
      return argument.integer != 0;
    break;
  case Target::Kind::text:
    if (kind == ArgumentKind::text)
      return argument.text;
    break;
  case Target::Kind::scalar:
    if (isNumber(kind))
      return c10::IValue(numberOf(argument));
    break;
  case Target::Kind::dtype:
    if (kind == ArgumentKind::dtype)
      return argument.integer;
    break;
  case Target::Kind::layout:
    if (kind == ArgumentKind::layout)
      return argument.integer;
    break;
  case Target::Kind::memory_format:
    if (kind == ArgumentKind::memory_format)
      return argument.integer;
    break;
  case Target::Kind::device:
    if (kind == ArgumentKind::device || kind == ArgumentKind::text)
      return argument.text == "cpu" ? c10::Device(c10::kCPU) : c10::Device(argument.text);
    break;
  case Target::Kind::list:
    if (kind == ArgumentKind::list)
      return convertList(target, argument, borrowed);
    if (target.length > 0) {
      AtenArgument repeated;
      repeated.kind = ArgumentKind::list;
      repeated.items.assign(size_t(target.length), argument);
      return convertList(target, repeated, borrowed);
    }
    break;
  case Target::Kind::other: break;
  }
  mismatch(target, argument);
}

}  // namespace zefuse::aten
