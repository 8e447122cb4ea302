#include "drivers/cuda/codegen/lower_markers.h"

#include "drivers/cuda/codegen/group_operations.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace zefuse::cuda {
namespace {

constexpr unsigned kShared = 3;  // address space
constexpr uint32_t kMaxGroupItems = 1024;

// All shared memory is one region whose size a launch gives: a static one may not have more than 48 KiB.
llvm::GlobalVariable* localRegion(llvm::Module& module) {
  const char* name = "zf_local";
  if (auto* known = module.getNamedGlobal(name))
    return known;
  auto* type = llvm::ArrayType::get(llvm::Type::getInt8Ty(module.getContext()), 0);
  auto* region = new llvm::GlobalVariable(module, type, false, llvm::GlobalValue::ExternalLinkage, nullptr, name,
                                          nullptr, llvm::GlobalValue::NotThreadLocal, kShared);
  region->setAlignment(llvm::Align(kLocalAlignment));
  return region;
}

// One kernel's launch geometry in registers. Values are computed where they are asked for; LLVM shares them.
class Geometry {
public:
  Geometry(llvm::IRBuilder<>& builder, const spirv::KernelInfo& info, llvm::Function& kernel)
      : b_(builder), info_(info), kernel_(kernel) {}

  bool fixed() const { return info_.required_group_size[0] != 0; }
  uint32_t fixedItems() const {
    const uint32_t* size = info_.required_group_size;
    return size[0] * size[1] * size[2];
  }
  uint32_t width() const { return info_.required_subgroup_size ? info_.required_subgroup_size : 32; }

  llvm::Value* reg(llvm::Intrinsic::ID x, unsigned dim) {
    return b_.CreateIntrinsic(b_.getInt32Ty(), llvm::Intrinsic::ID(x + dim), {});
  }
  llvm::Value* item(unsigned d) { return reg(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, d); }
  llvm::Value* group(unsigned d) { return reg(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, d); }
  llvm::Value* groups(unsigned d) { return reg(llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x, d); }
  llvm::Value* size(unsigned d) {
    return fixed() ? b_.getInt32(info_.required_group_size[d]) : reg(llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_x, d);
  }
  llvm::Value* items() {
    return fixed() ? b_.getInt32(fixedItems()) : b_.CreateMul(b_.CreateMul(size(0), size(1)), size(2));
  }
  llvm::Value* linear() {
    if (fixed() && info_.required_group_size[1] == 1 && info_.required_group_size[2] == 1)
      return item(0);
    return b_.CreateAdd(b_.CreateMul(b_.CreateAdd(b_.CreateMul(item(2), size(1)), item(1)), size(0)), item(0));
  }
  llvm::Value* wide(llvm::Value* v) { return b_.CreateZExt(v, b_.getInt64Ty()); }
  llvm::Value* offset(unsigned d) {  // the last three parameters
    return kernel_.getArg(kernel_.arg_size() - 3 + d);
  }
  llvm::Value* globalSize(unsigned d) { return b_.CreateMul(wide(groups(d)), wide(size(d))); }
  llvm::Value* globalIdWithout(unsigned d) {
    return b_.CreateAdd(b_.CreateMul(wide(group(d)), wide(size(d))), wide(item(d)));
  }
  SubGroup subGroup() {
    SubGroup s;
    s.width = width();
    llvm::Value* here = linear();
    s.lane = b_.CreateAnd(here, b_.getInt32(s.width - 1));
    if (fixed() && fixedItems() % 32 == 0) {
      s.count = nullptr;
      s.warp_mask = b_.getInt32(~0u);
    } else {
      llvm::Value* first = b_.CreateAnd(here, b_.getInt32(~(s.width - 1)));
      s.count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateSub(items(), first), b_.getInt32(s.width));
      llvm::Value* warp = b_.CreateSub(items(), b_.CreateAnd(here, b_.getInt32(~31u)));
      llvm::Value* some =
          b_.CreateSub(b_.CreateShl(b_.getInt32(1), b_.CreateAnd(warp, b_.getInt32(31))), b_.getInt32(1));
      s.warp_mask = b_.CreateSelect(b_.CreateICmpULT(warp, b_.getInt32(32)), some, b_.getInt32(~0u));
    }
    s.first_in_warp = s.width == 32 ? static_cast<llvm::Value*>(b_.getInt32(0))
                                    : b_.CreateAnd(here, b_.getInt32(31 & ~(s.width - 1)));
    s.mask = s.width == 32 ? s.warp_mask
                           : b_.CreateAnd(s.warp_mask, b_.CreateShl(b_.getInt32((1u << s.width) - 1), s.first_in_warp));
    return s;
  }

  llvm::Value* query(spirv::Query q, unsigned d) {
    using spirv::Query;
    switch (q) {
    case Query::local_id: return wide(item(d));
    case Query::group_id: return wide(group(d));
    case Query::group_size: return wide(size(d));
    case Query::group_count: return wide(groups(d));
    case Query::global_size: return globalSize(d);
    case Query::global_offset: return offset(d);
    case Query::global_id: return b_.CreateAdd(globalIdWithout(d), offset(d));
    case Query::local_linear_id: return wide(linear());
    case Query::global_linear_id:
      return b_.CreateAdd(
          b_.CreateMul(b_.CreateAdd(b_.CreateMul(globalIdWithout(2), globalSize(1)), globalIdWithout(1)),
                       globalSize(0)),
          globalIdWithout(0));
    case Query::work_dim: {  // Level Zero has none: the highest dimension in use
      auto used = [&](unsigned i) { return b_.CreateICmpUGT(globalSize(i), b_.getInt64(1)); };
      return b_.CreateSelect(used(2), b_.getInt64(3), b_.CreateSelect(used(1), b_.getInt64(2), b_.getInt64(1)));
    }
    case Query::subgroup_max_size: return b_.getInt64(width());
    case Query::subgroup_size: {
      SubGroup s = subGroup();
      return s.count ? wide(s.count) : b_.getInt64(width());
    }
    case Query::subgroup_count:
      return wide(b_.CreateUDiv(b_.CreateAdd(items(), b_.getInt32(width() - 1)), b_.getInt32(width())));
    case Query::subgroup_id: return wide(b_.CreateUDiv(linear(), b_.getInt32(width())));
    case Query::subgroup_local_id: return wide(b_.CreateAnd(linear(), b_.getInt32(width() - 1)));
    }
    return nullptr;
  }

private:
  llvm::IRBuilder<>& b_;
  const spirv::KernelInfo& info_;
  llvm::Function& kernel_;
};

// CUDA's printf takes the address of the arguments, laid out as a C struct.
void lowerPrintf(llvm::CallInst& call) {
  llvm::IRBuilder<> b(&call);
  llvm::Module& module = *call.getModule();
  std::vector<llvm::Type*> types;
  for (unsigned i = 1; i < call.arg_size(); ++i)
    types.push_back(call.getArgOperand(i)->getType());
  llvm::Value* arguments = llvm::ConstantPointerNull::get(b.getPtrTy());
  if (!types.empty()) {
    auto* type = llvm::StructType::get(module.getContext(), types);
    auto& entry = call.getFunction()->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.getFirstInsertionPt());
    auto* space = at_entry.CreateAlloca(type);
    space->setAlignment(llvm::Align(8));
    for (unsigned i = 0; i < types.size(); ++i)
      b.CreateStore(call.getArgOperand(i + 1), b.CreateStructGEP(type, space, i));
    arguments = space;
  }
  auto callee = module.getOrInsertFunction(
      "vprintf", llvm::FunctionType::get(b.getInt32Ty(), {b.getPtrTy(), b.getPtrTy()}, false));
  llvm::Value* format = b.CreateAddrSpaceCast(call.getArgOperand(0), b.getPtrTy());
  call.replaceAllUsesWith(b.CreateCall(callee, {format, arguments}));
  call.eraseFromParent();
}

bool isCopyMarker(llvm::StringRef name) {
  return name == spirv::copy_to_local_marker || name == spirv::copy_word_to_local_marker ||
         name == spirv::commit_copies_marker || name == spirv::wait_for_copies_marker;
}

// An asynchronous copy, or what orders them; false: neither.
bool lowerCopy(llvm::CallInst& call) {
  const llvm::StringRef name = call.getCalledFunction()->getName();
  llvm::IRBuilder<> b(&call);
  const bool word = name == spirv::copy_word_to_local_marker;
  if (word || name == spirv::copy_to_local_marker) {
    const uint32_t bytes = word ? 4 : 16;
    llvm::Value* some = b.CreateICmpNE(call.getArgOperand(2), b.getInt32(0));
    b.CreateIntrinsic(
        b.getVoidTy(),
        word ? llvm::Intrinsic::nvvm_cp_async_ca_shared_global_4_s
             : llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16_s,
        {call.getArgOperand(0), call.getArgOperand(1), b.CreateSelect(some, b.getInt32(bytes), b.getInt32(0))});
  } else if (name == spirv::commit_copies_marker) {
    b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::nvvm_cp_async_commit_group, {});
  } else if (name == spirv::wait_for_copies_marker) {
    b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::nvvm_cp_async_wait_group, {call.getArgOperand(0)});
  } else {
    return false;
  }
  call.eraseFromParent();
  return true;
}

bool asksForOffset(spirv::Query q) { return q == spirv::Query::global_id || q == spirv::Query::global_offset; }

}  // namespace

llvm::Function* makeKernel(const spirv::KernelSource& source, const std::string& symbol) {
  llvm::Function& body = *source.function;
  llvm::Module& module = *body.getParent();
  llvm::LLVMContext& context = module.getContext();
  llvm::IRBuilder<> b(context);
  std::vector<llvm::Type*> types;
  for (size_t i = 0; i < source.info.args.size(); ++i)
    types.push_back(source.info.args[i].kind == spirv::ArgKind::local_pointer ? b.getInt64Ty()
                                                                              : body.getArg(unsigned(i))->getType());
  for (int d = 0; d < 3; ++d)
    types.push_back(b.getInt64Ty());
  auto* kernel = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), types, false),
                                        llvm::Function::ExternalLinkage, symbol, module);
  kernel->setCallingConv(llvm::CallingConv::PTX_Kernel);
  kernel->setDoesNotThrow();
  const uint32_t* size = source.info.required_group_size;
  if (size[0] != 0)
    kernel->addFnAttr("nvvm.reqntid",
                      std::to_string(size[0]) + "," + std::to_string(size[1]) + "," + std::to_string(size[2]));
  else
    kernel->addFnAttr("nvvm.maxntid", std::to_string(kMaxGroupItems));
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "", kernel));
  std::vector<llvm::Value*> values;
  for (size_t i = 0; i < source.info.args.size(); ++i) {
    const spirv::ArgInfo& info = source.info.args[i];
    llvm::Argument* argument = kernel->getArg(unsigned(i));
    llvm::Argument* inner = body.getArg(unsigned(i));
    switch (info.kind) {
    case spirv::ArgKind::local_pointer:
      values.push_back(b.CreateGEP(b.getInt8Ty(), localRegion(module), argument));
      break;
    case spirv::ArgKind::by_value_struct: {
      auto* bytes = llvm::ArrayType::get(b.getInt8Ty(), info.size);
      argument->addAttr(llvm::Attribute::getWithByValType(context, bytes));
      argument->addAttr(llvm::Attribute::getWithAlignment(context, llvm::Align(info.alignment)));
      values.push_back(argument);
      break;
    }
    default:
      if (argument->getType()->isPointerTy()) {
        if (inner->hasAttribute(llvm::Attribute::NoAlias))
          argument->addAttr(llvm::Attribute::NoAlias);
        if (llvm::MaybeAlign align = inner->getParamAlign())
          argument->addAttr(llvm::Attribute::getWithAlignment(context, *align));
      }
      values.push_back(argument);
    }
  }
  b.CreateCall(&body, values);
  b.CreateRetVoid();
  body.setLinkage(llvm::GlobalValue::InternalLinkage);
  return kernel;
}

void lowerMarkers(llvm::Function& kernel, const spirv::KernelSource& source, const spirv::Markers& markers,
                  const std::map<uint32_t, spirv::LocalVariable>& variables, ProgramKernel& out) {
  out.info = source.info;
  llvm::Module& module = *kernel.getParent();
  const uint32_t width = source.info.required_subgroup_size;
  if (width > 32)
    throw spirv::CompileError("kernel " + source.info.name + " asks for sub-groups of " + std::to_string(width) +
                              "; an NVIDIA GPU has 32");
  std::vector<llvm::Instruction*> calls;
  for (llvm::Instruction& i : llvm::instructions(kernel)) {
    auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
    llvm::Function* callee = call ? call->getCalledFunction() : nullptr;
    if (markers.asQuery(&i) || markers.asLocalVariable(&i) || markers.asSync(&i) ||
        (callee && (callee->getName() == "printf" || isCopyMarker(callee->getName()))))
      calls.push_back(&i);
  }
  std::map<uint32_t, uint32_t> offsets;  // of Workgroup variables
  uint32_t local_bytes = 0;
  auto reserve = [&](uint64_t bytes, uint64_t alignment = kLocalAlignment) {
    if (alignment > kMaxLocalAlignment)
      throw spirv::CompileError("kernel " + source.info.name + " has a local variable at a multiple of " +
                                std::to_string(alignment) + " bytes; " + std::to_string(kMaxLocalAlignment) +
                                " is the most");
    const auto at = uint32_t(llvm::alignTo(local_bytes, std::max<uint64_t>(alignment, kLocalAlignment)));
    if (bytes > (1u << 20) - at)
      throw spirv::CompileError("kernel " + source.info.name + " has more than 1 MiB of local memory");
    local_bytes = alignLocal(at + uint32_t(bytes));
    return at;
  };
  auto localAddress = [&](llvm::IRBuilder<>& b, uint32_t offset) -> llvm::Value* {
    return b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), localRegion(module), offset);
  };
  std::optional<uint32_t> scratch;  // of operations of a whole group
  for (llvm::Instruction* i : calls) {
    llvm::IRBuilder<> b(i);
    Geometry geometry(b, source.info, kernel);
    auto* call = llvm::cast<llvm::CallInst>(i);
    llvm::Value* value = nullptr;
    if (const spirv::Query* query = markers.asQuery(i)) {
      auto* dim = llvm::dyn_cast<llvm::ConstantInt>(call->getArgOperand(0));
      if (!dim || dim->getZExtValue() > 2)
        throw spirv::CompileError("kernel " + source.info.name + " asks for a dimension that is no constant");
      out.takes_offset |= asksForOffset(*query);
      value = geometry.query(*query, unsigned(dim->getZExtValue()));
    } else if (const uint32_t* id = markers.asLocalVariable(i)) {
      auto [at, fresh] = offsets.try_emplace(*id, 0);
      if (fresh)
        at->second = reserve(variables.at(*id).size, variables.at(*id).alignment);
      if (variables.at(*id).alignment > kLocalAlignment)
        localRegion(module)->setAlignment(llvm::Align(kMaxLocalAlignment));
      value = localAddress(b, at->second);
    } else if (const spirv::Sync* sync = markers.asSync(i)) {
      out.info.has_barrier = true;
      std::vector<llvm::Value*> operands(call->arg_begin(), call->arg_end());
      if (sync->scope == spirv::Scope::sub_group) {
        value = subGroupOperation(b, geometry.subGroup(), *sync, call->getType(), operands);
      } else {
        WorkGroup group{geometry.linear(), geometry.items(), nullptr};
        if (sync->kind != spirv::SyncKind::barrier) {
          if (!scratch)
            scratch = reserve(uint64_t(geometry.fixed() ? geometry.fixedItems() : kMaxGroupItems) * 8);
          group.scratch = localAddress(b, *scratch);
        }
        value = workGroupOperation(b, group, *sync, call->getType(), operands);
      }
    } else {
      if (!lowerCopy(*call))
        lowerPrintf(*call);
      continue;
    }
    if (!call->getType()->isVoidTy())
      call->replaceAllUsesWith(value);
    call->eraseFromParent();
  }
  out.info.local_bytes = local_bytes;
}

}  // namespace zefuse::cuda
