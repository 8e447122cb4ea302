// Imported functions for matrix engines: Intel's (cl_intel_subgroup_matrix_multiply_accumulate), and our own names for
// NVIDIA's instructions (common/toolchain/targets.h, MatrixForm::fragments), with what feeds them.
#include "drivers/spirv/reader.h"

#include <cctype>
#include <cstring>

namespace zefuse::spirv {
namespace {

// "_Z19zefuse_load_matrix...": the function's name without what its types add. Empty: not mangled.
std::string unmangled(const std::string& name) {
  if (!name.starts_with("_Z"))
    return {};
  size_t at = 2, length = 0;
  for (; at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0 && length < name.size(); ++at)
    length = length * 10 + size_t(name[at] - '0');
  return at + length <= name.size() ? name.substr(at, length) : std::string();
}

}  // namespace

// False: none of these functions.
bool Reader::readMatrixCall(const SpirvInst& inst, const std::string& name, llvm::ArrayRef<llvm::Value*> args,
                            llvm::Type* result_type) {
  const std::string function = unmangled(name);
  if (function.empty())
    return false;
  auto vectorOf = [&](llvm::Type* element, unsigned count) { return llvm::FixedVectorType::get(element, count); };
  llvm::Type *i32 = builder_.getInt32Ty(), *f32 = builder_.getFloatTy();
  auto require = [&](bool right) {
    if (!right)
      fail(inst, "wrong signature for " + name);
  };
  auto sync = [&](SyncKind kind, llvm::ArrayRef<llvm::Value*> operands) {
    setValue(inst, emitSync({Scope::sub_group, kind, GroupOp::none}, result_type, operands));
    return true;
  };
  const bool half = function == "intel_sub_group_f16_f16_matrix_mad_k16";
  if (half || function == "intel_sub_group_bf16_bf16_matrix_mad_k16") {
    auto* rows = llvm::dyn_cast<llvm::FixedVectorType>(result_type);
    auto* a = args.size() == 3 ? llvm::dyn_cast<llvm::FixedVectorType>(args[0]->getType()) : nullptr;
    require(rows && rows->getElementType()->isFloatTy() && a && a->getNumElements() == rows->getNumElements() &&
            (a->getElementType()->isIntegerTy(16) || a->getElementType()->isIntegerTy(32)) &&
            args[1]->getType() == vectorOf(i32, 8) && args[2]->getType() == rows);
    return sync(half ? SyncKind::matrix_mad_f16 : SyncKind::matrix_mad_bf16, args);
  }
  if (!function.starts_with("zefuse_"))
    return false;
  const bool f16 = function == "zefuse_mma_m16n8k16_f16", tf32 = function == "zefuse_mma_m16n8k8_tf32";
  if (f16 || tf32 || function == "zefuse_mma_m16n8k16_bf16") {
    require(args.size() == 3 && args[0]->getType() == vectorOf(i32, 4) && args[1]->getType() == vectorOf(i32, 2) &&
            args[2]->getType() == vectorOf(f32, 4) && result_type == args[2]->getType());
    return sync(f16    ? SyncKind::multiply_fragments_f16
                : tf32 ? SyncKind::multiply_fragments_tf32
                       : SyncKind::multiply_fragments_bf16,
                args);
  }
  const bool transposed = function == "zefuse_load_fragments_transposed";
  if (transposed || function == "zefuse_load_fragments") {
    require(args.size() == 1 && args[0]->getType()->isPointerTy() &&
            args[0]->getType()->getPointerAddressSpace() == target_.local_space && result_type == vectorOf(i32, 4));
    return sync(transposed ? SyncKind::load_fragments_transposed : SyncKind::load_fragments, args);
  }
  if (function == "zefuse_shuffle_xor") {
    require(args.size() == 2 && args[1]->getType() == i32 && result_type == args[0]->getType());
    return sync(SyncKind::shuffle_xor, {args[0], builder_.CreateZExt(args[1], builder_.getInt64Ty())});
  }
  // Copies of 16 or 4 bytes from global to local memory, which end where they are waited for; zeros where the third
  // operand is false. At once where there are none of the device's own (asynchronous_copies).
  auto emit = [&](const std::string& marker) {
    std::vector<llvm::Type*> types;
    for (llvm::Value* arg : args)
      types.push_back(arg->getType());
    return builder_.CreateCall(
        module_.getOrInsertFunction(marker, llvm::FunctionType::get(builder_.getVoidTy(), types, false)), args);
  };
  if (target_.warpgroups && function.starts_with("zefuse_warpgroup_")) {
    const char* wanted = nullptr;  // l: a pointer to local memory, p: to private memory, i: i32, f: f32
    if (function == "zefuse_warpgroup_multiply_f16" || function == "zefuse_warpgroup_multiply_bf16")
      wanted = "pliliii";
    else if (function == "zefuse_warpgroup_multiply_rows_f16" || function == "zefuse_warpgroup_multiply_rows_bf16")
      wanted = "ppliiii";
    else if (function == "zefuse_warpgroup_wait")
      wanted = "pipii";
    else if (function == "zefuse_warpgroup_take_turn" || function == "zefuse_warpgroup_give_turn" ||
             function == "zefuse_warpgroup_registers")
      wanted = "ii";
    else if (function == "zefuse_warpgroup_computed")
      wanted = "f";
    else if (function == "zefuse_warpgroup_begin" || function == "zefuse_warpgroup_commit" ||
             function == "zefuse_warpgroup_publish")
      wanted = "";
    if (!wanted)
      return false;
    std::string given;
    for (llvm::Value* arg : args)
      given += arg->getType() == i32                                      ? 'i'
               : arg->getType()->isFloatTy()                              ? 'f'
               : arg->getType() == builder_.getPtrTy(target_.local_space) ? 'l'
               : arg->getType() == builder_.getPtrTy()                    ? 'p'
                                                                          : '?';
    require(given == wanted && result_type->isVoidTy());
    emit("zf." + function.substr(std::strlen("zefuse_")))->setConvergent();
    return true;
  }
  const bool word = function == "zefuse_copy_word_to_local";
  if (word || function == "zefuse_copy_to_local") {
    require(args.size() == 3 && args[0]->getType() == builder_.getPtrTy(target_.local_space) &&
            args[1]->getType() == builder_.getPtrTy(target_.global_space) && args[2]->getType() == i32);
    if (target_.asynchronous_copies) {
      emit(word ? copy_word_to_local_marker : copy_to_local_marker);
      return true;
    }
    llvm::Type* whole = word ? i32 : vectorOf(i32, 4);
    const llvm::Align align(word ? 4 : 16);
    llvm::Value* loaded = builder_.CreateAlignedLoad(whole, args[1], align);
    llvm::Value* inside = builder_.CreateICmpNE(args[2], builder_.getInt32(0));
    builder_.CreateAlignedStore(builder_.CreateSelect(inside, loaded, llvm::Constant::getNullValue(whole)), args[0],
                                align);
    return true;
  }
  if (function == "zefuse_commit_copies" || function == "zefuse_wait_for_copies") {
    const bool wait = function == "zefuse_wait_for_copies";
    require(args.size() == (wait ? 1 : 0) && (!wait || llvm::isa<llvm::ConstantInt>(args[0])));
    if (target_.asynchronous_copies)
      emit(wait ? wait_for_copies_marker : commit_copies_marker);
    return true;
  }
  return false;
}

}  // namespace zefuse::spirv
