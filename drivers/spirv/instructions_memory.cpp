// Variables, pointers, loads, stores and copies.
#include "drivers/spirv/reader.h"

#include "llvm/Analysis/ValueTracking.h"

#include <spirv/unified1/spirv.hpp>

namespace zefuse::spirv {
namespace {

constexpr uint64_t kMaxFirstClassScalars = 1024;  // LLVM splits first-class aggregates into scalars
constexpr uint64_t kMaxPrivateBytes = 256 << 10;  // of one Function variable
constexpr uint64_t kMaxLocalBytes = 16 << 20;

}  // namespace

const Type& Reader::pointee(const SpirvInst& inst, uint32_t pointer_id) {
  const Type& p = typeOfValue(inst, pointer_id);
  if (p.opcode != spv::OpTypePointer)
    fail(inst, "id " + std::to_string(pointer_id) + " is not a pointer");
  return type(inst, p.element);
}

void Reader::checkFirstClass(const SpirvInst& inst, const Type& t) {
  if (t.scalars > kMaxFirstClassScalars)
    fail(inst, "value of " + std::to_string(t.scalars) + " scalars exceeds the limit of " +
                   std::to_string(kMaxFirstClassScalars));
}

Reader::Access Reader::memoryAccess(const SpirvInst& inst, size_t first, const Type& t) {
  Access a{module_.getDataLayout().getABITypeAlign(t.llvm)};
  if (first >= inst.operands.size())
    return a;
  uint32_t mask = inst.op(first);
  a.is_volatile = mask & spv::MemoryAccessVolatileMask;
  a.nontemporal = mask & spv::MemoryAccessNontemporalMask;
  if (mask & spv::MemoryAccessAlignedMask) {
    uint32_t n = inst.op(first + 1);
    if (!llvm::isPowerOf2_32(n))
      fail(inst, "alignment " + std::to_string(n) + " is not a power of two");
    a.align = llvm::Align(n);
  }
  return a;
}

// The pointer where its memory is of the storage class, else null. Addresses do not tell on a flat device, so the
// answer follows from where the pointer is seen to come from; a pointer of unseen origin counts as one to global
// memory, which is all that translators ask for.
void Reader::readExplicitCast(const SpirvInst& inst) {
  llvm::Value* p = value(inst, inst.op(0));
  requirePointer(inst, p);
  auto* to = llvm::dyn_cast<llvm::PointerType>(valueType(inst, inst.type_id));
  if (!to)
    fail(inst, "result is not a pointer");
  const llvm::Value* origin = llvm::getUnderlyingObject(p);
  auto* call = llvm::dyn_cast<llvm::CallInst>(origin);
  const bool is_private = llvm::isa<llvm::AllocaInst>(origin);
  const bool is_local = call && markers_.asLocalVariable(call);
  bool fits;
  switch (inst.op(1)) {
  case spv::StorageClassCrossWorkgroup: fits = !is_private && !is_local; break;
  case spv::StorageClassWorkgroup: fits = is_local; break;
  case spv::StorageClassFunction: fits = is_private; break;
  default: fail(inst, "cast to storage class " + std::to_string(inst.op(1)) + " is not supported");
  }
  if (!fits && !is_private && !is_local)
    fail(inst, "whether a pointer of unseen origin names local or private memory is not known");
  setValue(inst, fits ? builder_.CreateAddrSpaceCast(p, to) : llvm::ConstantPointerNull::get(to));
}

void Reader::readVariable(const SpirvInst& inst) {
  const Type& p = type(inst, inst.type_id);
  if (p.opcode != spv::OpTypePointer || p.storage_class != inst.op(0))
    fail(inst, "type of the variable is not a pointer of its storage class");
  const Type& t = type(inst, p.element);
  valueType(inst, p.element);
  uint32_t storage = inst.op(0);
  const Decoration* align_decoration = decoration(inst.result_id, spv::DecorationAlignment);
  llvm::Align align = module_.getDataLayout().getPrefTypeAlign(t.llvm);
  if (align_decoration && !align_decoration->operands.empty()) {
    uint32_t n = align_decoration->operands[0];
    if (!llvm::isPowerOf2_32(n) || n > 4096)
      fail(inst, "alignment " + std::to_string(n) + " is not supported");
    align = std::max(align, llvm::Align(n));
  }
  value_types_[inst.result_id] = inst.type_id;

  if (storage == spv::StorageClassFunction) {
    if (!function_)
      fail(inst, "Function variable outside of a function");
    if (t.bytes > kMaxPrivateBytes)
      fail(inst, "private variable of " + std::to_string(t.bytes) + " bytes exceeds the limit of " +
                     std::to_string(kMaxPrivateBytes));
    llvm::AllocaInst* slot;
    {
      llvm::IRBuilder<>::InsertPointGuard guard(builder_);
      auto& entry = function_->getEntryBlock();
      builder_.SetInsertPoint(&entry, entry.getFirstInsertionPt());
      slot = builder_.CreateAlloca(t.llvm);
      slot->setAlignment(align);
    }
    if (inst.operands.size() > 1) {
      llvm::Constant* init = constant(inst, inst.op(1));
      if (init->getType() != t.llvm)
        fail(inst, "initialiser has the wrong type");
      checkFirstClass(inst, t);
      builder_.CreateStore(init, slot);
    }
    setValue(inst, slot);
    return;
  }
  if (function_)
    fail(inst, "module-scope variable inside a function");
  // Translators declare built-in variables as imports ("__spirv_BuiltInGlobalSize"), some of them in the global memory.
  if (decoration(inst.result_id, spv::DecorationBuiltIn) &&
      (storage == spv::StorageClassInput || storage == spv::StorageClassCrossWorkgroup ||
       storage == spv::StorageClassUniformConstant)) {
    special_variables_[inst.result_id] = {inst.result_id, p.element, storage, &inst};
    return;
  }
  const Decoration* link = decoration(inst.result_id, spv::DecorationLinkageAttributes);
  std::string linkage_name;
  uint32_t linkage = ~0u;
  if (link) {
    size_t next = 0;
    linkage_name = literalString(*link->inst, 2, &next);
    linkage = link->inst->op(next);
  }
  switch (storage) {
  case spv::StorageClassInput: fail(inst, "Input variable without BuiltIn decoration");
  case spv::StorageClassWorkgroup:
    if (t.bytes > kMaxLocalBytes)
      fail(inst, "Workgroup variable of " + std::to_string(t.bytes) + " bytes exceeds the limit of " +
                     std::to_string(kMaxLocalBytes));
    special_variables_[inst.result_id] = {inst.result_id, p.element, storage, &inst};
    local_variables[inst.result_id] = {t.bytes, align.value()};
    return;
  case spv::StorageClassCrossWorkgroup:
  case spv::StorageClassUniformConstant: {
    if (link && linkage == spv::LinkageTypeImport) {
      imports.push_back(linkage_name);
      // Never reached: a module with unresolved imports is not launched (LoadedModule::unresolvedImports).
      setValue(inst, llvm::ConstantPointerNull::get(pointerIn(storage)));
      return;
    }
    if (t.bytes > 1u << 30)
      fail(inst, "module-scope variable of " + std::to_string(t.bytes) + " bytes exceeds 1 GiB");
    llvm::Constant* init = inst.operands.size() > 1 ? constant(inst, inst.op(1)) : llvm::Constant::getNullValue(t.llvm);
    if (init->getType() != t.llvm)
      fail(inst, "initialiser has the wrong type");
    bool exported = link && linkage != spv::LinkageTypeImport;
    bool fixed = storage == spv::StorageClassUniformConstant && !exported;
    auto* g = new llvm::GlobalVariable(module_, t.llvm, fixed, llvm::GlobalValue::InternalLinkage, init, "", nullptr,
                                       llvm::GlobalValue::NotThreadLocal, pointerIn(storage)->getAddressSpace());
    g->setAlignment(align);
    if (exported)
      exported_globals.push_back({linkage_name, t.bytes, g});
    setValue(inst, g);
    return;
  }
  default: fail(inst, "variable in storage class " + std::to_string(storage) + " is not supported");
  }
}

void Reader::readAccessChain(const SpirvInst& inst) {
  bool has_element = inst.opcode == spv::OpPtrAccessChain || inst.opcode == spv::OpInBoundsPtrAccessChain;
  bool in_bounds = inst.opcode == spv::OpInBoundsAccessChain || inst.opcode == spv::OpInBoundsPtrAccessChain;
  llvm::Value* base = value(inst, inst.op(0));
  requirePointer(inst, base);
  const Type* t = &pointee(inst, inst.op(0));
  llvm::Type* source = t->llvm;
  if (!source || t->bytes == 0)
    fail(inst, "pointer to a type without size");
  std::vector<llvm::Value*> indices;
  size_t i = 1;
  auto dynamic = [&](uint32_t id) {
    llvm::Value* v = value(inst, id);
    if (!v->getType()->isIntegerTy())
      fail(inst, "index is not an integer");
    return builder_.CreateSExtOrTrunc(v, builder_.getInt64Ty());
  };
  if (has_element)
    indices.push_back(dynamic(inst.op(i++)));
  else
    indices.push_back(builder_.getInt64(0));
  for (; i < inst.operands.size(); ++i) {
    if (t->opcode == spv::OpTypeStruct) {
      uint64_t member = constantInt(inst, inst.op(i));
      if (member >= t->members.size())
        fail(inst, "member " + std::to_string(member) + " is out of range");
      indices.push_back(builder_.getInt32(member));
      t = &type(inst, t->members[member]);
    } else if (t->opcode == spv::OpTypeArray || t->opcode == spv::OpTypeVector) {
      indices.push_back(dynamic(inst.op(i)));
      t = &type(inst, t->element);
      if (t->opcode == spv::OpTypeBool)
        fail(inst, "address of a boolean inside a vector");
    } else {
      fail(inst, "index into a type without parts");
    }
  }
  setValue(inst, builder_.CreateGEP(source, base, indices, "",
                                    in_bounds ? llvm::GEPNoWrapFlags::inBounds() : llvm::GEPNoWrapFlags::none()));
}

bool Reader::readMemory(const SpirvInst& inst) {
  auto nontemporal = [&](llvm::Instruction* i, const Access& a) {
    if (a.nontemporal)
      i->setMetadata(llvm::LLVMContext::MD_nontemporal,
                     llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(builder_.getInt32(1))));
  };
  switch (inst.opcode) {
  case spv::OpVariable: readVariable(inst); return true;
  case spv::OpAccessChain:
  case spv::OpInBoundsAccessChain:
  case spv::OpPtrAccessChain:
  case spv::OpInBoundsPtrAccessChain: readAccessChain(inst); return true;
  case spv::OpLoad: {
    llvm::Value* p = value(inst, inst.op(0));
    requirePointer(inst, p);
    const Type& t = type(inst, inst.type_id);
    valueType(inst, inst.type_id);
    checkFirstClass(inst, t);
    Access a = memoryAccess(inst, 1, t);
    auto* load = builder_.CreateAlignedLoad(t.llvm, p, a.align, a.is_volatile);
    nontemporal(load, a);
    setValue(inst, load);
    return true;
  }
  case spv::OpStore: {
    llvm::Value *p = value(inst, inst.op(0)), *v = value(inst, inst.op(1));
    requirePointer(inst, p);
    const Type& t = typeOfValue(inst, inst.op(1));
    if (t.llvm != v->getType())
      fail(inst, "stored value has the wrong type");
    checkFirstClass(inst, t);
    Access a = memoryAccess(inst, 2, t);
    nontemporal(builder_.CreateAlignedStore(v, p, a.align, a.is_volatile), a);
    return true;
  }
  case spv::OpCopyMemory:
  case spv::OpCopyMemorySized: {
    llvm::Value *d = value(inst, inst.op(0)), *s = value(inst, inst.op(1));
    requirePointer(inst, d);
    requirePointer(inst, s);
    bool sized = inst.opcode == spv::OpCopyMemorySized;
    llvm::Value* size;
    llvm::Align align(1);
    size_t mask_at = sized ? 3 : 2;
    if (sized) {
      size = value(inst, inst.op(2));
      if (!size->getType()->isIntegerTy())
        fail(inst, "size is not an integer");
      size = builder_.CreateZExtOrTrunc(size, builder_.getInt64Ty());
    } else {
      const Type& t = pointee(inst, inst.op(0));
      if (!t.llvm || t.bytes == 0)
        fail(inst, "copy of a type without size");
      size = builder_.getInt64(t.bytes);
      align = module_.getDataLayout().getABITypeAlign(t.llvm);
    }
    bool is_volatile = false;
    if (mask_at < inst.operands.size()) {
      uint32_t mask = inst.op(mask_at);
      is_volatile = mask & spv::MemoryAccessVolatileMask;
      if (mask & spv::MemoryAccessAlignedMask) {
        uint32_t n = inst.op(mask_at + 1);
        if (!llvm::isPowerOf2_32(n))
          fail(inst, "alignment " + std::to_string(n) + " is not a power of two");
        align = llvm::Align(n);
      }
    }
    builder_.CreateMemMove(d, align, s, align, size, is_volatile);
    return true;
  }
  case spv::OpPtrCastToGeneric:
  case spv::OpGenericCastToPtr: {
    llvm::Value* p = value(inst, inst.op(0));
    requirePointer(inst, p);
    llvm::Type* to = valueType(inst, inst.type_id);
    if (!to->isPointerTy())
      fail(inst, "result is not a pointer");
    setValue(inst, builder_.CreateAddrSpaceCast(p, to));
    return true;
  }
  case spv::OpGenericCastToPtrExplicit: readExplicitCast(inst); return true;
  case spv::OpPtrEqual:
  case spv::OpPtrNotEqual:
  case spv::OpPtrDiff: {
    llvm::Value *a = value(inst, inst.op(0)), *b = value(inst, inst.op(1));
    requirePointer(inst, a);
    requirePointer(inst, b);
    requireSame(inst, a, b);
    if (inst.opcode == spv::OpPtrDiff) {
      const Type& t = pointee(inst, inst.op(0));
      llvm::Type* to = valueType(inst, inst.type_id);
      if (!t.llvm || t.bytes == 0 || !to->isIntegerTy())
        fail(inst, "difference of pointers to a type without size");
      llvm::Value* bytes = builder_.CreateSub(builder_.CreatePtrToInt(a, builder_.getInt64Ty()),
                                              builder_.CreatePtrToInt(b, builder_.getInt64Ty()));
      setValue(inst, builder_.CreateSExtOrTrunc(builder_.CreateSDiv(bytes, builder_.getInt64(t.bytes)), to));
    } else {
      setValue(inst, inst.opcode == spv::OpPtrEqual ? builder_.CreateICmpEQ(a, b) : builder_.CreateICmpNE(a, b));
    }
    return true;
  }
  case spv::OpLifetimeStart:
  case spv::OpLifetimeStop:
    value(inst, inst.op(0));
    return true;  // a hint; private memory of a work-item may live in a context array
  default: return false;
  }
}

}  // namespace zefuse::spirv
