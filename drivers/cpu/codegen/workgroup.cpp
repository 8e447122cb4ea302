#include "drivers/cpu/codegen/workgroup.h"

#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/codegen/collective.h"
#include "drivers/cpu/codegen/region.h"

#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/Cloning.h"

#include <algorithm>
#include <array>

namespace zefuse::cpu {
namespace {

using llvm::BasicBlock;
using llvm::Value;
using spirv::Query;
using spirv::Scope;
using spirv::SyncKind;

constexpr uint64_t kGroupRounding = 128;  // keeps every slot aligned for the widest vector

// Field offsets of LaunchContext.
constexpr uint64_t kGroupCountAt = offsetof(LaunchContext, group_count);
constexpr uint64_t kLocalSizeAt = offsetof(LaunchContext, local_size);
constexpr uint64_t kGlobalOffsetAt = offsetof(LaunchContext, global_offset);
constexpr uint64_t kWorkDimAt = offsetof(LaunchContext, work_dim);

class WorkGroupBuilder {
public:
  WorkGroupBuilder(spirv::KernelSource& kernel, spirv::Markers& markers,
                   const std::map<uint32_t, spirv::LocalVariable>& locals)
      : kernel_(kernel), source_(*kernel.function), module_(*source_.getParent()), context_(module_.getContext()),
        markers_(markers), locals_(locals), b_(context_) {}

  llvm::Function* run(const std::string& entry) {
    subgroup_width_ = kernel_.info.required_subgroup_size ? kernel_.info.required_subgroup_size : kDefaultSubgroupSize;
    layoutLocals();
    plan_ = formRegions(source_, markers_);
    for (const SyncPoint& s : plan_.syncs)
      by_subgroups_ |= s.sync.scope == Scope::sub_group;
    kernel_.info.has_barrier = !plan_.syncs.empty();
    createBody();
    emitPrologue();
    if (by_subgroups_)
      emitBySubgroups();
    else
      emitByGroup();
    source_.deleteBody();
    llvm::Function* thunk = emitThunk(entry);
    source_.eraseFromParent();
    if (plan_.slot_marker)
      plan_.slot_marker->eraseFromParent();
    return thunk;
  }

private:
  // Static Workgroup variables that this kernel still names, after inlining.
  void layoutLocals() {
    std::vector<uint32_t> used;
    for (llvm::Instruction& i : llvm::instructions(source_))
      if (const uint32_t* id = markers_.asLocalVariable(&i))
        used.push_back(*id);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    uint64_t at = 0;
    for (uint32_t id : used) {
      const spirv::LocalVariable& v = locals_.at(id);
      at = llvm::alignTo(at, std::min<uint64_t>(v.alignment, 64));
      local_offsets_[id] = at;
      at += v.size;
    }
    if (at > 1u << 30)
      throw spirv::CompileError("kernel " + kernel_.info.name + " needs " + std::to_string(at) +
                                " bytes of local memory");
    kernel_.info.local_bytes = at;
  }

  void createBody() {
    auto* ptr = b_.getPtrTy();
    std::vector<llvm::Type*> types;
    for (llvm::Argument& a : source_.args())
      types.push_back(a.getType());
    types.insert(types.end(), {ptr, ptr, ptr});
    std::string name;
    for (char c : kernel_.info.name)
      name += isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : '_';
    body_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                                   llvm::Function::InternalLinkage, name + ".workgroup", module_);
    body_->setDoesNotThrow();
    body_->addFnAttr(llvm::Attribute::NoInline);  // keeps noalias on the parameters, and a name for profilers
    unsigned n = source_.arg_size();
    for (unsigned i = 0; i < n; ++i) {
      body_->addParamAttrs(i, llvm::AttrBuilder(context_, source_.getAttributes().getParamAttrs(i)));
      values_[source_.getArg(i)] = body_->getArg(i);
    }
    launch_ = body_->getArg(n);
    group_ = body_->getArg(n + 1);
    local_ = body_->getArg(n + 2);
    for (unsigned i = n; i < n + 3; ++i) {
      body_->addParamAttr(i, llvm::Attribute::NoAlias);
      if (i < n + 2)
        body_->addParamAttr(i, llvm::Attribute::ReadOnly);
    }
    body_->addParamAttr(n + 2, llvm::Attribute::getWithAlignment(context_, llvm::Align(64)));
  }

  Value* loadField(Value* base, uint64_t offset, llvm::Type* type, bool size = false) {
    auto* load = b_.CreateLoad(type, b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, offset));
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
    if (size)
      load->setMetadata(llvm::LLVMContext::MD_range,
                        llvm::MDBuilder(context_).createRange(llvm::APInt(64, 1), llvm::APInt(64, kMaxGroupSize + 1)));
    return load;
  }

  BasicBlock* newBlock(const char* name) { return BasicBlock::Create(context_, name, body_); }

  void emitPrologue() {
    entry_ = newBlock("entry");
    return_ = newBlock("return");
    b_.SetInsertPoint(return_);
    b_.CreateRetVoid();
    b_.SetInsertPoint(entry_);
    auto* i64 = b_.getInt64Ty();
    const uint32_t* required = kernel_.info.required_group_size;
    for (unsigned d = 0; d < 3; ++d) {
      size_[d] = required[d] ? static_cast<Value*>(b_.getInt64(required[d]))
                             : loadField(launch_, kLocalSizeAt + 8 * d, i64, true);
      group_id_[d] = loadField(group_, 8 * d, i64);
      offset_[d] = loadField(launch_, kGlobalOffsetAt + 8 * d, i64);
      count_[d] = loadField(launch_, kGroupCountAt + 8 * d, i64);
      base_[d] = b_.CreateAdd(b_.CreateMul(group_id_[d], size_[d], "", true, true), offset_[d], "", true, true);
    }
    total_ = b_.CreateMul(b_.CreateMul(size_[0], size_[1], "", true, true), size_[2], "", true, true);
    access_group_ = llvm::MDNode::getDistinct(context_, {});
    if (plan_.syncs.empty()) {
      hoistAllocas();
      return;
    }
    state_ = b_.CreateAlloca(b_.getInt32Ty());
    uint64_t per_item = 0;
    for (const Slot& s : plan_.slots) {
      slot_prefix_.push_back(per_item);
      per_item += s.stride;
    }
    needs_id_arrays_ = by_subgroups_ && !(required[0] && required[1] == 1 && required[2] == 1);
    uint64_t ids_at = per_item;
    if (needs_id_arrays_)
      per_item += 12;
    if (per_item * kMaxGroupSize > kMaxContextBytes)
      throw spirv::CompileError("kernel " + kernel_.info.name + " keeps " + std::to_string(per_item) +
                                " bytes per work-item across barriers; the limit is " +
                                std::to_string(kMaxContextBytes / kMaxGroupSize));
    kernel_.info.private_bytes = per_item;
    if (per_item == 0)
      return;
    rounded_ = b_.CreateAnd(b_.CreateAdd(total_, b_.getInt64(kGroupRounding - 1)), b_.getInt64(-kGroupRounding));
    Value* runtime = b_.CreateLoad(b_.getPtrTy(), module_.getNamedGlobal(kRuntimeSymbol));
    Value* arena = b_.CreateLoad(b_.getPtrTy(), runtime);
    auto* arena_type = llvm::FunctionType::get(b_.getPtrTy(), {i64}, false);
    auto* call = b_.CreateCall(arena_type, arena, {b_.CreateMul(rounded_, b_.getInt64(per_item))});
    call->addRetAttr(llvm::Attribute::NoAlias);
    call->addRetAttr(llvm::Attribute::getWithAlignment(context_, llvm::Align(kGroupRounding)));
    arena_ = call;
    auto* ok = newBlock("work");
    b_.CreateCondBr(b_.CreateIsNull(arena_), return_, ok);
    b_.SetInsertPoint(ok);
    for (unsigned i = 0; i < plan_.slots.size(); ++i)
      slot_base_.push_back(b_.CreateGEP(b_.getInt8Ty(), arena_, b_.CreateMul(rounded_, b_.getInt64(slot_prefix_[i]))));
    if (needs_id_arrays_)
      fillIdArrays(ids_at);
  }

  // Private memory of a kernel without sync points lives on the stack, once: work-items follow one another.
  void hoistAllocas() {
    uint64_t bytes = 0;
    for (llvm::Instruction& i : llvm::instructions(source_))
      if (auto* a = llvm::dyn_cast<llvm::AllocaInst>(&i)) {
        auto* copy = b_.CreateAlloca(a->getAllocatedType());
        copy->setAlignment(a->getAlign());
        values_[a] = copy;
        bytes += a->getDataLayout().getTypeAllocSize(a->getAllocatedType());
      }
    if (bytes > 512 << 10)
      throw spirv::CompileError("kernel " + kernel_.info.name + " needs " + std::to_string(bytes) +
                                " bytes of private memory; the limit is 524288");
    kernel_.info.private_bytes = bytes;
  }

  struct Loop {
    BasicBlock *header, *latch, *exit;
    llvm::PHINode* iv;
    Value* next;
  };
  // A rotated loop for i in [begin, end), at least one iteration. The insertion point moves to the header.
  Loop openLoop(Value* begin, const char* name) {
    Loop l;
    auto* from = b_.GetInsertBlock();
    l.header = newBlock(name);
    b_.CreateBr(l.header);
    b_.SetInsertPoint(l.header);
    l.iv = b_.CreatePHI(b_.getInt64Ty(), 2);
    l.iv->addIncoming(begin, from);
    return l;
  }
  // Closes the loop; the insertion point, where the body ends, moves behind the loop.
  void closeLoop(Loop& l, Value* end, bool parallel) {
    l.next = b_.CreateAdd(l.iv, b_.getInt64(1), "", true, true);
    auto* exit = newBlock("loop.end");
    auto* br = b_.CreateCondBr(b_.CreateICmpULT(l.next, end), l.header, exit);
    l.iv->addIncoming(l.next, b_.GetInsertBlock());
    markLoop(br, plan_.syncs.empty() ? LoopSize::any : LoopSize::small, parallel ? access_group_ : nullptr);
    b_.SetInsertPoint(exit);
  }

  void fillIdArrays(uint64_t at) {
    for (unsigned d = 0; d < 3; ++d)
      id_array_[d] = b_.CreateGEP(b_.getInt8Ty(), arena_, b_.CreateMul(rounded_, b_.getInt64(at + 4 * d)));
    auto* zero = b_.getInt64(0);
    Loop z = openLoop(zero, "ids.z");
    Loop y = openLoop(zero, "ids.y");
    Value* row = b_.CreateMul(b_.CreateAdd(b_.CreateMul(z.iv, size_[1]), y.iv), size_[0]);
    Loop x = openLoop(zero, "ids.x");
    Value* lin = b_.CreateAdd(row, x.iv);
    Value* ids[] = {x.iv, y.iv, z.iv};
    for (unsigned d = 0; d < 3; ++d)
      b_.CreateStore(b_.CreateTrunc(ids[d], b_.getInt32Ty()), b_.CreateGEP(b_.getInt32Ty(), id_array_[d], lin));
    closeLoop(x, size_[0], false);
    closeLoop(y, size_[1], false);
    closeLoop(z, size_[2], false);
  }

  // Coordinates of the work-item that the code at the insertion point runs.
  struct Item {
    std::array<Value*, 3> id;
    Value* linear;
  };

  Value* query(Query q, unsigned d, const Item& item) {
    auto* zero = b_.getInt64(0);
    auto add = [&](Value* x, Value* y) { return b_.CreateAdd(x, y, "", true, true); };
    auto mul = [&](Value* x, Value* y) { return b_.CreateMul(x, y, "", true, true); };
    auto global = [&](unsigned k) { return add(base_[k], item.id[k]); };
    auto globalSize = [&](unsigned k) { return mul(count_[k], size_[k]); };
    Value* width = b_.getInt64(subgroup_width_);
    switch (q) {
    case Query::local_id: return item.id[d];
    case Query::global_id: return global(d);
    case Query::group_id: return group_id_[d];
    case Query::group_size: return size_[d];
    case Query::group_count: return count_[d];
    case Query::global_size: return globalSize(d);
    case Query::global_offset: return offset_[d];
    case Query::work_dim: return b_.CreateZExt(loadField(launch_, kWorkDimAt, b_.getInt32Ty()), b_.getInt64Ty());
    case Query::local_linear_id: return item.linear;
    case Query::global_linear_id: {
      Value* v = zero;
      for (int k = 2; k >= 0; --k)
        v = add(mul(v, globalSize(k)), add(mul(group_id_[k], size_[k]), item.id[k]));
      return v;
    }
    case Query::subgroup_max_size: return width;
    case Query::subgroup_id: return b_.CreateUDiv(item.linear, width);
    case Query::subgroup_local_id: return b_.CreateURem(item.linear, width);
    case Query::subgroup_count: return b_.CreateUDiv(b_.CreateAdd(total_, b_.getInt64(subgroup_width_ - 1)), width);
    case Query::subgroup_size: {
      Value* first = b_.CreateMul(b_.CreateUDiv(item.linear, width), width);
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, width, b_.CreateSub(total_, first));
    }
    }
    return zero;
  }

  Value* slotElement(int slot, Value* linear) {
    return b_.CreateGEP(b_.getInt8Ty(), slot_base_[slot],
                        b_.CreateMul(linear, b_.getInt64(plan_.slots[slot].stride), "", true, true));
  }

  // Memory of one work-item must not be marked parallel: the iterations share the stack slot.
  bool isPrivate(Value* pointer) {
    Value* object = llvm::getUnderlyingObject(pointer, 0);
    return !llvm::isa<llvm::Argument, llvm::GlobalValue>(object);
  }

  // Clones a region at the insertion point. Every exit stores its number (unless there is only one) and branches to
  // the returned block, where the insertion point is left.
  void cloneRegion(const Region& region, const Item& item) {
    llvm::ValueToValueMapTy map;
    std::vector<BasicBlock*> clones;
    auto* done = newBlock("region.end");
    for (BasicBlock* block : region.blocks) {
      auto* copy = llvm::CloneBasicBlock(block, map, "", body_);
      map[block] = copy;
      clones.push_back(copy);
    }
    for (auto& [from, to] : values_)  // after cloning, which maps the allocas to copies
      map[from] = to;
    b_.CreateBr(clones[0]);
    for (size_t i = 0; i < clones.size(); ++i) {
      BasicBlock *block = region.blocks[i], *copy = clones[i];
      unsigned exit = Region::kReturn;
      bool leaves = llvm::isa<llvm::ReturnInst>(copy->getTerminator());
      for (unsigned s = 0; s < plan_.syncs.size(); ++s)
        if (plan_.syncs[s].before == block) {
          leaves = true;
          exit = s;
        }
      if (leaves) {
        auto* old = copy->getTerminator();
        b_.SetInsertPoint(old);
        if (region.exits.size() > 1)
          b_.CreateStore(b_.getInt32(exit), state_);
        b_.CreateBr(done);
        old->eraseFromParent();
      }
      for (llvm::PHINode& phi : copy->phis())
        for (unsigned k = phi.getNumIncomingValues(); k-- > 0;)
          if (!map.count(phi.getIncomingBlock(k)))
            phi.removeIncomingValue(k, false);
      for (llvm::Instruction& inst : llvm::make_early_inc_range(*copy)) {
        if (llvm::isa<llvm::AllocaInst>(inst)) {
          inst.eraseFromParent();  // its uses are mapped to the hoisted one below
          continue;
        }
        llvm::RemapInstruction(&inst, map, llvm::RF_IgnoreMissingLocals);
      }
    }
    for (BasicBlock* copy : clones)
      for (llvm::Instruction& inst : llvm::make_early_inc_range(*copy))
        lowerMarker(inst, item);
    b_.SetInsertPoint(done);
  }

  void lowerMarker(llvm::Instruction& inst, const Item& item) {
    b_.SetInsertPoint(&inst);
    Value* replacement = nullptr;
    auto* call = llvm::dyn_cast<llvm::CallInst>(&inst);
    if (const Query* q = markers_.asQuery(&inst))
      replacement = query(*q, llvm::cast<llvm::ConstantInt>(call->getArgOperand(0))->getZExtValue(), item);
    else if (const uint32_t* id = markers_.asLocalVariable(&inst))
      replacement = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), local_, local_offsets_.at(*id));
    else if (call && plan_.slot_marker && call->getCalledFunction() == plan_.slot_marker)
      replacement = slotElement(llvm::cast<llvm::ConstantInt>(call->getArgOperand(0))->getZExtValue(), item.linear);
    if (replacement) {
      inst.replaceAllUsesWith(replacement);
      inst.eraseFromParent();
      return;
    }
    bool plain = (llvm::isa<llvm::LoadInst>(inst) && llvm::cast<llvm::LoadInst>(inst).isSimple()) ||
                 (llvm::isa<llvm::StoreInst>(inst) && llvm::cast<llvm::StoreInst>(inst).isSimple());
    if (plain && !isPrivate(llvm::getLoadStorePointerOperand(&inst)))
      inst.setMetadata(llvm::LLVMContext::MD_access_group, access_group_);
  }

  // Loops over all work-items around a region.
  void emitItems(const Region& region) {
    std::array<std::optional<Loop>, 3> loops;
    Item item;
    auto* zero = b_.getInt64(0);
    for (int d = 2; d >= 0; --d) {
      item.id[d] = zero;
      if (kernel_.info.required_group_size[d] != 1) {
        static const char* const names[] = {"item.x", "item.y", "item.z"};
        loops[d] = openLoop(zero, names[d]);
        item.id[d] = loops[d]->iv;
      }
    }
    Value* row = b_.CreateAdd(b_.CreateMul(item.id[2], size_[1], "", true, true), item.id[1], "", true, true);
    item.linear = b_.CreateAdd(b_.CreateMul(row, size_[0], "", true, true), item.id[0], "", true, true);
    cloneRegion(region, item);
    for (int d = 0; d < 3; ++d)
      if (loops[d])
        closeLoop(*loops[d], size_[d], true);
  }

  // The switch after a region. `target(exit)` gives the block to continue in.
  template <typename Target> void dispatch(const Region& region, Target target) {
    if (region.exits.empty()) {
      b_.CreateUnreachable();
      return;
    }
    if (region.exits.size() == 1) {
      b_.CreateBr(target(region.exits[0]));
      return;
    }
    auto* sw = b_.CreateSwitch(b_.CreateLoad(b_.getInt32Ty(), state_), target(region.exits[0]));
    for (size_t i = 1; i < region.exits.size(); ++i)
      sw->addCase(b_.getInt32(region.exits[i]), target(region.exits[i]));
  }

  Collective collective(unsigned sync, Value* begin, Value* end) {
    const SyncPoint& s = plan_.syncs[sync];
    Collective c{s.sync, begin, end};
    auto fill = [&](int slot, Value*& base, uint64_t& stride) {
      if (slot >= 0) {
        base = slot_base_[slot];
        stride = plan_.slots[slot].stride;
      }
    };
    fill(s.input, c.input, c.input_stride);
    fill(s.index, c.index, c.index_stride);
    fill(s.addend, c.addend, c.addend_stride);
    fill(s.output, c.output, c.output_stride);
    c.input_type = s.input >= 0 ? plan_.slots[s.input].type : nullptr;
    c.output_type = s.output >= 0 ? plan_.slots[s.output].type : nullptr;
    return c;
  }

  void emitByGroup() {
    std::vector<BasicBlock*> starts;
    for (size_t r = 0; r < plan_.regions.size(); ++r)
      starts.push_back(newBlock("region"));
    b_.CreateBr(starts[0]);
    for (size_t r = 0; r < plan_.regions.size(); ++r) {
      b_.SetInsertPoint(starts[r]);
      if (r > 0)
        emitCollective(b_, collective(r - 1, b_.getInt64(0), total_));
      emitItems(plan_.regions[r]);
      dispatch(plan_.regions[r], [&](unsigned exit) { return exit == Region::kReturn ? return_ : starts[exit + 1]; });
    }
  }

  // group: the sub-groups all start at the region in `phase`; each runs until a work-group sync point or the end.
  void emitBySubgroups() {
    auto* i32 = b_.getInt32Ty();
    auto* phase_slot = b_.CreateAlloca(i32);  // number of the exit the group took; kReturn - 1: the kernel's start
    constexpr unsigned kStart = Region::kReturn - 1;
    auto* zero = b_.getInt64(0);
    b_.CreateStore(b_.getInt32(kStart), phase_slot);
    auto* group_next = newBlock("group");
    auto* sub_header = newBlock("subgroup");
    auto* sub_latch = newBlock("subgroup.end");
    b_.CreateBr(group_next);

    std::vector<BasicBlock*> starts, enters;
    for (size_t r = 0; r < plan_.regions.size(); ++r)
      starts.push_back(newBlock("region"));

    // Between the sub-groups' turns: the work-group operation of the sync point they stopped at.
    b_.SetInsertPoint(group_next);
    Value* phase = b_.CreateLoad(i32, phase_slot);
    auto* sub_start = newBlock("subgroups");
    auto* group_switch = b_.CreateSwitch(phase, sub_start);
    group_switch->addCase(b_.getInt32(Region::kReturn), return_);
    for (unsigned s = 0; s < plan_.syncs.size(); ++s) {
      if (plan_.syncs[s].sync.scope != Scope::work_group || plan_.syncs[s].sync.kind == SyncKind::barrier)
        continue;
      auto* at = newBlock("collective");
      group_switch->addCase(b_.getInt32(s), at);
      b_.SetInsertPoint(at);
      emitCollective(b_, collective(s, zero, total_));
      b_.CreateBr(sub_start);
    }
    b_.SetInsertPoint(sub_start);
    b_.CreateBr(sub_header);
    b_.SetInsertPoint(sub_header);
    auto* begin = b_.CreatePHI(b_.getInt64Ty(), 2);
    begin->addIncoming(zero, sub_start);
    Value* width = b_.getInt64(subgroup_width_);
    Value* next = b_.CreateAdd(begin, width, "", true, true);
    Value* end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, next, total_);
    auto* enter = b_.CreateSwitch(phase, starts[0]);
    for (unsigned s = 0; s < plan_.syncs.size(); ++s)
      if (plan_.syncs[s].sync.scope == Scope::work_group)
        enter->addCase(b_.getInt32(s), starts[s + 1]);
    b_.SetInsertPoint(sub_latch);
    begin->addIncoming(next, sub_latch);
    b_.CreateCondBr(b_.CreateICmpULT(next, total_), sub_header, group_next);

    for (size_t r = 0; r < plan_.regions.size(); ++r) {
      const Region& region = plan_.regions[r];
      b_.SetInsertPoint(starts[r]);
      if (r > 0 && plan_.syncs[r - 1].sync.scope == Scope::sub_group)
        emitCollective(b_, collective(r - 1, begin, end));
      Loop lanes = openLoop(begin, "lane");
      Item item;
      item.linear = lanes.iv;
      for (unsigned d = 0; d < 3; ++d)
        item.id[d] =
            needs_id_arrays_
                ? b_.CreateZExt(b_.CreateLoad(b_.getInt32Ty(), b_.CreateGEP(b_.getInt32Ty(), id_array_[d], lanes.iv)),
                                b_.getInt64Ty())
            : d == 0 ? static_cast<Value*>(lanes.iv)
                     : zero;
      cloneRegion(region, item);
      closeLoop(lanes, end, true);
      dispatch(region, [&](unsigned exit) {
        if (exit != Region::kReturn && plan_.syncs[exit].sync.scope == Scope::sub_group)
          return starts[exit + 1];
        auto* leave = newBlock("leave");
        llvm::IRBuilder<> at(leave);
        at.CreateStore(at.getInt32(exit), phase_slot);
        at.CreateBr(sub_latch);
        return leave;
      });
    }
  }

  // WorkGroupFn: unpacks the arguments.
  llvm::Function* emitThunk(const std::string& name) {
    auto* ptr = b_.getPtrTy();
    auto* thunk = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr, ptr}, false),
                                         llvm::Function::ExternalLinkage, name, module_);
    thunk->setDoesNotThrow();
    b_.SetInsertPoint(BasicBlock::Create(context_, "", thunk));
    std::vector<Value*> args;
    for (unsigned i = 0; i < kernel_.info.args.size(); ++i) {
      Value* address = b_.CreateLoad(ptr, b_.CreateConstInBoundsGEP1_64(ptr, thunk->getArg(0), i));
      args.push_back(kernel_.info.args[i].kind == spirv::ArgKind::by_value_struct
                         ? address
                         : b_.CreateAlignedLoad(body_->getArg(i)->getType(), address, llvm::Align(1)));
    }
    args.insert(args.end(), {thunk->getArg(1), thunk->getArg(2), thunk->getArg(3)});
    b_.CreateCall(body_, args);
    b_.CreateRetVoid();
    return thunk;
  }

  spirv::KernelSource& kernel_;
  llvm::Function& source_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  spirv::Markers& markers_;
  const std::map<uint32_t, spirv::LocalVariable>& locals_;
  llvm::IRBuilder<> b_;
  RegionPlan plan_;
  uint32_t subgroup_width_ = 0;
  bool by_subgroups_ = false, needs_id_arrays_ = false;
  std::map<uint32_t, uint64_t> local_offsets_;
  std::vector<uint64_t> slot_prefix_;
  std::vector<Value*> slot_base_;
  std::map<Value*, Value*> values_;  // arguments and hoisted allocas
  llvm::Function* body_ = nullptr;
  Value *launch_ = nullptr, *group_ = nullptr, *local_ = nullptr;
  BasicBlock *entry_ = nullptr, *return_ = nullptr;
  std::array<Value*, 3> size_{}, group_id_{}, offset_{}, count_{}, base_{}, id_array_{};
  Value *total_ = nullptr, *rounded_ = nullptr, *arena_ = nullptr;
  llvm::AllocaInst* state_ = nullptr;
  llvm::MDNode* access_group_ = nullptr;
};

}  // namespace

llvm::Function* buildWorkGroup(spirv::KernelSource& kernel, spirv::Markers& markers,
                               const std::map<uint32_t, spirv::LocalVariable>& locals, const std::string& entry) {
  return WorkGroupBuilder(kernel, markers, locals).run(entry);
}

}  // namespace zefuse::cpu
