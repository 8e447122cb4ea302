// Types, constants and specialization constants.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/spirv.hpp>

#include <cstring>

namespace zefuse::spirv {
namespace {

constexpr uint64_t kMaxTypeBytes = 1ull << 40;

}  // namespace

void Reader::addType(const SpirvInst& inst, Type type) {
  type.opcode = inst.opcode;
  if (!types_.try_emplace(inst.result_id, std::move(type)).second)
    fail(inst, "type id defined twice");
}

bool Reader::readType(const SpirvInst& inst) {
  auto& layout = module_.getDataLayout();
  Type t;
  switch (inst.opcode) {
  case spv::OpTypeVoid: t.llvm = builder_.getVoidTy(); break;
  case spv::OpTypeBool:
    t.llvm = builder_.getInt1Ty();
    t.bytes = t.scalars = 1;
    break;
  case spv::OpTypeInt:
    if (uint32_t w = inst.op(0); w != 8 && w != 16 && w != 32 && w != 64)
      fail(inst, "integer of " + std::to_string(w) + " bits is not supported");
    t.llvm = builder_.getIntNTy(inst.op(0));
    t.bytes = inst.op(0) / 8;
    t.scalars = 1;
    break;
  case spv::OpTypeFloat:
    if (inst.operands.size() > 1)
      fail(inst, "floating-point encoding is not supported");
    switch (inst.op(0)) {
    case 16: t.llvm = builder_.getHalfTy(); break;
    case 32: t.llvm = builder_.getFloatTy(); break;
    case 64: t.llvm = builder_.getDoubleTy(); break;
    default: fail(inst, "float of " + std::to_string(inst.op(0)) + " bits is not supported");
    }
    t.bytes = inst.op(0) / 8;
    t.scalars = 1;
    break;
  case spv::OpTypeVector: {
    t.element = inst.op(0);
    const Type& e = type(inst, t.element);
    uint32_t n = inst.op(1);
    if (e.opcode != spv::OpTypeBool && e.opcode != spv::OpTypeInt && e.opcode != spv::OpTypeFloat)
      fail(inst, "vector of a type that is not a scalar");
    if (n != 2 && n != 3 && n != 4 && n != 8 && n != 16)
      fail(inst, "vector of " + std::to_string(n) + " elements is not supported");
    t.llvm = llvm::FixedVectorType::get(e.llvm, n);
    t.bytes = layout.getTypeAllocSize(t.llvm);
    t.scalars = n;
    break;
  }
  case spv::OpTypeArray: {
    t.element = inst.op(0);
    const Type& e = type(inst, t.element);
    uint64_t n = constantInt(inst, inst.op(1));
    valueType(inst, t.element);
    refuseHandles(inst, e);
    if (n == 0 || e.bytes == 0 || n > kMaxTypeBytes / e.bytes)
      fail(inst,
           "array of " + std::to_string(n) + " elements of " + std::to_string(e.bytes) + " bytes is not supported");
    t.llvm = llvm::ArrayType::get(e.llvm, n);
    t.bytes = layout.getTypeAllocSize(t.llvm);
    t.scalars = e.scalars * n;
    break;
  }
  case spv::OpTypeStruct: {
    std::vector<llvm::Type*> members;
    uint64_t sum = 0;
    for (size_t i = 0; i < inst.operands.size(); ++i) {
      uint32_t id = inst.op(i);
      t.members.push_back(id);
      if (forward_pointers_.count(id)) {
        members.push_back(pointerIn(forward_pointers_[id]));
        t.scalars += 1;
        sum += 8;
        continue;
      }
      const Type& m = type(inst, id);
      members.push_back(valueType(inst, id));
      refuseHandles(inst, m);
      t.scalars += m.scalars;
      // A member grows at most to twice its size by padding.
      if ((sum += 2 * m.bytes + 128) > 4 * kMaxTypeBytes || t.scalars > kMaxTypeBytes)
        fail(inst, "struct is too large");
    }
    bool packed = decoration(inst.result_id, spv::DecorationCPacked) != nullptr;
    t.llvm = llvm::StructType::get(context_, members, packed);
    t.bytes = layout.getTypeAllocSize(t.llvm);
    break;
  }
  case spv::OpTypePointer:
    t.storage_class = inst.op(0);
    t.element = inst.op(1);
    t.llvm = pointerIn(t.storage_class);
    t.bytes = 8;
    t.scalars = 1;
    break;
  case spv::OpTypeEvent:  // an asynchronous copy is done when its barrier is passed: nothing to remember
    t.llvm = builder_.getInt64Ty();
    t.bytes = 8;
    t.scalars = 1;
    break;
  case spv::OpTypeForwardPointer: forward_pointers_[inst.op(0)] = inst.op(1); return true;
  case spv::OpTypeFunction: {
    llvm::Type* result = type(inst, inst.op(0)).llvm;
    t.members.assign(inst.operands.begin(), inst.operands.end());
    std::vector<llvm::Type*> params;
    for (size_t i = 1; i < inst.operands.size(); ++i)
      params.push_back(valueType(inst, inst.op(i)));
    if (!result || result->isFunctionTy())
      fail(inst, "result type is not supported");
    for (size_t i = 0; i < inst.operands.size(); ++i)
      if (type(inst, inst.op(i)).scalars > 1024)
        fail(inst, "aggregate of more than 1024 scalars passed by value");
    t.llvm = llvm::FunctionType::get(result, params, false);
    break;
  }
  case spv::OpTypeImage:
  case spv::OpTypeSampler:
  case spv::OpTypeSampledImage: readImageType(inst, t); break;
  case spv::OpTypeOpaque:
  case spv::OpTypeDeviceEvent:
  case spv::OpTypeReserveId:
  case spv::OpTypeQueue:
  case spv::OpTypePipe:
  case spv::OpTypeNamedBarrier:
  case spv::OpTypePipeStorage:
  case spv::OpTypeRuntimeArray:
  case spv::OpTypeMatrix: fail(inst, "unsupported type");
  default: return false;
  }
  addType(inst, std::move(t));
  return true;
}

llvm::PointerType* Reader::pointerIn(uint32_t storage_class) const {
  switch (storage_class) {
  case spv::StorageClassCrossWorkgroup: return llvm::PointerType::get(context_, target_.global_space);
  case spv::StorageClassUniformConstant: return llvm::PointerType::get(context_, target_.constant_space);
  case spv::StorageClassWorkgroup: return llvm::PointerType::get(context_, target_.local_space);
  default: return llvm::PointerType::get(context_, 0);
  }
}

// The value given for a specialization constant, or nullptr when the default stands.
llvm::Constant* Reader::specValue(const SpirvInst& inst, const Type& t) {
  auto id = spec_ids_.find(inst.result_id);
  if (id == spec_ids_.end())
    return nullptr;
  for (const SpecConstant& s : spec_constants_) {
    if (s.id != id->second)
      continue;
    uint64_t bits = 0;
    if (s.value.size() < t.bytes || s.value.size() > 8)
      fail(inst, "specialization constant " + std::to_string(s.id) + " has " + std::to_string(t.bytes) +
                     " bytes, the value given has " + std::to_string(s.value.size()));
    std::memcpy(&bits, s.value.data(), s.value.size());
    if (t.opcode == spv::OpTypeBool)
      return builder_.getInt1(bits != 0);
    unsigned width = t.bytes * 8;
    llvm::APInt value(64, bits);
    value = value.trunc(width);
    if (t.opcode == spv::OpTypeInt)
      return llvm::ConstantInt::get(context_, value);
    return llvm::ConstantFP::get(context_, llvm::APFloat(t.llvm->getFltSemantics(), value));
  }
  return nullptr;
}

bool Reader::readConstant(const SpirvInst& inst) {
  llvm::Constant* c = nullptr;
  switch (inst.opcode) {
  case spv::OpConstantTrue:
  case spv::OpConstantFalse:
  case spv::OpSpecConstantTrue:
  case spv::OpSpecConstantFalse: {
    const Type& t = type(inst, inst.type_id);
    if (t.opcode != spv::OpTypeBool)
      fail(inst, "boolean constant of another type");
    c = specValue(inst, t);
    if (!c)
      c = builder_.getInt1(inst.opcode == spv::OpConstantTrue || inst.opcode == spv::OpSpecConstantTrue);
    break;
  }
  case spv::OpConstant:
  case spv::OpSpecConstant: {
    const Type& t = type(inst, inst.type_id);
    if (t.opcode != spv::OpTypeInt && t.opcode != spv::OpTypeFloat)
      fail(inst, "constant is neither integer nor float");
    if (inst.opcode == spv::OpSpecConstant)
      c = specValue(inst, t);
    if (!c) {
      uint64_t bits = inst.op(0);
      if (t.bytes == 8)
        bits |= static_cast<uint64_t>(inst.op(1)) << 32;
      llvm::APInt value(64, bits);
      value = value.trunc(t.bytes * 8);
      c = t.opcode == spv::OpTypeInt ? static_cast<llvm::Constant*>(llvm::ConstantInt::get(context_, value))
                                     : llvm::ConstantFP::get(context_, llvm::APFloat(t.llvm->getFltSemantics(), value));
    }
    break;
  }
  case spv::OpConstantSampler: c = constantSampler(inst); break;
  case spv::OpConstantNull:
    refuseHandles(inst, type(inst, inst.type_id));
    c = llvm::Constant::getNullValue(valueType(inst, inst.type_id));
    break;
  case spv::OpConstantComposite:
  case spv::OpSpecConstantComposite: {
    const Type& t = type(inst, inst.type_id);
    std::vector<llvm::Constant*> parts;
    for (size_t i = 0; i < inst.operands.size(); ++i)
      parts.push_back(constant(inst, inst.op(i)));
    auto check = [&](size_t count, auto element) {
      if (parts.size() != count)
        fail(inst, "composite of " + std::to_string(parts.size()) + " parts, its type has " + std::to_string(count));
      for (size_t i = 0; i < count; ++i)
        if (parts[i]->getType() != element(i))
          fail(inst, "part " + std::to_string(i) + " has the wrong type");
    };
    if (auto* v = llvm::dyn_cast_or_null<llvm::FixedVectorType>(t.llvm)) {
      check(v->getNumElements(), [&](size_t) { return v->getElementType(); });
      c = llvm::ConstantVector::get(parts);
    } else if (auto* a = llvm::dyn_cast_or_null<llvm::ArrayType>(t.llvm)) {
      check(a->getNumElements(), [&](size_t) { return a->getElementType(); });
      c = llvm::ConstantArray::get(a, parts);
    } else if (auto* s = llvm::dyn_cast_or_null<llvm::StructType>(t.llvm)) {
      check(s->getNumElements(), [&](size_t i) { return s->getElementType(i); });
      c = llvm::ConstantStruct::get(s, parts);
    } else {
      fail(inst, "composite constant of a type that is not composite");
    }
    break;
  }
  case spv::OpSpecConstantOp: readSpecConstantOp(inst); return true;
  default: return false;
  }
  setValue(inst, c);
  return true;
}

// The operation is read as if it stood in a function, with a folding builder; constants fold to a constant.
void Reader::readSpecConstantOp(const SpirvInst& inst) {
  SpirvInst operation = inst;
  operation.opcode = static_cast<uint16_t>(inst.op(0));
  operation.operands = inst.operands.subspan(1);
  builder_.SetInsertPoint(&scratch_->getEntryBlock());
  if (!readArith(operation) && !readComposite(operation) && !readMemory(operation))
    fail(inst, "unsupported operation " + std::string(opcodeName(operation.opcode)));
  if (!llvm::isa<llvm::Constant>(value(inst, inst.result_id)))
    fail(inst, "operation on constants did not fold");
}

}  // namespace zefuse::spirv
