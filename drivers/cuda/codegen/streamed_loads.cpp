#include "drivers/cuda/codegen/streamed_loads.h"

#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"

namespace zefuse::cuda {
namespace {

// What the kernel only reads, through this pointer and any other: nobody writes it while the kernel runs.
bool isOnlyRead(const llvm::Value* pointer) {
  const auto* argument = llvm::dyn_cast<llvm::Argument>(llvm::getUnderlyingObject(pointer));
  return argument && argument->getParent()->getCallingConv() == llvm::CallingConv::PTX_Kernel &&
         argument->hasNoAliasAttr() && argument->onlyReadsMemory();
}

void stream(llvm::LoadInst& load) {
  constexpr unsigned global = 1;
  const uint64_t bytes = load.getModule()->getDataLayout().getTypeStoreSize(load.getType()).getFixedValue();
  if (!load.isSimple() || !load.hasMetadata(llvm::LLVMContext::MD_nontemporal) ||
      load.getPointerAddressSpace() != global || (bytes != 8 && bytes != 16) || load.getAlign().value() < bytes ||
      !load.getType()->isVectorTy() || !isOnlyRead(load.getPointerOperand()))
    return;
  llvm::IRBuilder<> b(&load);
  const bool four = bytes == 16;
  const unsigned words = four ? 4 : 2;
  auto* results = llvm::StructType::get(b.getContext(), llvm::SmallVector<llvm::Type*>(words, b.getInt32Ty()));
  auto* type = llvm::FunctionType::get(results, {load.getPointerOperandType()}, false);
  auto* assembly = llvm::InlineAsm::get(type,
                                        four ? "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];"
                                             : "ld.global.nc.L1::no_allocate.v2.b32 {$0, $1}, [$2];",
                                        four ? "=r,=r,=r,=r,l" : "=r,=r,l", /*hasSideEffects=*/false);
  llvm::CallInst* call = b.CreateCall(assembly, {load.getPointerOperand()});
  call->setDoesNotThrow();
  call->setDoesNotAccessMemory();
  llvm::Value* value = llvm::PoisonValue::get(llvm::FixedVectorType::get(b.getInt32Ty(), words));
  for (unsigned word = 0; word < words; ++word)
    value = b.CreateInsertElement(value, b.CreateExtractValue(call, word), uint64_t(word));
  load.replaceAllUsesWith(b.CreateBitCast(value, load.getType()));
  load.eraseFromParent();
}

}  // namespace

void streamLoads(llvm::Module& module) {
  for (llvm::Function& function : module)
    for (llvm::Instruction& instruction : llvm::make_early_inc_range(llvm::instructions(function)))
      if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction))
        stream(*load);
}

}  // namespace zefuse::cuda
