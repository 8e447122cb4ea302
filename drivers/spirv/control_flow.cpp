// Branches, phis, calls. Structured-control-flow hints are ignored.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/spirv.hpp>

#include <algorithm>
#include <numeric>

namespace zefuse::spirv {

llvm::BasicBlock* Reader::block(const SpirvInst& inst, uint32_t label) {
  auto it = blocks_.find(label);
  if (it == blocks_.end())
    fail(inst, "id " + std::to_string(label) + " is not a block of this function");
  return it->second;
}

bool Reader::readControl(const SpirvInst& inst) {
  auto target = [&](uint32_t label) {
    auto* b = block(inst, label);
    if (b == &function_->getEntryBlock())
      fail(inst, "branch to the function's first block");
    return b;
  };
  switch (inst.opcode) {
  case spv::OpPhi: {
    llvm::Type* t = valueType(inst, inst.type_id);
    checkFirstClass(inst, type(inst, inst.type_id));
    auto* bb = builder_.GetInsertBlock();
    if (!bb->empty() && !llvm::isa<llvm::PHINode>(bb->back()))
      fail(inst, "phi after another instruction");
    auto* phi = builder_.CreatePHI(t, inst.operands.size() / 2);
    phis_.push_back({phi, &inst});
    setValue(inst, phi);
    return true;
  }
  case spv::OpLoopMerge:
  case spv::OpSelectionMerge: return true;
  case spv::OpUndef:
    refuseHandles(inst, type(inst, inst.type_id));
    setValue(inst, llvm::UndefValue::get(valueType(inst, inst.type_id)));
    return true;
  case spv::OpBranch: builder_.CreateBr(target(inst.op(0))); return true;
  case spv::OpBranchConditional: {
    llvm::Value* c = value(inst, inst.op(0));
    if (!c->getType()->isIntegerTy(1))
      fail(inst, "condition is not a boolean");
    builder_.CreateCondBr(c, target(inst.op(1)), target(inst.op(2)));
    return true;
  }
  case spv::OpSwitch: {
    llvm::Value* selector = value(inst, inst.op(0));
    auto* t = llvm::dyn_cast<llvm::IntegerType>(selector->getType());
    if (!t)
      fail(inst, "selector is not an integer");
    size_t literal_words = t->getBitWidth() == 64 ? 2 : 1;
    auto* sw = builder_.CreateSwitch(selector, target(inst.op(1)));
    llvm::DenseMap<llvm::ConstantInt*, bool> seen;
    for (size_t i = 2; i < inst.operands.size(); i += literal_words + 1) {
      uint64_t literal = inst.op(i);
      if (literal_words == 2)
        literal |= static_cast<uint64_t>(inst.op(i + 1)) << 32;
      auto* c = llvm::ConstantInt::get(context_, llvm::APInt(64, literal).trunc(t->getBitWidth()));
      if (!seen.try_emplace(c, true).second)
        fail(inst, "case " + std::to_string(literal) + " appears twice");
      sw->addCase(c, target(inst.op(i + literal_words)));
    }
    return true;
  }
  case spv::OpReturn:
    if (!function_->getReturnType()->isVoidTy())
      fail(inst, "return without value from a function with a result");
    builder_.CreateRetVoid();
    return true;
  case spv::OpReturnValue: {
    llvm::Value* v = value(inst, inst.op(0));
    if (v->getType() != function_->getReturnType())
      fail(inst, "returned value has the wrong type");
    builder_.CreateRet(v);
    return true;
  }
  case spv::OpUnreachable: builder_.CreateUnreachable(); return true;
  case spv::OpFunctionCall: readCall(inst); return true;
  case spv::OpFunctionPointerCallINTEL: {
    llvm::Value* pointer = value(inst, inst.op(0));
    requirePointer(inst, pointer);
    const Type& callee = pointee(inst, inst.op(0));
    if (callee.opcode != spv::OpTypeFunction)
      fail(inst, "callee is not a pointer to a function");
    auto* ft = llvm::cast<llvm::FunctionType>(callee.llvm);
    std::vector<llvm::Value*> args;
    for (size_t i = 1; i < inst.operands.size(); ++i)
      args.push_back(value(inst, inst.op(i)));
    bool fits = args.size() == ft->getNumParams();
    for (size_t i = 0; fits && i < args.size(); ++i)
      fits = args[i]->getType() == ft->getParamType(i);
    if (!fits)
      fail(inst, "arguments do not fit the function type");
    llvm::Value* result = builder_.CreateCall(ft, pointer, args);
    if (!ft->getReturnType()->isVoidTy())
      setValue(inst, result);
    return true;
  }
  default: return false;
  }
}

void Reader::readCall(const SpirvInst& inst) {
  auto it = functions_.find(inst.op(0));
  if (it == functions_.end())
    fail(inst, "id " + std::to_string(inst.op(0)) + " is not a function");
  FunctionInfo& callee = it->second;
  auto* ft = llvm::cast<llvm::FunctionType>(type(inst, callee.type).llvm);
  std::vector<llvm::Value*> args;
  for (size_t i = 1; i < inst.operands.size(); ++i)
    args.push_back(value(inst, inst.op(i)));
  if (args.size() != ft->getNumParams())
    fail(inst, "call passes " + std::to_string(args.size()) + " arguments, the function takes " +
                   std::to_string(ft->getNumParams()));
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i]->getType() != ft->getParamType(i))
      fail(inst, "argument " + std::to_string(i) + " has the wrong type");
  if (callee.is_entry)
    fail(inst, "call of an entry point");
  llvm::Value* result;
  if (!callee.llvm) {
    if (readImportedCall(inst, callee.import_name, args, ft->getReturnType()))
      return;
    if (std::find(imports.begin(), imports.end(), callee.import_name) == imports.end())
      imports.push_back(callee.import_name);
    // Never reached: a module with unresolved imports is not launched (LoadedModule::unresolvedImports).
    result = ft->getReturnType()->isVoidTy() ? nullptr : llvm::Constant::getNullValue(ft->getReturnType());
  } else {
    auto* call = builder_.CreateCall(callee.llvm, args);
    for (unsigned i = 0; i < args.size(); ++i)
      if (auto* by_val = callee.llvm->getParamByValType(i))
        call->addParamAttr(i, llvm::Attribute::getWithByValType(context_, by_val));
    result = call;
  }
  if (!ft->getReturnType()->isVoidTy())
    setValue(inst, result);
}

// The indices of a function's instructions, in the order in which each value comes before its uses. That is how they
// stand, but for modules of older translators: some have a block before one that dominates it, which SPIR-V forbids.
std::vector<size_t> Reader::readingOrder(size_t first, size_t end) const {
  std::vector<size_t> order(end - first);
  std::iota(order.begin(), order.end(), first);
  std::vector<size_t> starts;                   // of the blocks, and the end
  std::unordered_map<uint32_t, size_t> number;  // of any word, so no DenseMap
  for (size_t i : order)
    if (source_.insts[i].opcode == spv::OpLabel) {
      number[source_.insts[i].result_id] = starts.size();
      starts.push_back(i);
    }
  const size_t count = starts.size();
  starts.push_back(end);
  // Where a block may go on: an operand of its last instruction that is no label names no block.
  std::vector<llvm::SmallVector<size_t, 2>> successors(count);
  std::vector<size_t> first_predecessor(count, count);
  for (size_t b = 0; b < count; ++b)
    for (uint32_t id : source_.insts[starts[b + 1] - 1].operands)
      if (auto to = number.find(id); to != number.end()) {
        successors[b].push_back(to->second);
        first_predecessor[to->second] = std::min(first_predecessor[to->second], b);
      }
  bool in_order = true;
  for (size_t b = 1; b < count; ++b)
    in_order &= first_predecessor[b] < b || first_predecessor[b] == count;
  if (in_order)
    return order;

  // Reverse post-order; what is not reached follows as it stands.
  std::vector<size_t> finished;
  std::vector<bool> seen(count, false);
  std::vector<std::pair<size_t, size_t>> path = {{0, 0}};  // block, successors that were looked at
  seen[0] = true;
  while (!path.empty()) {
    auto& [b, next] = path.back();
    if (next == successors[b].size()) {
      finished.push_back(b);
      path.pop_back();
    } else if (const size_t to = successors[b][next++]; !seen[to]) {
      seen[to] = true;
      path.push_back({to, 0});
    }
  }
  std::reverse(finished.begin(), finished.end());
  for (size_t b = 0; b < count; ++b)
    if (!seen[b])
      finished.push_back(b);
  auto out = order.begin() + static_cast<ptrdiff_t>(starts[0] - first);
  for (size_t b : finished) {
    std::iota(out, out + static_cast<ptrdiff_t>(starts[b + 1] - starts[b]), starts[b]);
    out += static_cast<ptrdiff_t>(starts[b + 1] - starts[b]);
  }
  return order;
}

// Incoming values may be defined after the phi, so they are added when the function is complete. LLVM wants one entry
// per edge: a switch may have several edges from one block, SPIR-V names the block once.
void Reader::finishPhis() {
  llvm::DenseMap<const llvm::BasicBlock*, llvm::SmallVector<llvm::BasicBlock*, 4>> predecessors;
  for (llvm::BasicBlock& b : *function_)
    for (llvm::BasicBlock* s : llvm::successors(&b))
      predecessors[s].push_back(&b);
  for (auto& [phi, inst] : phis_) {
    if (inst->operands.size() % 2 != 0)
      fail(*inst, "phi with an odd number of operands");
    llvm::DenseMap<llvm::BasicBlock*, llvm::Value*> incoming;
    for (size_t i = 0; i < inst->operands.size(); i += 2) {
      uint32_t id = inst->op(i);
      llvm::Value* v;
      if (special_variables_.count(id))
        v = builtinVariable(*inst, id);
      else
        v = value(*inst, id);
      if (v->getType() != phi->getType())
        fail(*inst, "incoming value " + std::to_string(id) + " has the wrong type");
      if (!incoming.try_emplace(block(*inst, inst->op(i + 1)), v).second)
        fail(*inst, "block " + std::to_string(inst->op(i + 1)) + " is named twice");
    }
    auto& preds = predecessors[phi->getParent()];
    for (llvm::BasicBlock* p : preds) {
      auto it = incoming.find(p);
      if (it == incoming.end())
        fail(*inst, "a predecessor has no incoming value");
      phi->addIncoming(it->second, p);
    }
    for (auto& [b, v] : incoming)
      if (std::find(preds.begin(), preds.end(), b) == preds.end())
        fail(*inst, "incoming block is not a predecessor");
  }
}

}  // namespace zefuse::spirv
