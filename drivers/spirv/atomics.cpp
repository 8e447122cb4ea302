// Atomic instructions.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/spirv.hpp>

namespace zefuse::spirv {
namespace {

using llvm::AtomicOrdering;
using llvm::AtomicRMWInst;

AtomicOrdering ordering(uint64_t semantics) {
  if (semantics & spv::MemorySemanticsSequentiallyConsistentMask)
    return AtomicOrdering::SequentiallyConsistent;
  if (semantics & spv::MemorySemanticsAcquireReleaseMask)
    return AtomicOrdering::AcquireRelease;
  bool acquire = semantics & spv::MemorySemanticsAcquireMask;
  bool release = semantics & spv::MemorySemanticsReleaseMask;
  return acquire && release ? AtomicOrdering::AcquireRelease
         : acquire          ? AtomicOrdering::Acquire
         : release          ? AtomicOrdering::Release
                            : AtomicOrdering::Monotonic;
}

struct AtomicRow {
  uint16_t opcode;
  AtomicRMWInst::BinOp op;
  bool is_float;
};
constexpr AtomicRow kAtomics[] = {
    {spv::OpAtomicIAdd, AtomicRMWInst::Add, false},       {spv::OpAtomicISub, AtomicRMWInst::Sub, false},
    {spv::OpAtomicIIncrement, AtomicRMWInst::Add, false}, {spv::OpAtomicIDecrement, AtomicRMWInst::Sub, false},
    {spv::OpAtomicSMin, AtomicRMWInst::Min, false},       {spv::OpAtomicUMin, AtomicRMWInst::UMin, false},
    {spv::OpAtomicSMax, AtomicRMWInst::Max, false},       {spv::OpAtomicUMax, AtomicRMWInst::UMax, false},
    {spv::OpAtomicAnd, AtomicRMWInst::And, false},        {spv::OpAtomicOr, AtomicRMWInst::Or, false},
    {spv::OpAtomicXor, AtomicRMWInst::Xor, false},        {spv::OpAtomicFAddEXT, AtomicRMWInst::FAdd, true},
    {spv::OpAtomicFMinEXT, AtomicRMWInst::FMin, true},    {spv::OpAtomicFMaxEXT, AtomicRMWInst::FMax, true},
};

}  // namespace

llvm::SyncScope::ID Reader::syncScope(const SpirvInst& inst, uint32_t scope_id) {
  switch (constantInt(inst, scope_id)) {
  case spv::ScopeDevice: return context_.getOrInsertSyncScopeID(target_.device_scope);
  case spv::ScopeWorkgroup:
  case spv::ScopeSubgroup:
  case spv::ScopeInvocation: return context_.getOrInsertSyncScopeID(target_.group_scope);
  default: return llvm::SyncScope::System;
  }
}

bool Reader::readAtomic(const SpirvInst& inst) {
  auto pointer = [&] {
    llvm::Value* p = value(inst, inst.op(0));
    requirePointer(inst, p);
    return p;
  };
  auto semantics = [&](size_t i) { return ordering(constantInt(inst, inst.op(i))); };
  auto scope = [&](size_t i) { return syncScope(inst, inst.op(i)); };
  auto atomicType = [&](llvm::Type* t) {
    if (!t->isIntegerTy() && !t->isHalfTy() && !t->isFloatTy() && !t->isDoubleTy())
      fail(inst, "atomic access of a type that is not a scalar");
    if (t->isIntegerTy(1))
      fail(inst, "atomic access of a boolean");
  };
  for (const AtomicRow& row : kAtomics) {
    if (row.opcode != inst.opcode)
      continue;
    llvm::Type* t = valueType(inst, inst.type_id);
    atomicType(t);
    if (row.is_float != t->isFloatingPointTy())
      fail(inst, "operand type does not fit the atomic operation");
    bool unary = inst.opcode == spv::OpAtomicIIncrement || inst.opcode == spv::OpAtomicIDecrement;
    llvm::Value* v = unary ? llvm::ConstantInt::get(t, 1) : value(inst, inst.op(3));
    if (v->getType() != t)
      fail(inst, "operand and result differ in type");
    setValue(inst, builder_.CreateAtomicRMW(row.op, pointer(), v, llvm::MaybeAlign(), semantics(2), scope(1)));
    return true;
  }
  switch (inst.opcode) {
  case spv::OpAtomicLoad: {
    llvm::Type* t = valueType(inst, inst.type_id);
    atomicType(t);
    AtomicOrdering o = semantics(2);
    if (o == AtomicOrdering::Release || o == AtomicOrdering::AcquireRelease)
      o = AtomicOrdering::Acquire;
    auto* load = builder_.CreateAlignedLoad(t, pointer(), module_.getDataLayout().getABITypeAlign(t));
    load->setAtomic(o, scope(1));
    setValue(inst, load);
    return true;
  }
  case spv::OpAtomicStore: {
    llvm::Value* v = value(inst, inst.op(3));
    atomicType(v->getType());
    AtomicOrdering o = semantics(2);
    if (o == AtomicOrdering::Acquire || o == AtomicOrdering::AcquireRelease)
      o = AtomicOrdering::Release;
    auto* store = builder_.CreateAlignedStore(v, pointer(), module_.getDataLayout().getABITypeAlign(v->getType()));
    store->setAtomic(o, scope(1));
    return true;
  }
  case spv::OpAtomicExchange: {
    llvm::Value* v = value(inst, inst.op(3));
    atomicType(v->getType());
    setValue(inst,
             builder_.CreateAtomicRMW(AtomicRMWInst::Xchg, pointer(), v, llvm::MaybeAlign(), semantics(2), scope(1)));
    return true;
  }
  case spv::OpAtomicCompareExchange:
  case spv::OpAtomicCompareExchangeWeak: {
    llvm::Value *v = value(inst, inst.op(4)), *expected = value(inst, inst.op(5));
    requireSame(inst, v, expected);
    atomicType(v->getType());
    if (!v->getType()->isIntegerTy())
      fail(inst, "compare-exchange of a type that is not an integer");
    AtomicOrdering success = semantics(2), failure = semantics(3);
    if (failure == AtomicOrdering::Release || failure == AtomicOrdering::AcquireRelease)
      failure = AtomicOrdering::Acquire;
    auto* pair = builder_.CreateAtomicCmpXchg(pointer(), expected, v, llvm::MaybeAlign(), success, failure, scope(1));
    setValue(inst, builder_.CreateExtractValue(pair, 0));
    return true;
  }
  case spv::OpAtomicFlagTestAndSet: {
    auto* old = builder_.CreateAtomicRMW(AtomicRMWInst::Xchg, pointer(), builder_.getInt32(1), llvm::MaybeAlign(),
                                         semantics(2), scope(1));
    setValue(inst, builder_.CreateICmpNE(old, builder_.getInt32(0)));
    return true;
  }
  case spv::OpAtomicFlagClear: {
    auto* store = builder_.CreateAlignedStore(builder_.getInt32(0), pointer(), llvm::Align(4));
    AtomicOrdering o = semantics(2);
    store->setAtomic(o == AtomicOrdering::Acquire || o == AtomicOrdering::AcquireRelease ? AtomicOrdering::Release : o,
                     scope(1));
    return true;
  }
  case spv::OpMemoryBarrier: {
    AtomicOrdering o = semantics(1);
    if (o != AtomicOrdering::Monotonic)
      builder_.CreateFence(o, scope(0));
    return true;
  }
  default: return false;
  }
}

}  // namespace zefuse::spirv
