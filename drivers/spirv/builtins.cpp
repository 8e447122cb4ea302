// Work-item built-ins (Input variables and imported functions) and the markers that stand for them.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/spirv.hpp>

#include <cctype>
#include <cstring>

namespace zefuse::spirv {
namespace {

struct BuiltIn {
  uint32_t builtin;
  Query query;
};
constexpr BuiltIn kBuiltIns[] = {
    {spv::BuiltInNumWorkgroups, Query::group_count},
    {spv::BuiltInWorkgroupSize, Query::group_size},
    {spv::BuiltInEnqueuedWorkgroupSize, Query::group_size},  // Level Zero launches whole groups only
    {spv::BuiltInWorkgroupId, Query::group_id},
    {spv::BuiltInLocalInvocationId, Query::local_id},
    {spv::BuiltInGlobalInvocationId, Query::global_id},
    {spv::BuiltInLocalInvocationIndex, Query::local_linear_id},
    {spv::BuiltInWorkDim, Query::work_dim},
    {spv::BuiltInGlobalSize, Query::global_size},
    {spv::BuiltInGlobalOffset, Query::global_offset},
    {spv::BuiltInGlobalLinearId, Query::global_linear_id},
    {spv::BuiltInSubgroupSize, Query::subgroup_size},
    {spv::BuiltInSubgroupMaxSize, Query::subgroup_max_size},
    {spv::BuiltInNumSubgroups, Query::subgroup_count},
    {spv::BuiltInNumEnqueuedSubgroups, Query::subgroup_count},
    {spv::BuiltInSubgroupId, Query::subgroup_id},
    {spv::BuiltInSubgroupLocalInvocationId, Query::subgroup_local_id},
};

struct ImportedQuery {
  const char* name;
  Query query;
  bool has_dim;
  uint64_t out_of_range;
};
constexpr ImportedQuery kImportedQueries[] = {
    {"_Z13get_global_idj", Query::global_id, true, 0},
    {"_Z12get_local_idj", Query::local_id, true, 0},
    {"_Z12get_group_idj", Query::group_id, true, 0},
    {"_Z14get_local_sizej", Query::group_size, true, 1},
    {"_Z23get_enqueued_local_sizej", Query::group_size, true, 1},
    {"_Z14get_num_groupsj", Query::group_count, true, 1},
    {"_Z15get_global_sizej", Query::global_size, true, 1},
    {"_Z17get_global_offsetj", Query::global_offset, true, 0},
    {"_Z12get_work_dimv", Query::work_dim, false, 0},
    {"_Z20get_global_linear_idv", Query::global_linear_id, false, 0},
    {"_Z19get_local_linear_idv", Query::local_linear_id, false, 0},
    {"_Z18get_sub_group_sizev", Query::subgroup_size, false, 0},
    {"_Z22get_max_sub_group_sizev", Query::subgroup_max_size, false, 0},
    {"_Z18get_num_sub_groupsv", Query::subgroup_count, false, 0},
    {"_Z27get_enqueued_num_sub_groupsv", Query::subgroup_count, false, 0},
    {"_Z16get_sub_group_idv", Query::subgroup_id, false, 0},
    {"_Z22get_sub_group_local_idv", Query::subgroup_local_id, false, 0},
};

}  // namespace

llvm::Function* Markers::query(Query q) {
  auto& context = module_.getContext();
  std::string name = "zf.query." + std::to_string(static_cast<int>(q));
  if (auto* f = module_.getFunction(name))
    return f;
  auto* type = llvm::FunctionType::get(llvm::Type::getInt64Ty(context), {llvm::Type::getInt32Ty(context)}, false);
  auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module_);
  f->setDoesNotAccessMemory();
  f->setDoesNotThrow();
  f->setWillReturn();
  f->addFnAttr(llvm::Attribute::Speculatable);
  queries_[f] = q;
  remember(f);
  return f;
}

llvm::Function* Markers::localVariable(uint32_t id) {
  auto& context = module_.getContext();
  std::string name = "zf.local." + std::to_string(id);
  if (auto* f = module_.getFunction(name))
    return f;
  auto* type = llvm::FunctionType::get(llvm::PointerType::get(context, local_space_), false);
  auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module_);
  f->setDoesNotAccessMemory();
  f->setDoesNotThrow();
  f->setWillReturn();
  f->addFnAttr(llvm::Attribute::Speculatable);
  locals_[f] = id;
  remember(f);
  return f;
}

llvm::Function* Markers::sync(const Sync& sync, llvm::FunctionType* type) {
  for (auto& [f, s] : syncs_)
    if (f->getFunctionType() == type && s.scope == sync.scope && s.kind == sync.kind && s.op == sync.op)
      return const_cast<llvm::Function*>(f);
  auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "zf.sync." + std::to_string(syncs_.size()),
                                   module_);
  f->setConvergent();
  f->setDoesNotThrow();
  syncs_[f] = sync;
  remember(f);
  return f;
}

template <typename Map> static auto* findCallee(const Map& map, const llvm::Instruction* inst) {
  using Value = const typename Map::mapped_type;
  auto* call = llvm::dyn_cast<llvm::CallInst>(inst);
  if (!call || !call->getCalledFunction())
    return static_cast<Value*>(nullptr);
  auto it = map.find(call->getCalledFunction());
  return it == map.end() ? static_cast<Value*>(nullptr) : &it->second;
}

const Query* Markers::asQuery(const llvm::Instruction* inst) const { return findCallee(queries_, inst); }
const uint32_t* Markers::asLocalVariable(const llvm::Instruction* inst) const { return findCallee(locals_, inst); }
const Sync* Markers::asSync(const llvm::Instruction* inst) const { return findCallee(syncs_, inst); }

void Markers::forgetDeleted() {
  for (auto& [handle, f] : all_)
    if (!handle) {
      queries_.erase(f);
      locals_.erase(f);
      syncs_.erase(f);
    }
  std::erase_if(all_, [](auto& entry) { return !entry.first; });
}

void Markers::eraseAll() {
  forgetDeleted();
  for (auto& [handle, f] : all_)
    if (handle->use_empty())
      llvm::cast<llvm::Function>(handle)->eraseFromParent();
  all_.clear();
}

llvm::Value* Reader::query(Query q, unsigned dim) {
  return builder_.CreateCall(markers_.query(q), {builder_.getInt32(dim)});
}

// An Input variable becomes an initialised alloca of the function that names it, a Workgroup variable a marker call:
// so any pointer arithmetic on them works, and SROA removes what is not needed.
llvm::Value* Reader::builtinVariable(const SpirvInst& inst, uint32_t variable_id) {
  if (auto it = specials_.find(variable_id); it != specials_.end())
    return it->second;
  const Variable& var = special_variables_.at(variable_id);
  if (!function_)
    fail(inst, "variable used outside of a function");
  llvm::IRBuilder<>::InsertPointGuard guard(builder_);
  auto& entry = function_->getEntryBlock();
  builder_.SetInsertPoint(&entry, entry.getFirstInsertionPt());
  llvm::Value* result;
  if (var.storage_class == spv::StorageClassWorkgroup) {
    local_ids_.push_back(variable_id);
    result = builder_.CreateCall(markers_.localVariable(variable_id), {});
  } else {
    const Decoration* d = decoration(variable_id, spv::DecorationBuiltIn);
    if (!d || d->operands.empty())
      fail(*var.inst, "BuiltIn decoration without its operand");
    const BuiltIn* found = nullptr;
    for (const BuiltIn& b : kBuiltIns)
      if (b.builtin == d->operands[0])
        found = &b;
    if (!found)
      fail(*var.inst, "built-in " + std::to_string(d->operands[0]) + " is not supported");
    const Type& t = type(*var.inst, var.type);
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(t.llvm);
    auto* scalar = llvm::dyn_cast<llvm::IntegerType>(vec ? vec->getElementType() : t.llvm);
    if (!scalar || scalar->getBitWidth() < 32)
      fail(*var.inst, "built-in variable is neither an integer nor a vector of integers");
    auto* slot = builder_.CreateAlloca(t.llvm);
    llvm::Value* init;
    if (!vec) {
      init = builder_.CreateTrunc(query(found->query, 0), scalar);
    } else {
      init = llvm::PoisonValue::get(vec);
      for (unsigned i = 0; i < vec->getNumElements(); ++i) {
        llvm::Value* e = i < 3 ? query(found->query, i) : builder_.getInt64(0);
        init = builder_.CreateInsertElement(init, builder_.CreateTrunc(e, scalar), i);
      }
    }
    builder_.CreateStore(init, slot);
    // Where a device has an address space for the variable's storage class, the slot is not in it: the cast is for the
    // types alone, and goes with the slot when that becomes a register (SROA).
    result = builder_.CreateAddrSpaceCast(slot, pointerIn(var.storage_class));
  }
  specials_[variable_id] = result;
  return result;
}

// Atomics that clang-22 leaves as calls: "_Z10atomic_maxPU3AS1Vjj" is atomic_max(volatile global uint*, uint).
bool Reader::readImportedAtomic(const SpirvInst& inst, const std::string& name, llvm::ArrayRef<llvm::Value*> args,
                                llvm::Type* result) {
  size_t digits = 2;
  while (digits < name.size() && isdigit(static_cast<unsigned char>(name[digits])))
    ++digits;
  if (name.rfind("_Z", 0) != 0 || digits == 2 || digits > 4)
    return false;
  size_t length = std::stoul(name.substr(2, digits - 2));
  std::string function = name.substr(digits, length);
  std::string parameters = name.size() > digits + length ? name.substr(digits + length) : "";
  size_t underscore = function.find('_');
  if (underscore == std::string::npos ||
      (function.substr(0, underscore) != "atomic" && function.substr(0, underscore) != "atom"))
    return false;
  std::string op = function.substr(underscore + 1);
  // C11: "_Z25atomic_fetch_min_explicitPU3AS4VU7_Atomicjj12memory_order12memory_scope"; order and scope are not weaker
  // than sequentially consistent on all devices.
  auto order = llvm::AtomicOrdering::Monotonic;
  auto scope = context_.getOrInsertSyncScopeID(target_.device_scope);
  if (op.rfind("fetch_", 0) == 0) {
    op = op.substr(6, op.rfind("_explicit") == std::string::npos ? std::string::npos : op.rfind("_explicit") - 6);
    order = llvm::AtomicOrdering::SequentiallyConsistent;
    scope = llvm::SyncScope::System;
    args = args.take_front(2);
  }
  size_t atomic = parameters.find("_Atomic");
  char element = parameters.empty() ? 0 : atomic == std::string::npos ? parameters.back() : parameters[atomic + 7];
  bool is_unsigned = element && strchr("hjmty", element);
  using Rmw = llvm::AtomicRMWInst;
  struct Row {
    const char* name;
    Rmw::BinOp op;
  };
  const Row rows[] = {{"add", Rmw::Add},
                      {"sub", Rmw::Sub},
                      {"inc", Rmw::Add},
                      {"dec", Rmw::Sub},
                      {"xchg", Rmw::Xchg},
                      {"and", Rmw::And},
                      {"or", Rmw::Or},
                      {"xor", Rmw::Xor},
                      {"min", is_unsigned ? Rmw::UMin : Rmw::Min},
                      {"max", is_unsigned ? Rmw::UMax : Rmw::Max}};
  bool wrong = args.empty() || !args[0]->getType()->isPointerTy() ||
               !(result->isIntegerTy(32) || result->isIntegerTy(64) || result->isFloatTy() || result->isDoubleTy());
  for (size_t i = 1; i < args.size(); ++i)
    wrong |= args[i]->getType() != result;
  if (op == "cmpxchg") {
    if (wrong || args.size() != 3 || !result->isIntegerTy())
      fail(inst, "wrong signature for " + name);
    auto* pair = builder_.CreateAtomicCmpXchg(args[0], args[1], args[2], llvm::MaybeAlign(), order, order, scope);
    setValue(inst, builder_.CreateExtractValue(pair, 0));
    return true;
  }
  for (const Row& row : rows) {
    if (op != row.name)
      continue;
    bool unary = op == "inc" || op == "dec";
    if (wrong || args.size() != (unary ? 1u : 2u) || (row.op != Rmw::Xchg && !result->isIntegerTy()))
      fail(inst, "wrong signature for " + name);
    llvm::Value* v = unary ? llvm::ConstantInt::get(result, 1) : args[1];
    setValue(inst, builder_.CreateAtomicRMW(row.op, args[0], v, llvm::MaybeAlign(), order, scope));
    return true;
  }
  return false;
}

// The bits of f32 as bf16: to nearest even; a NaN stays one.
llvm::Value* Reader::toBfloat(llvm::Value* value) {
  auto with = [&](llvm::Type* element) -> llvm::Type* { return value->getType()->getWithNewType(element); };
  llvm::Type *bits = with(builder_.getInt16Ty()), *wide = with(builder_.getInt32Ty());
  if (target_.bfloat)
    return builder_.CreateBitCast(builder_.CreateFPTrunc(value, with(builder_.getBFloatTy())), bits);
  auto number = [&](uint32_t n) { return llvm::ConstantInt::get(wide, n); };
  llvm::Value* x = builder_.CreateBitCast(value, wide);
  llvm::Value* odd = builder_.CreateAnd(builder_.CreateLShr(x, number(16)), number(1));
  llvm::Value* rounded =
      builder_.CreateLShr(builder_.CreateAdd(x, builder_.CreateAdd(odd, number(0x7fff))), number(16));
  llvm::Value* nan = builder_.CreateFCmpUNO(value, value);
  return builder_.CreateTrunc(builder_.CreateSelect(nan, number(0x7fc0), rounded), bits);
}

llvm::Value* dot4ByArithmetic(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b, llvm::Value* sum) {
  for (int byte = 0; byte < 4; ++byte) {
    llvm::Value* unsigned_byte = builder.CreateAnd(builder.CreateLShr(a, 8 * byte), 255);
    llvm::Value* signed_byte = builder.CreateAShr(builder.CreateShl(b, 24 - 8 * byte), 24);
    sum = builder.CreateAdd(sum, builder.CreateMul(unsigned_byte, signed_byte));
  }
  return sum;
}

// A call of an imported function that is one of the OpenCL built-ins. False: not known.
bool Reader::readImportedCall(const SpirvInst& inst, const std::string& name, llvm::ArrayRef<llvm::Value*> args,
                              llvm::Type* result_type) {
  for (const ImportedQuery& q : kImportedQueries) {
    if (name != q.name)
      continue;
    if (!result_type->isIntegerTy() || args.size() != (q.has_dim ? 1u : 0u))
      fail(inst, "wrong signature for " + name);
    llvm::Value* v;
    if (!q.has_dim) {
      v = query(q.query, 0);
    } else {
      requireInt(inst, args[0]);
      if (args[0]->getType()->isVectorTy())
        fail(inst, "wrong signature for " + name);
      v = builder_.getInt64(q.out_of_range);
      for (int d = 2; d >= 0; --d)
        v = builder_.CreateSelect(builder_.CreateICmpEQ(args[0], llvm::ConstantInt::get(args[0]->getType(), d)),
                                  query(q.query, d), v);
    }
    setValue(inst, builder_.CreateZExtOrTrunc(v, result_type));
    return true;
  }
  if (name == "_Z7barrierj" || name == "_Z18work_group_barrierj" || name == "_Z17sub_group_barrierj") {
    Sync s{name.find("sub_group") == std::string::npos ? Scope::work_group : Scope::sub_group, SyncKind::barrier,
           GroupOp::none};
    emitSync(s, builder_.getVoidTy(), {});
    return true;
  }
  if (name == "_Z9mem_fencej" || name == "_Z14read_mem_fencej" || name == "_Z15write_mem_fencej") {
    // Between the items of a group alone, as OpenCL has it.
    builder_.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent,
                         context_.getOrInsertSyncScopeID(target_.group_scope));
    return true;
  }
  if (name.starts_with("zefuse_to_bfloat16_")) {  // common/toolchain/targets.h
    if (args.size() != 1 || !args[0]->getType()->getScalarType()->isFloatTy() ||
        result_type != args[0]->getType()->getWithNewType(builder_.getInt16Ty()))
      fail(inst, "wrong signature for " + name);
    setValue(inst, toBfloat(args[0]));
    return true;
  }
  if (name.starts_with("zefuse_dot4_")) {  // common/toolchain/targets.h
    if (args.size() != 3 || !result_type->getScalarType()->isIntegerTy(32) ||
        llvm::any_of(args, [&](llvm::Value* arg) { return arg->getType() != result_type; }))
      fail(inst, "wrong signature for " + name);
    setValue(inst, target_.dot4(builder_, args[0], args[1], args[2]));
    return true;
  }
  if (name.starts_with("zefuse_native_tanh_")) {  // common/toolchain/targets.h
    if (args.size() != 1 || !result_type->getScalarType()->isFloatTy() || result_type != args[0]->getType())
      fail(inst, "wrong signature for " + name);
    setValue(inst, callMath(inst, target_.native_math ? "native_tanh" : "tanh", result_type, args));
    return true;
  }
  if (readMatrixCall(inst, name, args, result_type))
    return true;
  return readImportedImageCall(inst, name) || readImportedAtomic(inst, name, args, result_type);
}

}  // namespace zefuse::spirv
