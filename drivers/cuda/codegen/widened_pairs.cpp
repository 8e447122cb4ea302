#include "drivers/cuda/codegen/widened_pairs.h"

#include "llvm/IR/Analysis.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/PatternMatch.h"

namespace zefuse::cuda {
namespace {

using namespace llvm::PatternMatch;

// Null: it is something else.
llvm::Value* ofWords(llvm::Instruction& instruction) {
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(instruction.getType());
  llvm::Value* narrow = nullptr;
  if (!type || !type->getElementType()->isIntegerTy(32) || type->getNumElements() % 2 != 0 ||
      !match(&instruction, m_Shl(m_ZExtOrSExt(m_Value(narrow)), m_SpecificInt(16))) ||
      !narrow->getType()->getScalarType()->isIntegerTy(16))
    return nullptr;
  const unsigned count = type->getNumElements();
  llvm::IRBuilder<> b(&instruction);
  auto* words_type = llvm::FixedVectorType::get(b.getInt32Ty(), count / 2);
  llvm::Value* words = b.CreateBitCast(narrow, words_type);
  llvm::Value* even = b.CreateShl(words, 16);
  llvm::Value* odd = b.CreateAnd(words, llvm::ConstantInt::get(words_type, 0xffff0000));
  llvm::SmallVector<int> turns;
  for (unsigned word = 0; word < count / 2; ++word)
    turns.append({int(word), int(count / 2 + word)});
  return b.CreateShuffleVector(even, odd, turns);
}

}  // namespace

llvm::PreservedAnalyses WidenedPairs::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  llvm::PreservedAnalyses preserved = llvm::PreservedAnalyses::all();
  for (llvm::Instruction& instruction : llvm::make_early_inc_range(llvm::instructions(function)))
    if (llvm::Value* value = ofWords(instruction)) {
      value->takeName(&instruction);
      instruction.replaceAllUsesWith(value);
      instruction.eraseFromParent();
      preserved = llvm::PreservedAnalyses::none();
      preserved.preserveSet<llvm::CFGAnalyses>();
    }
  return preserved;
}

}  // namespace zefuse::cuda
