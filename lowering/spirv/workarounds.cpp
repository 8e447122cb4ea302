#include "lowering/spirv/workarounds.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"

using namespace llvm;

namespace zefuse {

static void splatCondition(SelectInst& select) {
  auto* type = dyn_cast<FixedVectorType>(select.getType());
  if (!type || select.getCondition()->getType()->isVectorTy())
    return;
  IRBuilder<> builder(&select);
  select.setCondition(builder.CreateVectorSplat(type->getNumElements(), select.getCondition()));
}

static void maskTruncated(ZExtInst& extend) {
  auto* truncate = dyn_cast<TruncInst>(extend.getOperand(0));
  if (!truncate || truncate->getSrcTy() == extend.getType())
    return;
  IRBuilder<> builder(&extend);
  Value* wide = builder.CreateZExtOrTrunc(truncate->getOperand(0), extend.getType());
  APInt mask =
      APInt::getLowBitsSet(extend.getType()->getScalarSizeInBits(), truncate->getType()->getScalarSizeInBits());
  extend.replaceAllUsesWith(builder.CreateAnd(wide, ConstantInt::get(extend.getType(), mask)));
  extend.eraseFromParent();
  if (truncate->use_empty())
    truncate->eraseFromParent();
}

static void defineOperands(Instruction& instruction) {
  if (isa<InsertElementInst, InsertValueInst, ShuffleVectorInst>(
          instruction))  // of parts that are written, or not read
    return;
  for (Use& use : instruction.operands()) {
    auto* constant = dyn_cast<Constant>(use.get());
    if (!constant || !(constant->getType()->isFPOrFPVectorTy() || constant->getType()->isIntOrIntVectorTy()))
      continue;
    if (isa<UndefValue>(constant))
      use.set(Constant::getNullValue(constant->getType()));
    else if (constant->containsUndefOrPoisonElement())
      use.set(Constant::replaceUndefsWith(constant, Constant::getNullValue(constant->getType()->getScalarType())));
  }
}

static void dropFreeze(FreezeInst& freeze) {
  Value* operand = freeze.getOperand(0);
  if (auto* constant = dyn_cast<Constant>(operand)) {
    Type* type = constant->getType();
    APInt least = APInt::getSignedMinValue(type->getScalarSizeInBits());
    operand = isa<UndefValue>(constant)
                  ? ConstantInt::get(type, least)
                  : Constant::replaceUndefsWith(constant, ConstantInt::get(type->getScalarType(), least));
  }
  freeze.replaceAllUsesWith(operand);
  freeze.eraseFromParent();
}

void rewriteForBackEnd(Function& function) {
  for (Instruction& instruction : make_early_inc_range(instructions(function)))
    if (auto* freeze = dyn_cast<FreezeInst>(&instruction))
      dropFreeze(*freeze);
  for (Instruction& instruction : instructions(function))
    defineOperands(instruction);
  // Listed first: a rewrite erases instructions, and a dominating block may stand behind the one it dominates.
  SmallVector<Instruction*> found;
  for (Instruction& instruction : instructions(function))
    if (isa<SelectInst, ZExtInst>(instruction))
      found.push_back(&instruction);
  for (Instruction* instruction : found) {
    if (auto* select = dyn_cast<SelectInst>(instruction))
      splatCondition(*select);
    else
      maskTruncated(*cast<ZExtInst>(instruction));
  }
}

}  // namespace zefuse
