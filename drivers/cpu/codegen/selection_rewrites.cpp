// Rewrites between optimize, which would undo them, and instruction selection.
#include "drivers/cpu/codegen/backend.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/PatternMatch.h"

namespace zefuse::cpu {
namespace {

constexpr int kLanesOfRegister = 8;  // of 64 bits, in AVX-512

unsigned lanesOf(const llvm::Value* vector) {
  return llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements();
}

// The vector whose lanes from `first` on are v's first `count`; null if v is no such shuffle.
llvm::Value* sourceOfLanes(llvm::Value* v, unsigned first, unsigned count) {
  auto* shuffle = llvm::dyn_cast<llvm::ShuffleVectorInst>(v);
  if (!shuffle)
    return nullptr;
  const llvm::ArrayRef<int> mask = shuffle->getShuffleMask().take_front(count);
  for (auto [lane, from] : llvm::enumerate(mask))
    if (from != static_cast<int>(first + lane))
      return nullptr;
  return shuffle->getOperand(0);
}

// What one step of a tree of additions adds up: the first `width` lanes of `sum` are sums of two of that vector's each.
llvm::Value* addedUpInto(llvm::Value* sum, unsigned width) {
  auto* add = llvm::dyn_cast<llvm::BinaryOperator>(sum);
  if (!add || add->getOpcode() != llvm::Instruction::Add)
    return nullptr;
  for (unsigned side : {0, 1}) {
    llvm::Value *low = add->getOperand(side), *high = sourceOfLanes(add->getOperand(1 - side), width, width);
    if (high && high == (width < lanesOf(sum) ? low : sourceOfLanes(low, 0, width)))
      return high;
  }
  return nullptr;
}

// The vector whose elements are added up in the first `width` lanes of `sum`, in a tree that becomes narrower on its
// way; null if there is none.
llvm::Value* addedUpByHalves(llvm::Value* sum, unsigned width) {
  const unsigned narrowest = lanesOf(sum);
  while (llvm::Value* wider = addedUpInto(sum, width)) {
    sum = wider;
    width *= 2;
  }
  return width == lanesOf(sum) && width > narrowest ? sum : nullptr;
}

using Lane = std::pair<const llvm::Value*, int>;

// Where a lane of v comes from, behind all shuffles; a null vector: it is undefined.
Lane originOf(const llvm::Value* v, int lane) {
  while (auto* shuffle = llvm::dyn_cast<llvm::ShuffleVectorInst>(v)) {
    const int from = shuffle->getMaskValue(lane), count = lanesOf(shuffle->getOperand(0));
    if (from < 0)
      return {nullptr, 0};
    v = shuffle->getOperand(from < count ? 0 : 1);
    lane = from < count ? from : from - count;
  }
  return llvm::isa<llvm::UndefValue>(v) ? Lane{nullptr, 0} : Lane{v, lane};
}

// Whether the register of lanes from `first` on holds two lanes and then those again, in any order.
bool repeatsTwoLanes(const llvm::Value* v, int first) {
  const Lane one = originOf(v, first), other = originOf(v, first + 1);
  if (!one.first || !other.first || one == other)
    return false;
  bool repeats = false;
  for (int lane = first + 2; lane < first + kLanesOfRegister; ++lane) {
    const Lane from = originOf(v, lane);
    if (from.first && from != one && from != other)
      return false;
    repeats |= from.first != nullptr;
  }
  return repeats;
}

bool convertsBetweenIntegersAndFloats(const llvm::Instruction& i) {
  return llvm::isa<llvm::SIToFPInst, llvm::UIToFPInst, llvm::FPToSIInst, llvm::FPToUIInst>(i);
}

}  // namespace

void keepRepeatedLanes(llvm::Module& module) {
  for (llvm::Function& f : module)
    for (llvm::Instruction& i : llvm::instructions(f)) {
      if (!convertsBetweenIntegersAndFloats(i) || !llvm::isa<llvm::ShuffleVectorInst>(i.getOperand(0)))
        continue;
      llvm::Value* v = i.getOperand(0);
      const int lanes = lanesOf(v);
      if (v->getType()->getScalarSizeInBits() != 64 || lanes % kLanesOfRegister != 0)
        continue;
      bool repeats = false;
      for (int first = 0; first < lanes && !repeats; first += kLanesOfRegister)
        repeats = repeatsTwoLanes(v, first);
      if (!repeats)
        continue;
      llvm::IRBuilder<> builder(&i);
      llvm::Type* floats = llvm::FixedVectorType::get(builder.getDoubleTy(), lanes);
      llvm::Value* kept = builder.CreateArithmeticFence(builder.CreateBitCast(v, floats), floats);
      i.setOperand(0, builder.CreateBitCast(kept, v->getType()));
    }
}

void addUpInOneWidth(llvm::Module& module) {
  using namespace llvm::PatternMatch;
  for (llvm::Function& f : module)
    for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(f))) {
      llvm::Value* sum = nullptr;
      const bool lane = match(&i, m_ExtractElt(m_Value(sum), m_ZeroInt()));
      if (!lane && !match(&i, m_Intrinsic<llvm::Intrinsic::vector_reduce_add>(m_Value(sum))))
        continue;
      if (llvm::Value* all = addedUpByHalves(sum, lane ? 1 : lanesOf(sum)))
        i.replaceAllUsesWith(llvm::IRBuilder<>(&i).CreateAddReduce(all));
    }
}

void useMaxInstructions(llvm::Module& module) {
  using namespace llvm::PatternMatch;
  auto comparison = [](llvm::Value* v, llvm::Value* a, llvm::Value* b) {
    auto* c = llvm::dyn_cast<llvm::FCmpInst>(v);
    if (!c)
      return false;
    auto p = c->getPredicate();
    bool strict = p == llvm::FCmpInst::FCMP_OGT || p == llvm::FCmpInst::FCMP_OLT;
    return strict &&
           ((c->getOperand(0) == a && c->getOperand(1) == b) || (c->getOperand(0) == b && c->getOperand(1) == a));
  };
  auto isNan = [](llvm::Value* v, llvm::Value* a) {
    auto* c = llvm::dyn_cast<llvm::FCmpInst>(v);
    return c && c->getPredicate() == llvm::FCmpInst::FCMP_UNO && c->getOperand(0) == a &&
           (c->getOperand(1) == a || match(c->getOperand(1), m_NonNaN()));
  };
  for (llvm::Function& f : module)
    for (llvm::Instruction& i : llvm::instructions(f)) {
      auto* select = llvm::dyn_cast<llvm::SelectInst>(&i);
      llvm::Value *x, *y;
      if (!select || !match(select->getCondition(), m_LogicalOr(m_Value(x), m_Value(y))))
        continue;
      llvm::Value *a = select->getTrueValue(), *b = select->getFalseValue();
      if (comparison(y, a, b))
        std::swap(x, y);
      if (!comparison(x, a, b) || !isNan(y, a))
        continue;
      llvm::IRBuilder<> builder(select);
      select->setOperand(2, builder.CreateSelect(x, a, b));
      select->setCondition(y);
    }
}

void keepWholeStores(llvm::Module& module) {
  for (llvm::Function& f : module)
    for (llvm::Instruction& i : llvm::instructions(f)) {
      auto* store = llvm::dyn_cast<llvm::StoreInst>(&i);
      auto* select = store ? llvm::dyn_cast<llvm::SelectInst>(store->getValueOperand()) : nullptr;
      if (!select || !select->getType()->isVectorTy())
        continue;
      auto isThere = [&](llvm::Value* v) {
        auto* load = llvm::dyn_cast<llvm::LoadInst>(v);
        return load && load->getPointerOperand() == store->getPointerOperand();
      };
      // A fence is of floats.
      llvm::Type *type = select->getType(), *element = type->getScalarType();
      const unsigned bits = element->getPrimitiveSizeInBits();
      if ((!isThere(select->getTrueValue()) && !isThere(select->getFalseValue())) || (bits != 32 && bits != 64))
        continue;
      llvm::IRBuilder<> builder(store);
      llvm::Type* floats =
          llvm::FixedVectorType::get(bits == 32 ? builder.getFloatTy() : builder.getDoubleTy(), lanesOf(select));
      llvm::Value* kept = builder.CreateArithmeticFence(builder.CreateBitCast(select, floats), floats);
      store->setOperand(0, builder.CreateBitCast(kept, type));
    }
}

}  // namespace zefuse::cpu
