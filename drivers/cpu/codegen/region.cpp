#include "drivers/cpu/codegen/region.h"

#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Local.h"

#include <algorithm>
#include <map>

namespace zefuse::cpu {
namespace {

constexpr size_t kMaxClonedInstructions = 1u << 20;
constexpr unsigned kRematerializeLimit = 8;

// Dominators inside one region (Cooper, Harvey, Kennedy).
class RegionDominators {
public:
  RegionDominators(const Region& region, const llvm::DenseMap<llvm::BasicBlock*, unsigned>& ends) {
    for (unsigned i = 0; i < region.blocks.size(); ++i)
      number_[region.blocks[i]] = i;
    idom_.assign(region.blocks.size(), ~0u);
    std::vector<std::vector<unsigned>> preds(region.blocks.size());
    for (unsigned i = 0; i < region.blocks.size(); ++i)
      if (!ends.count(region.blocks[i]))
        for (llvm::BasicBlock* s : llvm::successors(region.blocks[i]))
          preds[number_.at(s)].push_back(i);
    idom_[0] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (unsigned i = 1; i < idom_.size(); ++i) {
        unsigned best = ~0u;
        for (unsigned p : preds[i])
          if (idom_[p] != ~0u)
            best = best == ~0u ? p : meet(best, p);
        if (best != idom_[i]) {
          idom_[i] = best;
          changed = true;
        }
      }
    }
  }
  bool contains(llvm::BasicBlock* b) const { return number_.count(b); }
  bool dominates(llvm::BasicBlock* a, llvm::BasicBlock* b) const {
    auto it = number_.find(a);
    if (it == number_.end())
      return false;
    unsigned x = it->second, y = number_.at(b);
    while (y > x)
      y = idom_[y];
    return x == y;
  }

private:
  unsigned meet(unsigned a, unsigned b) const {
    while (a != b) {
      while (a > b)
        a = idom_[a];
      while (b > a)
        b = idom_[b];
    }
    return a;
  }
  llvm::DenseMap<llvm::BasicBlock*, unsigned> number_;
  std::vector<unsigned> idom_;
};

class RegionFormer {
public:
  RegionFormer(llvm::Function& kernel, const spirv::Markers& markers)
      : kernel_(kernel), markers_(markers), layout_(kernel.getDataLayout()), builder_(kernel.getContext()) {}

  RegionPlan run() {
    llvm::removeUnreachableBlocks(kernel_);
    splitAtSyncs();
    if (!plan_.syncs.empty())
      moveAllocasToSlots();
    findRegions();
    if (!plan_.syncs.empty())
      spillCrossing();
    return std::move(plan_);
  }

private:
  int newSlot(llvm::Type* type, llvm::Align align = llvm::Align(1)) {
    auto* storage = slotStorage(type);
    align = std::max(align, layout_.getABITypeAlign(storage));
    uint64_t stride = llvm::alignTo(layout_.getTypeAllocSize(storage), align);
    plan_.slots.push_back({type, stride});
    return plan_.slots.size() - 1;
  }

  llvm::Value* slotAddress(int slot) {
    if (!plan_.slot_marker) {
      auto* type = llvm::FunctionType::get(builder_.getPtrTy(), {builder_.getInt32Ty()}, false);
      plan_.slot_marker =
          llvm::Function::Create(type, llvm::Function::ExternalLinkage, "zf.slot", *kernel_.getParent());
      plan_.slot_marker->setDoesNotAccessMemory();
      plan_.slot_marker->setDoesNotThrow();
      plan_.slot_marker->setWillReturn();
    }
    return builder_.CreateCall(plan_.slot_marker, {builder_.getInt32(slot)});
  }

  void splitAtSyncs() {
    std::vector<llvm::CallInst*> calls;
    for (llvm::Instruction& i : llvm::instructions(kernel_))
      if (markers_.asSync(&i))
        calls.push_back(llvm::cast<llvm::CallInst>(&i));
    for (llvm::CallInst* call : calls) {
      SyncPoint s;
      s.sync = *markers_.asSync(call);
      s.before = call->getParent();
      s.after = s.before->splitBasicBlock(call);
      builder_.SetInsertPoint(s.before->getTerminator());
      if (call->arg_size() > 0) {
        s.input = newSlot(call->getArgOperand(0)->getType());
        storeSlot(builder_, call->getArgOperand(0), slotAddress(s.input));
      }
      if (call->arg_size() > 1) {
        s.index = newSlot(call->getArgOperand(1)->getType());
        storeSlot(builder_, call->getArgOperand(1), slotAddress(s.index));
      }
      if (call->arg_size() > 2) {
        s.addend = newSlot(call->getArgOperand(2)->getType());
        storeSlot(builder_, call->getArgOperand(2), slotAddress(s.addend));
      }
      if (!call->getType()->isVoidTy()) {
        s.output = newSlot(call->getType());
        builder_.SetInsertPoint(call);
        call->replaceAllUsesWith(loadSlot(builder_, call->getType(), slotAddress(s.output)));
      }
      call->eraseFromParent();
      plan_.syncs.push_back(s);
    }
    // A later split moved the tail of a block, so `before` of an earlier sync may not be the block that branches.
    for (SyncPoint& s : plan_.syncs)
      s.before = s.after->getSinglePredecessor();
    for (unsigned i = 0; i < plan_.syncs.size(); ++i)
      ends_[plan_.syncs[i].before] = i;
  }

  // Where an operand is needed: before its user, or at the end of a phi's incoming block.
  llvm::Instruction* usePoint(llvm::Use& use) {
    auto* user = llvm::cast<llvm::Instruction>(use.getUser());
    if (auto* phi = llvm::dyn_cast<llvm::PHINode>(user))
      return phi->getIncomingBlock(use)->getTerminator();
    return user;
  }

  // A phi must receive one value per incoming block, so uses of one phi and block are set together.
  template <typename Make> void replaceUses(llvm::ArrayRef<llvm::Use*> uses, Make make) {
    std::map<std::pair<llvm::User*, llvm::BasicBlock*>, llvm::Value*> phi_values;
    for (llvm::Use* use : uses) {
      llvm::Instruction* at = usePoint(*use);
      llvm::Value* v;
      if (llvm::isa<llvm::PHINode>(use->getUser())) {
        llvm::Value*& known = phi_values[{use->getUser(), at->getParent()}];
        if (!known) {
          builder_.SetInsertPoint(at);
          known = make();
        }
        v = known;
      } else {
        builder_.SetInsertPoint(at);
        v = make();
      }
      use->set(v);
    }
  }

  void moveAllocasToSlots() {
    std::vector<llvm::AllocaInst*> allocas;
    for (llvm::Instruction& i : llvm::instructions(kernel_))
      if (auto* a = llvm::dyn_cast<llvm::AllocaInst>(&i))
        allocas.push_back(a);
    for (llvm::AllocaInst* a : allocas) {
      int slot = newSlot(a->getAllocatedType(), a->getAlign());
      std::vector<llvm::Use*> uses;
      for (llvm::Use& u : a->uses())
        uses.push_back(&u);
      replaceUses(uses, [&] { return slotAddress(slot); });
      a->eraseFromParent();
    }
  }

  void findRegions() {
    size_t cloned = 0;
    auto add = [&](llvm::BasicBlock* entry) {
      Region r;
      r.entry = entry;
      llvm::DenseMap<llvm::BasicBlock*, bool> seen;
      // Iterative post-order: hostile control flow may be deep.
      std::vector<std::pair<llvm::BasicBlock*, unsigned>> stack{{entry, 0}};
      seen[entry] = true;
      while (!stack.empty()) {
        auto& [b, next] = stack.back();
        auto* t = b->getTerminator();
        if (ends_.count(b) || next >= t->getNumSuccessors()) {
          r.blocks.push_back(b);
          stack.pop_back();
          continue;
        }
        llvm::BasicBlock* s = t->getSuccessor(next++);
        if (seen.try_emplace(s, true).second)
          stack.push_back({s, 0});
      }
      std::reverse(r.blocks.begin(), r.blocks.end());
      for (llvm::BasicBlock* b : r.blocks) {
        cloned += b->size();
        if (auto it = ends_.find(b); it != ends_.end())
          r.exits.push_back(it->second);
        else if (llvm::isa<llvm::ReturnInst>(b->getTerminator()) &&
                 std::find(r.exits.begin(), r.exits.end(), Region::kReturn) == r.exits.end())
          r.exits.push_back(Region::kReturn);
      }
      if (cloned > kMaxClonedInstructions)
        throw spirv::CompileError("kernel's control flow around barriers is too large: more than " +
                                  std::to_string(kMaxClonedInstructions) + " instructions after splitting");
      plan_.regions.push_back(std::move(r));
    };
    add(&kernel_.getEntryBlock());
    for (const SyncPoint& s : plan_.syncs)
      add(s.after);
  }

  // Cheap enough to compute again from arguments and markers; counts the instructions.
  bool canRematerialize(llvm::Value* v, unsigned& budget) {
    auto* i = llvm::dyn_cast<llvm::Instruction>(v);
    if (!i)
      return true;
    if (budget-- == 0) {
      budget = 0;
      return false;
    }
    bool marker = markers_.asQuery(i) || markers_.asLocalVariable(i) ||
                  (plan_.slot_marker && llvm::isa<llvm::CallInst>(i) &&
                   llvm::cast<llvm::CallInst>(i)->getCalledFunction() == plan_.slot_marker);
    if (!marker && !llvm::isa<llvm::CastInst, llvm::BinaryOperator, llvm::GetElementPtrInst, llvm::SelectInst,
                              llvm::CmpInst, llvm::ExtractElementInst, llvm::InsertElementInst>(i))
      return false;
    if (llvm::isa<llvm::BinaryOperator>(i) && i->getType()->isFPOrFPVectorTy())
      return false;  // recomputing arithmetic may cost more than a load
    for (llvm::Value* op : i->operands())
      if (!canRematerialize(op, budget) || budget == 0)
        return false;
    return true;
  }
  llvm::Value* rematerialize(llvm::Value* v) {
    auto* i = llvm::dyn_cast<llvm::Instruction>(v);
    if (!i)
      return v;
    auto* copy = i->clone();
    for (llvm::Use& op : copy->operands())
      op.set(rematerialize(op.get()));
    return builder_.Insert(copy);
  }

  void spillCrossing() {
    std::vector<RegionDominators> dominators;
    for (const Region& r : plan_.regions)
      dominators.emplace_back(r, ends_);
    llvm::DenseMap<llvm::BasicBlock*, llvm::SmallVector<unsigned, 4>> regions_of;
    for (unsigned r = 0; r < plan_.regions.size(); ++r)
      for (llvm::BasicBlock* b : plan_.regions[r].blocks)
        regions_of[b].push_back(r);
    std::vector<llvm::Instruction*> crossing;
    for (llvm::Instruction& i : llvm::instructions(kernel_)) {
      for (llvm::Use& u : i.uses()) {
        llvm::BasicBlock* at = usePoint(u)->getParent();
        if (at == i.getParent())
          continue;  // also through a phi: its edge leaves at the block's end
        bool covered = true;
        for (unsigned r : regions_of[at])
          covered &= dominators[r].dominates(i.getParent(), at);
        if (!covered) {
          crossing.push_back(&i);
          break;
        }
      }
    }
    for (llvm::Instruction* i : crossing) {
      std::vector<llvm::Use*> uses;
      for (llvm::Use& u : i->uses())
        if (usePoint(u)->getParent() != i->getParent())
          uses.push_back(&u);
      unsigned budget = kRematerializeLimit;
      if (canRematerialize(i, budget)) {
        replaceUses(uses, [&] { return rematerialize(i); });
        continue;
      }
      int slot = newSlot(i->getType());
      auto* type = i->getType();
      replaceUses(uses, [&] { return loadSlot(builder_, type, slotAddress(slot)); });
      auto after = i->getInsertionPointAfterDef();
      builder_.SetInsertPoint((*after)->getParent(), *after);
      storeSlot(builder_, i, slotAddress(slot));
    }
  }

  llvm::Function& kernel_;
  const spirv::Markers& markers_;
  const llvm::DataLayout& layout_;
  llvm::IRBuilder<> builder_;
  RegionPlan plan_;
  llvm::DenseMap<llvm::BasicBlock*, unsigned> ends_;
};

}  // namespace

llvm::Type* slotStorage(llvm::Type* type) {
  return type->isIntegerTy(1) ? llvm::Type::getInt8Ty(type->getContext()) : type;
}

llvm::Value* loadSlot(llvm::IRBuilder<>& b, llvm::Type* type, llvm::Value* address) {
  llvm::Value* v = b.CreateLoad(slotStorage(type), address);
  return type->isIntegerTy(1) ? b.CreateTrunc(v, type) : v;
}

void storeSlot(llvm::IRBuilder<>& b, llvm::Value* value, llvm::Value* address) {
  if (value->getType()->isIntegerTy(1))
    value = b.CreateZExt(value, b.getInt8Ty());
  b.CreateStore(value, address);
}

RegionPlan formRegions(llvm::Function& kernel, const spirv::Markers& markers) {
  return RegionFormer(kernel, markers).run();
}

}  // namespace zefuse::cpu
