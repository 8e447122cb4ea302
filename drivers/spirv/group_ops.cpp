// Barriers and operations of a work-group or sub-group: each becomes a sync marker.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/spirv.hpp>

namespace zefuse::spirv {
namespace {

struct ReductionRow {
  uint16_t opcode;
  GroupOp op;
  char operand;
};  // operand: i, f or b(oolean)
constexpr ReductionRow kReductions[] = {
    {spv::OpGroupIAdd, GroupOp::iadd, 'i'},
    {spv::OpGroupFAdd, GroupOp::fadd, 'f'},
    {spv::OpGroupFMin, GroupOp::fmin, 'f'},
    {spv::OpGroupUMin, GroupOp::umin, 'i'},
    {spv::OpGroupSMin, GroupOp::smin, 'i'},
    {spv::OpGroupFMax, GroupOp::fmax, 'f'},
    {spv::OpGroupUMax, GroupOp::umax, 'i'},
    {spv::OpGroupSMax, GroupOp::smax, 'i'},
    {spv::OpGroupIMulKHR, GroupOp::imul, 'i'},
    {spv::OpGroupFMulKHR, GroupOp::fmul, 'f'},
    {spv::OpGroupBitwiseAndKHR, GroupOp::bit_and, 'i'},
    {spv::OpGroupBitwiseOrKHR, GroupOp::bit_or, 'i'},
    {spv::OpGroupBitwiseXorKHR, GroupOp::bit_xor, 'i'},
    {spv::OpGroupLogicalAndKHR, GroupOp::logical_and, 'b'},
    {spv::OpGroupLogicalOrKHR, GroupOp::logical_or, 'b'},
    {spv::OpGroupLogicalXorKHR, GroupOp::logical_xor, 'b'},
    {spv::OpGroupNonUniformIAdd, GroupOp::iadd, 'i'},
    {spv::OpGroupNonUniformFAdd, GroupOp::fadd, 'f'},
    {spv::OpGroupNonUniformIMul, GroupOp::imul, 'i'},
    {spv::OpGroupNonUniformFMul, GroupOp::fmul, 'f'},
    {spv::OpGroupNonUniformFMin, GroupOp::fmin, 'f'},
    {spv::OpGroupNonUniformUMin, GroupOp::umin, 'i'},
    {spv::OpGroupNonUniformSMin, GroupOp::smin, 'i'},
    {spv::OpGroupNonUniformFMax, GroupOp::fmax, 'f'},
    {spv::OpGroupNonUniformUMax, GroupOp::umax, 'i'},
    {spv::OpGroupNonUniformSMax, GroupOp::smax, 'i'},
    {spv::OpGroupNonUniformBitwiseAnd, GroupOp::bit_and, 'i'},
    {spv::OpGroupNonUniformBitwiseOr, GroupOp::bit_or, 'i'},
    {spv::OpGroupNonUniformBitwiseXor, GroupOp::bit_xor, 'i'},
    {spv::OpGroupNonUniformLogicalAnd, GroupOp::logical_and, 'b'},
    {spv::OpGroupNonUniformLogicalOr, GroupOp::logical_or, 'b'},
    {spv::OpGroupNonUniformLogicalXor, GroupOp::logical_xor, 'b'},
};

struct Plain {
  uint16_t opcode;
  SyncKind kind;
};
constexpr Plain kPlain[] = {
    {spv::OpGroupAll, SyncKind::all},
    {spv::OpGroupAny, SyncKind::any},
    {spv::OpGroupNonUniformAll, SyncKind::all},
    {spv::OpGroupNonUniformAny, SyncKind::any},
    {spv::OpGroupBroadcast, SyncKind::broadcast},
    {spv::OpGroupNonUniformBroadcast, SyncKind::broadcast},
    {spv::OpGroupNonUniformBroadcastFirst, SyncKind::broadcast_first},
    {spv::OpGroupNonUniformShuffle, SyncKind::shuffle},
    {spv::OpGroupNonUniformShuffleXor, SyncKind::shuffle_xor},
    {spv::OpGroupNonUniformShuffleUp, SyncKind::shuffle_up},
    {spv::OpGroupNonUniformShuffleDown, SyncKind::shuffle_down},
    {spv::OpGroupNonUniformBallot, SyncKind::ballot},
    {spv::OpGroupNonUniformElect, SyncKind::elect},
    {spv::OpSubgroupShuffleINTEL, SyncKind::shuffle},
    {spv::OpSubgroupShuffleXorINTEL, SyncKind::shuffle_xor},
};

}  // namespace

llvm::Value* Reader::emitSync(const Sync& sync, llvm::Type* result, llvm::ArrayRef<llvm::Value*> args) {
  std::vector<llvm::Type*> types;
  for (llvm::Value* a : args)
    types.push_back(a->getType());
  auto* f = markers_.sync(sync, llvm::FunctionType::get(result, types, false));
  auto* call = builder_.CreateCall(f, args);
  call->setConvergent();
  return call;
}

// void (destination, source, elements, destination stride, source stride, element bytes): the work-items share the
// elements. A function of its own, since the reader's blocks must stay whole.
llvm::Function* Reader::asyncCopyFunction() {
  const char* name = "async_work_group_copy";
  if (auto* f = module_.getFunction(name))
    return f;
  llvm::Type *i64 = builder_.getInt64Ty(), *ptr = builder_.getPtrTy();
  auto* f = llvm::Function::Create(llvm::FunctionType::get(builder_.getVoidTy(), {ptr, ptr, i64, i64, i64, i64}, false),
                                   llvm::Function::InternalLinkage, name, module_);
  llvm::IRBuilder<>::InsertPointGuard guard(builder_);
  auto block = [&](const char* n) { return llvm::BasicBlock::Create(context_, n, f); };
  auto *entry = block("entry"), *head = block("head"), *body = block("body"), *end = block("end");
  builder_.SetInsertPoint(entry);
  llvm::Value* first = query(Query::local_linear_id, 0);
  llvm::Value* step = builder_.CreateMul(builder_.CreateMul(query(Query::group_size, 0), query(Query::group_size, 1)),
                                         query(Query::group_size, 2));
  builder_.CreateBr(head);
  builder_.SetInsertPoint(head);
  auto* i = builder_.CreatePHI(i64, 2);
  i->addIncoming(first, entry);
  builder_.CreateCondBr(builder_.CreateICmpULT(i, f->getArg(2)), body, end);
  builder_.SetInsertPoint(body);
  auto at = [&](unsigned p, unsigned stride) {
    return builder_.CreateGEP(builder_.getInt8Ty(), f->getArg(p),
                              builder_.CreateMul(builder_.CreateMul(i, f->getArg(stride)), f->getArg(5)));
  };
  builder_.CreateMemCpy(at(0, 3), llvm::Align(1), at(1, 4), llvm::Align(1), f->getArg(5));
  i->addIncoming(builder_.CreateAdd(i, step), body);
  builder_.CreateBr(head);
  builder_.SetInsertPoint(end);
  builder_.CreateRetVoid();
  return f;
}

// Of two values per work-item, those of the sub-group one after the other: each gets the one that lies as many lanes
// further up or down.
bool Reader::readShuffleBetween(const SpirvInst& inst) {
  const bool down = inst.opcode == spv::OpSubgroupShuffleDownINTEL;
  if (!down && inst.opcode != spv::OpSubgroupShuffleUpINTEL)
    return false;
  llvm::Value *first = value(inst, inst.op(0)), *second = value(inst, inst.op(1)), *delta = value(inst, inst.op(2));
  llvm::Type* result = valueType(inst, inst.type_id);
  if (first->getType() != result || second->getType() != result || !delta->getType()->isIntegerTy())
    fail(inst, "operands do not fit a shuffle");
  delta = builder_.CreateZExtOrTrunc(delta, builder_.getInt64Ty());
  llvm::Value *lane = query(Query::subgroup_local_id, 0), *lanes = query(Query::subgroup_max_size, 0);
  // Counted from the first lane of `first`.
  llvm::Value* from =
      down ? builder_.CreateAdd(lane, delta) : builder_.CreateSub(builder_.CreateAdd(lane, lanes), delta);
  llvm::Value* in_first = builder_.CreateICmpULT(from, lanes);
  llvm::Value* index = builder_.CreateSelect(in_first, from, builder_.CreateSub(from, lanes));
  const Sync sync{Scope::sub_group, SyncKind::shuffle, GroupOp::none};
  llvm::Value* of_first = emitSync(sync, result, {first, index});
  llvm::Value* of_second = emitSync(sync, result, {second, index});
  setValue(inst, builder_.CreateSelect(in_first, of_first, of_second));
  return true;
}

bool Reader::readGroup(const SpirvInst& inst) {
  if (readShuffleBetween(inst))
    return true;
  auto scope = [&](size_t i) {
    uint64_t s = constantInt(inst, inst.op(i));
    if (s == spv::ScopeWorkgroup)
      return Scope::work_group;
    if (s == spv::ScopeSubgroup)
      return Scope::sub_group;
    fail(inst, "scope " + std::to_string(s) + " is neither work-group nor sub-group");
  };
  if (inst.opcode == spv::OpControlBarrier) {
    uint64_t s = constantInt(inst, inst.op(0));
    if (s == spv::ScopeInvocation)
      return true;
    emitSync({scope(0), SyncKind::barrier, GroupOp::none}, builder_.getVoidTy(), {});
    return true;
  }
  if (inst.opcode == spv::OpGroupAsyncCopy) {  // scope, destination, source, elements, stride, event
    llvm::Value *to = value(inst, inst.op(1)), *from = value(inst, inst.op(2));
    requirePointer(inst, to);
    requirePointer(inst, from);
    const Type& element = pointee(inst, inst.op(1));
    auto integer = [&](size_t i) {
      llvm::Value* v = value(inst, inst.op(i));
      if (!v->getType()->isIntegerTy())
        fail(inst, "operand " + std::to_string(i) + " is not an integer");
      return builder_.CreateZExtOrTrunc(v, builder_.getInt64Ty());
    };
    if (element.bytes == 0)
      fail(inst, "copy of a type without size");
    // The stride is that of the global side.
    bool to_local = typeOfValue(inst, inst.op(1)).storage_class == spv::StorageClassWorkgroup;
    llvm::Value *one = builder_.getInt64(1), *stride = integer(4);
    llvm::Value* count = integer(3);
    to = builder_.CreateAddrSpaceCast(to, builder_.getPtrTy());
    from = builder_.CreateAddrSpaceCast(from, builder_.getPtrTy());
    builder_.CreateCall(asyncCopyFunction(), {to, from, count, to_local ? one : stride, to_local ? stride : one,
                                              builder_.getInt64(element.bytes)});
    setValue(inst, llvm::Constant::getNullValue(valueType(inst, inst.type_id)));
    return true;
  }
  if (inst.opcode == spv::OpGroupWaitEvents) {
    emitSync({Scope::work_group, SyncKind::barrier, GroupOp::none}, builder_.getVoidTy(), {});
    return true;
  }
  for (const ReductionRow& row : kReductions) {
    if (row.opcode != inst.opcode)
      continue;
    llvm::Value* v = value(inst, inst.op(2));
    if (row.operand == 'f' ? !v->getType()->isFloatingPointTy()
                           : !v->getType()->isIntegerTy() || v->getType()->isIntegerTy(1) != (row.operand == 'b'))
      fail(inst, "operand type does not fit the group operation");
    SyncKind kind;
    switch (inst.op(1)) {
    case spv::GroupOperationReduce: kind = SyncKind::reduce; break;
    case spv::GroupOperationInclusiveScan: kind = SyncKind::inclusive_scan; break;
    case spv::GroupOperationExclusiveScan: kind = SyncKind::exclusive_scan; break;
    default: fail(inst, "group operation " + std::to_string(inst.op(1)) + " is not supported");
    }
    setValue(inst, emitSync({scope(0), kind, row.op}, v->getType(), {v}));
    return true;
  }
  for (const Plain& row : kPlain) {
    if (row.opcode != inst.opcode)
      continue;
    bool intel = inst.opcode == spv::OpSubgroupShuffleINTEL || inst.opcode == spv::OpSubgroupShuffleXorINTEL;
    Sync s{intel ? Scope::sub_group : scope(0), row.kind, GroupOp::none};
    llvm::Type* result = valueType(inst, inst.type_id);
    size_t first = intel ? 0 : 1;
    std::vector<llvm::Value*> args;
    for (size_t i = first; i < inst.operands.size(); ++i)
      args.push_back(value(inst, inst.op(i)));
    size_t expected = s.kind == SyncKind::elect ? 0
                      : s.kind == SyncKind::all || s.kind == SyncKind::any || s.kind == SyncKind::ballot ||
                              s.kind == SyncKind::broadcast_first
                          ? 1
                          : 2;
    if (args.size() != expected)
      fail(inst, "group operation takes " + std::to_string(expected) + " operands");
    if (s.kind == SyncKind::all || s.kind == SyncKind::any || s.kind == SyncKind::ballot) {
      if (!args[0]->getType()->isIntegerTy(1))
        fail(inst, "predicate is not a boolean");
    } else if (s.kind != SyncKind::elect && args[0]->getType() != result) {
      fail(inst, "operand and result differ in type");
    }
    if (s.kind == SyncKind::ballot && result != llvm::FixedVectorType::get(builder_.getInt32Ty(), 4))
      fail(inst, "result of a ballot is not four 32-bit integers");
    if (expected == 2) {  // the lane: an integer, or for a work-group up to three of them
      auto* t = args[1]->getType();
      auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(t);
      bool multi = vec && s.kind == SyncKind::broadcast && s.scope == Scope::work_group && vec->getNumElements() <= 3;
      if (!t->isIntOrIntVectorTy() || (vec && !multi))
        fail(inst, "lane index is not an integer");
      if (multi) {
        llvm::Value *x = nullptr, *stride = builder_.getInt64(1);
        for (unsigned d = 0; d < vec->getNumElements(); ++d) {
          llvm::Value* e = builder_.CreateZExtOrTrunc(builder_.CreateExtractElement(args[1], d), builder_.getInt64Ty());
          e = builder_.CreateMul(e, stride);
          x = x ? builder_.CreateAdd(x, e) : e;
          stride = builder_.CreateMul(stride, query(Query::group_size, d));
        }
        args[1] = x;
      } else {
        args[1] = builder_.CreateZExtOrTrunc(args[1], builder_.getInt64Ty());
      }
    }
    if ((s.kind == SyncKind::all || s.kind == SyncKind::any || s.kind == SyncKind::elect) && !result->isIntegerTy(1))
      fail(inst, "result is not a boolean");
    setValue(inst, emitSync(s, result, args));
    return true;
  }
  return false;
}

}  // namespace zefuse::spirv
