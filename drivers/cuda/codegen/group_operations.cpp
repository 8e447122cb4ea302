#include "drivers/cuda/codegen/group_operations.h"

#include "llvm/IR/IntrinsicsNVPTX.h"

#include <functional>

namespace zefuse::cuda {
namespace {

using spirv::GroupOp;
using spirv::SyncKind;

llvm::Value* combine(llvm::IRBuilder<>& b, GroupOp op, llvm::Value* x, llvm::Value* y) {
  switch (op) {
  case GroupOp::iadd: return b.CreateAdd(x, y);
  case GroupOp::fadd: return b.CreateFAdd(x, y);
  case GroupOp::imul: return b.CreateMul(x, y);
  case GroupOp::fmul: return b.CreateFMul(x, y);
  case GroupOp::fmin: return b.CreateBinaryIntrinsic(llvm::Intrinsic::minnum, x, y);
  case GroupOp::fmax: return b.CreateBinaryIntrinsic(llvm::Intrinsic::maxnum, x, y);
  case GroupOp::umin: return b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, x, y);
  case GroupOp::umax: return b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, x, y);
  case GroupOp::smin: return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
  case GroupOp::smax: return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
  case GroupOp::bit_and:
  case GroupOp::logical_and: return b.CreateAnd(x, y);
  case GroupOp::bit_or:
  case GroupOp::logical_or: return b.CreateOr(x, y);
  case GroupOp::bit_xor:
  case GroupOp::logical_xor: return b.CreateXor(x, y);
  case GroupOp::none: break;
  }
  throw spirv::CompileError("a group operation without an operator");
}

llvm::Constant* identity(GroupOp op, llvm::Type* type) {
  const unsigned bits = type->getScalarSizeInBits();
  switch (op) {
  case GroupOp::fadd: return llvm::ConstantFP::getNegativeZero(type);
  case GroupOp::fmul: return llvm::ConstantFP::get(type, 1.0);
  case GroupOp::fmin: return llvm::ConstantFP::getInfinity(type);
  case GroupOp::fmax: return llvm::ConstantFP::getInfinity(type, true);
  case GroupOp::imul: return llvm::ConstantInt::get(type, 1);
  case GroupOp::umin:
  case GroupOp::bit_and:
  case GroupOp::logical_and: return llvm::Constant::getAllOnesValue(type);
  case GroupOp::smin: return llvm::ConstantInt::get(type, llvm::APInt::getSignedMaxValue(bits));
  case GroupOp::smax: return llvm::ConstantInt::get(type, llvm::APInt::getSignedMinValue(bits));
  default: return llvm::Constant::getNullValue(type);
  }
}

// A value of any type through `each`, which takes and returns 32 bits.
llvm::Value* byWords(llvm::IRBuilder<>& b, llvm::Value* v, const std::function<llvm::Value*(llvm::Value*)>& each) {
  llvm::Type* type = v->getType();
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type)) {
    llvm::Value* all = llvm::PoisonValue::get(type);
    for (unsigned i = 0; i < vector->getNumElements(); ++i)
      all = b.CreateInsertElement(all, byWords(b, b.CreateExtractElement(v, i), each), i);
    return all;
  }
  const unsigned bits = type->getScalarSizeInBits();
  if (!(type->isIntegerTy() || type->isFloatingPointTy()) || bits > 64)
    throw spirv::CompileError("a group operation on values of an unsupported type");
  llvm::Value* as_int = b.CreateBitCast(v, b.getIntNTy(bits));
  if (bits <= 32) {
    llvm::Value* r = each(b.CreateZExt(as_int, b.getInt32Ty()));
    return b.CreateBitCast(b.CreateTrunc(r, b.getIntNTy(bits)), type);
  }
  llvm::Value* low = each(b.CreateTrunc(as_int, b.getInt32Ty()));
  llvm::Value* high = each(b.CreateTrunc(b.CreateLShr(as_int, 32), b.getInt32Ty()));
  llvm::Value* joined =
      b.CreateOr(b.CreateZExt(low, b.getInt64Ty()), b.CreateShl(b.CreateZExt(high, b.getInt64Ty()), 32));
  return b.CreateBitCast(joined, type);
}

llvm::Value* shuffle(llvm::IRBuilder<>& b, const SubGroup& g, llvm::Intrinsic::ID kind, llvm::Value* v,
                     llvm::Value* lane) {
  llvm::Value* clamp = b.getInt32((32 - g.width) << 8 | 31);  // lanes are numbered in parts of `width`
  return byWords(b, v, [&](llvm::Value* word) -> llvm::Value* {
    return b.CreateIntrinsic(b.getInt32Ty(), kind, {g.mask, word, lane, clamp});
  });
}
llvm::Value* fromLane(llvm::IRBuilder<>& b, const SubGroup& g, llvm::Value* v, llvm::Value* lane) {
  return shuffle(b, g, llvm::Intrinsic::nvvm_shfl_sync_idx_i32, v, lane);
}

llvm::Value* inclusiveScan(llvm::IRBuilder<>& b, const SubGroup& g, GroupOp op, llvm::Value* v) {
  for (uint32_t step = 1; step < g.width; step *= 2) {
    llvm::Value* before = fromLane(b, g, v, b.CreateSub(g.lane, b.getInt32(step)));
    v = b.CreateSelect(b.CreateICmpUGE(g.lane, b.getInt32(step)), combine(b, op, before, v), v);
  }
  return v;
}

llvm::Value* ballot(llvm::IRBuilder<>& b, const SubGroup& g, llvm::Value* predicate) {
  llvm::Value* lanes = b.CreateIntrinsic(b.getInt32Ty(), llvm::Intrinsic::nvvm_vote_ballot_sync, {g.mask, predicate});
  return b.CreateAnd(lanes, g.mask);
}

// The matrix instructions are a warp's, all of whose lanes must be there.
void requireWarp(const SubGroup& g) {
  if (g.width != 32 || g.count)
    throw spirv::CompileError("a matrix instruction outside of whole sub-groups of 32");
}

// mma.sync.aligned.m16n8k16: registers of two elements each; f16's operands have a type of their own. m16n8k8 of tf32:
// registers of one.
llvm::Value* multiplyFragments(llvm::IRBuilder<>& b, SyncKind kind, const std::vector<llvm::Value*>& operands) {
  const bool f16 = kind == SyncKind::multiply_fragments_f16;
  llvm::SmallVector<llvm::Value*> registers;
  for (unsigned operand = 0; operand < 2; ++operand)
    for (unsigned i = 0; i < (operand == 0 ? 4u : 2u); ++i) {
      llvm::Value* pair = b.CreateExtractElement(operands[operand], i);
      registers.push_back(f16 ? b.CreateBitCast(pair, llvm::FixedVectorType::get(b.getHalfTy(), 2)) : pair);
    }
  for (unsigned i = 0; i < 4; ++i)
    registers.push_back(b.CreateExtractElement(operands[2], i));
  auto* type = llvm::StructType::get(b.getFloatTy(), b.getFloatTy(), b.getFloatTy(), b.getFloatTy());
  llvm::CallInst* call =
      b.CreateIntrinsic(type,
                        f16                                         ? llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32
                        : kind == SyncKind::multiply_fragments_tf32 ? llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_tf32
                                                                    : llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16,
                        registers);
  call->setConvergent();  // LLVM's declaration does not say it, and would let it sink into a branch
  llvm::Value* sums = llvm::PoisonValue::get(operands[2]->getType());
  for (unsigned i = 0; i < 4; ++i)
    sums = b.CreateInsertElement(sums, b.CreateExtractValue(call, i), i);
  return sums;
}

llvm::Value* loadFragments(llvm::IRBuilder<>& b, bool transposed, llvm::Value* line) {
  llvm::Type* i32 = b.getInt32Ty();
  llvm::CallInst* call = b.CreateIntrinsic(llvm::StructType::get(i32, i32, i32, i32),
                                           transposed ? llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
                                                      : llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16,
                                           {line});
  llvm::Value* blocks = llvm::PoisonValue::get(llvm::FixedVectorType::get(i32, 4));
  for (unsigned i = 0; i < 4; ++i)
    blocks = b.CreateInsertElement(blocks, b.CreateExtractValue(call, i), i);
  return blocks;
}

void groupBarrier(llvm::IRBuilder<>& b) {
  b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, {b.getInt32(0)});
}

// A helper function, once per operation and type: what items [0, end) have in `slots`, combined in order.
llvm::Function* orderedSum(llvm::Module& module, GroupOp op, llvm::Type* type) {
  std::string name;
  llvm::raw_string_ostream text(name);
  text << "zf.group." << int(op) << ".";
  type->print(text);
  if (auto* known = module.getFunction(name))
    return known;
  llvm::LLVMContext& context = module.getContext();
  llvm::IRBuilder<> b(context);
  auto* shared = llvm::PointerType::get(context, 3);
  auto* f = llvm::Function::Create(llvm::FunctionType::get(type, {shared, b.getInt32Ty()}, false),
                                   llvm::Function::InternalLinkage, name, module);
  auto* entry = llvm::BasicBlock::Create(context, "", f);
  auto* head = llvm::BasicBlock::Create(context, "", f);
  auto* body = llvm::BasicBlock::Create(context, "", f);
  auto* end = llvm::BasicBlock::Create(context, "", f);
  b.SetInsertPoint(entry);
  b.CreateBr(head);
  b.SetInsertPoint(head);
  auto* i = b.CreatePHI(b.getInt32Ty(), 2);
  auto* sum = b.CreatePHI(type, 2);
  i->addIncoming(b.getInt32(0), entry);
  sum->addIncoming(identity(op, type), entry);
  b.CreateCondBr(b.CreateICmpULT(i, f->getArg(1)), body, end);
  b.SetInsertPoint(body);
  llvm::Value* v = b.CreateLoad(type, b.CreateGEP(b.getInt64Ty(), f->getArg(0), i));
  sum->addIncoming(combine(b, op, sum, v), body);
  i->addIncoming(b.CreateAdd(i, b.getInt32(1)), body);
  b.CreateBr(head);
  b.SetInsertPoint(end);
  b.CreateRet(sum);
  return f;
}

}  // namespace

llvm::Value* subGroupOperation(llvm::IRBuilder<>& b, const SubGroup& g, const spirv::Sync& sync, llvm::Type* result,
                               const std::vector<llvm::Value*>& operands) {
  auto lane = [&](llvm::Value* index) { return b.CreateTrunc(index, b.getInt32Ty()); };
  switch (sync.kind) {
  case SyncKind::barrier: return b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::nvvm_bar_warp_sync, {g.mask});
  case SyncKind::reduce: {
    llvm::Value* v = operands[0];
    if (!g.count) {
      for (uint32_t step = g.width / 2; step > 0; step /= 2)
        v = combine(b, sync.op, v, shuffle(b, g, llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, v, b.getInt32(step)));
      return v;
    }
    return fromLane(b, g, inclusiveScan(b, g, sync.op, v), b.CreateSub(g.count, b.getInt32(1)));
  }
  case SyncKind::inclusive_scan: return inclusiveScan(b, g, sync.op, operands[0]);
  case SyncKind::exclusive_scan: {
    llvm::Value* before = fromLane(b, g, inclusiveScan(b, g, sync.op, operands[0]), b.CreateSub(g.lane, b.getInt32(1)));
    return b.CreateSelect(b.CreateICmpEQ(g.lane, b.getInt32(0)), identity(sync.op, result), before);
  }
  case SyncKind::broadcast:
  case SyncKind::shuffle: return fromLane(b, g, operands[0], lane(operands[1]));
  case SyncKind::broadcast_first: return fromLane(b, g, operands[0], b.getInt32(0));
  case SyncKind::shuffle_xor: return fromLane(b, g, operands[0], b.CreateXor(g.lane, lane(operands[1])));
  case SyncKind::shuffle_up: return fromLane(b, g, operands[0], b.CreateSub(g.lane, lane(operands[1])));
  case SyncKind::shuffle_down: return fromLane(b, g, operands[0], b.CreateAdd(g.lane, lane(operands[1])));
  case SyncKind::all: return b.CreateICmpEQ(ballot(b, g, operands[0]), g.mask);
  case SyncKind::any: return b.CreateICmpNE(ballot(b, g, operands[0]), b.getInt32(0));
  case SyncKind::ballot: {
    llvm::Value* bits = b.CreateLShr(ballot(b, g, operands[0]), g.first_in_warp);
    return b.CreateInsertElement(llvm::Constant::getNullValue(result), bits, uint64_t{0});
  }
  case SyncKind::elect: return b.CreateICmpEQ(g.lane, b.getInt32(0));
  case SyncKind::matrix_mad_f16:
  case SyncKind::matrix_mad_bf16:
    throw spirv::CompileError("a matrix instruction of Intel's GPUs: compile the kernel for the device that runs it");
  case SyncKind::multiply_fragments_f16:
  case SyncKind::multiply_fragments_bf16:
  case SyncKind::multiply_fragments_tf32: requireWarp(g); return multiplyFragments(b, sync.kind, operands);
  case SyncKind::load_fragments:
  case SyncKind::load_fragments_transposed:
    requireWarp(g);
    return loadFragments(b, sync.kind == SyncKind::load_fragments_transposed, operands[0]);
  }
  return nullptr;
}

llvm::Value* workGroupOperation(llvm::IRBuilder<>& b, const WorkGroup& g, const spirv::Sync& sync, llvm::Type* result,
                                const std::vector<llvm::Value*>& operands) {
  if (sync.kind == SyncKind::barrier) {
    groupBarrier(b);
    return nullptr;
  }
  llvm::Value* v = operands.empty() ? b.getInt1(true) : operands[0];
  llvm::Type* type = v->getType();
  const bool boolean = type->isIntegerTy(1);
  if (boolean)
    v = b.CreateZExt(v, b.getInt8Ty());
  if (v->getType()->getPrimitiveSizeInBits() > 64)
    throw spirv::CompileError("a work-group operation on values of more than 8 bytes");
  auto slot = [&](llvm::Value* item) { return b.CreateGEP(b.getInt64Ty(), g.scratch, item); };
  b.CreateStore(v, slot(g.linear));
  groupBarrier(b);
  auto sum = [&](GroupOp op, llvm::Value* end) -> llvm::Value* {
    return b.CreateCall(orderedSum(*b.GetInsertBlock()->getModule(), op, v->getType()), {g.scratch, end});
  };
  auto truth = [&](llvm::Value* byte) { return b.CreateICmpNE(byte, llvm::ConstantInt::get(byte->getType(), 0)); };
  llvm::Value* r = nullptr;
  switch (sync.kind) {
  case SyncKind::reduce: r = sum(sync.op, g.items); break;
  case SyncKind::inclusive_scan: r = sum(sync.op, b.CreateAdd(g.linear, b.getInt32(1))); break;
  case SyncKind::exclusive_scan: r = sum(sync.op, g.linear); break;
  case SyncKind::broadcast: r = b.CreateLoad(v->getType(), slot(b.CreateTrunc(operands[1], b.getInt32Ty()))); break;
  case SyncKind::broadcast_first: r = b.CreateLoad(v->getType(), slot(b.getInt32(0))); break;
  case SyncKind::all: r = sum(GroupOp::bit_and, g.items); break;
  case SyncKind::any: r = sum(GroupOp::bit_or, g.items); break;
  case SyncKind::elect: r = b.CreateZExt(b.CreateICmpEQ(g.linear, b.getInt32(0)), b.getInt8Ty()); break;
  default: throw spirv::CompileError("a shuffle of a whole work-group");
  }
  groupBarrier(b);
  if (!boolean)
    return r;
  // An identity of all ones is a byte of ones: its lowest bit tells.
  return truth(b.CreateAnd(r, llvm::ConstantInt::get(r->getType(), 1)));
}

}  // namespace zefuse::cuda
