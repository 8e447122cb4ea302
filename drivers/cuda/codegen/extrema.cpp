#include "drivers/cuda/codegen/extrema.h"

#include "llvm/IR/Analysis.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/PatternMatch.h"

#include <optional>
#include <utility>

namespace zefuse::cuda {
namespace {

using namespace llvm::PatternMatch;

// What a comparison asks for a NaN in; null: it asks for something else. `is` is whether it is true of a NaN.
llvm::Value* askedForNan(llvm::Value* condition, bool& is) {
  auto* compare = llvm::dyn_cast<llvm::FCmpInst>(condition);
  if (!compare || (compare->getOperand(0) != compare->getOperand(1) && !match(compare->getOperand(1), m_AnyZeroFP())))
    return nullptr;
  is = compare->getPredicate() == llvm::CmpInst::FCMP_UNO;
  return is || compare->getPredicate() == llvm::CmpInst::FCMP_ORD ? compare->getOperand(0) : nullptr;
}

// isnan(x) || a better b ? a : b. x = a keeps a NaN of either, x = b drops it.
struct Extremum {
  llvm::Value *x = nullptr, *a = nullptr, *b = nullptr;
  llvm::CmpPredicate better;
};

// Whether what is chosen is a number that was compared, or its bits: of numbers widened from bf16 LLVM chooses those.
bool isNumber(llvm::Value* number, llvm::Value* chosen) {
  return number == chosen || match(number, m_BitCast(m_Specific(chosen)));
}

// a better b, where `first` is chosen if so, else `second`.
bool compares(llvm::Value* condition, llvm::Value* first, llvm::Value* second, Extremum& found) {
  return match(condition, m_FCmp(found.better, m_Value(found.a), m_Value(found.b))) && isNumber(found.a, first) &&
         isNumber(found.b, second);
}

std::optional<Extremum> extremumOf(llvm::SelectInst& select) {
  Extremum found;
  bool is = false;
  llvm::Value *first = nullptr, *second = nullptr;
  if (match(select.getCondition(), m_LogicalOr(m_Value(first), m_Value(second)))) {
    for (auto [nan, comparison] : {std::pair{first, second}, {second, first}})
      if ((found.x = askedForNan(nan, is)) && is &&
          compares(comparison, select.getTrueValue(), select.getFalseValue(), found))
        return found;
    return std::nullopt;
  }
  // isnan(x) ? a : (a better b ? a : b), as it is written
  found.x = askedForNan(select.getCondition(), is);
  auto* other = llvm::dyn_cast<llvm::SelectInst>(is ? select.getFalseValue() : select.getTrueValue());
  if (!found.x || !other || !compares(other->getCondition(), other->getTrueValue(), other->getFalseValue(), found))
    return std::nullopt;
  return isNumber(found.a, is ? select.getTrueValue() : select.getFalseValue()) ? std::optional(found) : std::nullopt;
}

llvm::Value* instructionFor(llvm::SelectInst& select) {
  llvm::Type* type = select.getType();
  if (!type->getScalarType()->isFloatTy() && !type->getScalarType()->isIntegerTy(32))
    return nullptr;
  const std::optional<Extremum> extremum = extremumOf(select);
  if (!extremum || (extremum->x != extremum->a && extremum->x != extremum->b) ||
      !extremum->a->getType()->getScalarType()->isFloatTy())
    return nullptr;
  const bool larger = extremum->better == llvm::CmpInst::FCMP_OGT, keeps = extremum->x == extremum->a;
  if (!larger && extremum->better != llvm::CmpInst::FCMP_OLT)
    return nullptr;
  llvm::IRBuilder<> builder(&select);
  llvm::Value* number =
      builder.CreateBinaryIntrinsic(keeps ? (larger ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum)
                                          : (larger ? llvm::Intrinsic::maxnum : llvm::Intrinsic::minnum),
                                    extremum->a, extremum->b);
  return builder.CreateBitCast(number, type);
}

}  // namespace

llvm::PreservedAnalyses ExtremumInstructions::run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
  llvm::PreservedAnalyses preserved = llvm::PreservedAnalyses::all();
  for (llvm::Instruction& instruction : llvm::make_early_inc_range(llvm::instructions(function)))
    if (auto* select = llvm::dyn_cast<llvm::SelectInst>(&instruction))
      if (llvm::Value* value = instructionFor(*select)) {
        value->takeName(select);
        select->replaceAllUsesWith(value);
        select->eraseFromParent();  // what it chose from goes with the dead code
        preserved = llvm::PreservedAnalyses::none();
        preserved.preserveSet<llvm::CFGAnalyses>();
      }
  return preserved;
}

}  // namespace zefuse::cuda
