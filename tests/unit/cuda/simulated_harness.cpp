// The codegen tests' harness (tests/unit/codegen/harness.h) over the compiler for NVIDIA's GPUs, without one: the LLVM
// IR that would become PTX is compiled for the host, where simulated_groups.cpp runs it; a group has the memory that a
// launch gives it. What is checked so: the reader's address spaces, the form of kernels, every group operation with
// whole and partial warps, and the math library.
#include "tests/unit/codegen/harness.h"
#include "tests/unit/cuda/simulated_groups.h"
#include "tests/unit/cuda/simulated_warpgroups.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "drivers/cpu/codegen/backend.h"
#include "drivers/cuda/codegen/backend.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/ReplaceConstant.h"

#include <unistd.h>

namespace zefuse::cpu::testing {
namespace {

const std::map<std::string, std::string> kSimulated = {
    {"llvm.nvvm.barrier.cta.sync.aligned.all", "sim_barrier"},
    {"llvm.nvvm.bar.warp.sync", "sim_warp_barrier"},
    {"llvm.nvvm.shfl.sync.idx.i32", "sim_shuffle_index"},
    {"llvm.nvvm.shfl.sync.bfly.i32", "sim_shuffle_xor"},
    {"llvm.nvvm.vote.ballot.sync", "sim_ballot"},
    {"llvm.nvvm.ex2.approx.f32", "sim_exp2"},
    {"llvm.nvvm.ex2.approx.ftz.f32", "sim_exp2_flushed"},
    {"llvm.nvvm.rcp.approx.ftz.f", "sim_reciprocal"},
    {"llvm.nvvm.cp.async.cg.shared.global.16.s", "sim_copy"},
    {"llvm.nvvm.cp.async.ca.shared.global.4.s", "sim_copy_word"},
    {"llvm.nvvm.cp.async.commit.group", "sim_commit"},
    {"llvm.nvvm.cp.async.wait.group", "sim_wait"},
};

// Those with many operands and results: (const uint64_t* operands, 4 results of 32 bits).
const std::map<std::string, std::string> kSimulatedMatrices = {
    {"llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "sim_mma_f16"},
    {"llvm.nvvm.mma.m16n8k16.row.col.bf16", "sim_mma_bf16"},
    {"llvm.nvvm.mma.m16n8k8.row.col.tf32", "sim_mma_tf32"},
    {"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3", "sim_load_fragments"},
    {"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3", "sim_load_fragments_transposed"},
};

// A function of `type` that calls such a one.
llvm::Function* throughMemory(llvm::Module& module, llvm::FunctionType* type, const std::string& simulated) {
  llvm::IRBuilder<> b(module.getContext());
  auto* f = llvm::Function::Create(type, llvm::Function::InternalLinkage, "through_memory", module);
  b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", f));
  auto* slots = b.CreateAlloca(b.getInt64Ty(), b.getInt32(10));
  auto* results = b.CreateAlloca(type->getReturnType());
  for (llvm::Argument& argument : f->args()) {
    auto* slot = b.CreateConstGEP1_32(b.getInt64Ty(), slots, argument.getArgNo());
    b.CreateStore(b.getInt64(0), slot);
    b.CreateStore(argument.getType()->isPointerTy() ? b.CreateAddrSpaceCast(&argument, b.getPtrTy())
                                                    : static_cast<llvm::Value*>(&argument),
                  slot);
  }
  b.CreateCall(module.getOrInsertFunction(simulated, b.getVoidTy(), b.getPtrTy(), b.getPtrTy()), {slots, results});
  b.CreateRet(b.CreateLoad(type->getReturnType(), results));
  return f;
}

// The module for the host: registers and group operations are calls, shared memory is sim_local(), and kernel `n` is
// called through "run_n", which takes the addresses of the parameters.
void toHost(llvm::Module& module, const cuda::Program& program) {
  llvm::LLVMContext& context = module.getContext();
  if (const std::string assembly = cuda::testing::replaceAssembly(module); !assembly.empty())
    ADD_FAILURE() << "not simulated: " << assembly;
  for (llvm::Function& f : llvm::make_early_inc_range(module)) {
    if (!f.isDeclaration() || !f.getName().starts_with("llvm.nvvm"))
      continue;
    std::string name = f.getName().str();
    const std::string reg = "llvm.nvvm.read.ptx.sreg.";
    if (name.starts_with(reg)) {
      name = "sim_" + name.substr(reg.size());
      name[name.find('.')] = '_';
    } else if (auto known = kSimulated.find(name); known != kSimulated.end()) {
      name = known->second;
    } else if (auto matrix = kSimulatedMatrices.find(name); matrix != kSimulatedMatrices.end()) {
      f.replaceAllUsesWith(throughMemory(module, f.getFunctionType(), matrix->second));
      f.eraseFromParent();
      continue;
    } else {
      ADD_FAILURE() << "not simulated: " << name;
      continue;
    }
    auto* simulated = llvm::Function::Create(f.getFunctionType(), llvm::Function::ExternalLinkage, name, module);
    f.replaceAllUsesWith(simulated);
    f.eraseFromParent();
  }
  if (auto* print = module.getFunction("vprintf"))
    print->setName("sim_vprintf");
  llvm::IRBuilder<> b(context);
  if (auto* local = module.getNamedGlobal("zf_local")) {
    // A pointer that is known when the library is loaded would need no call, but the region is the test program's.
    auto* getter = llvm::Function::Create(llvm::FunctionType::get(b.getPtrTy(), false), llvm::Function::ExternalLinkage,
                                          "sim_local", module);
    llvm::convertUsersOfConstantsToInstructions({local});
    for (llvm::Use& use : llvm::make_early_inc_range(local->uses())) {
      auto* user = llvm::cast<llvm::Instruction>(use.getUser());
      llvm::Instruction* at = user;
      if (auto* phi = llvm::dyn_cast<llvm::PHINode>(user))
        at = phi->getIncomingBlock(use)->getTerminator();
      b.SetInsertPoint(at);
      use.set(b.CreateAddrSpaceCast(b.CreateCall(getter), local->getType()));
    }
    local->eraseFromParent();
  }
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    llvm::Function* kernel = module.getFunction(program.kernels[i].symbol);
    kernel->setCallingConv(llvm::CallingConv::C);
    auto* run = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy()}, false),
                                       llvm::Function::ExternalLinkage, "run_" + std::to_string(i), module);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "", run));
    std::vector<llvm::Value*> values;
    for (llvm::Argument& argument : kernel->args()) {
      llvm::Value* address =
          b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_32(b.getPtrTy(), run->getArg(0), argument.getArgNo()));
      values.push_back(argument.hasByValAttr() ? address
                                               : b.CreateAlignedLoad(argument.getType(), address, llvm::Align(1)));
    }
    auto* call = b.CreateCall(kernel, values);
    call->setAttributes(kernel->getAttributes());
    b.CreateRetVoid();
  }
  auto target = createTargetMachine(IsaLevel::x86_64_v3, 2);
  module.setTargetTriple(target->getTargetTriple());
  module.setDataLayout(target->createDataLayout());
  setTargetAttributes(module, IsaLevel::x86_64_v3);
}

class Simulated : public LoadedModule {
public:
  explicit Simulated(cuda::Program program) : program(std::move(program)) {
    for (const cuda::ProgramKernel& kernel : this->program.kernels)
      kernels_.push_back(kernel.info);
  }
  const std::vector<spirv::KernelInfo>& kernels() const override { return kernels_; }
  WorkGroupFn entry(size_t) const override { return nullptr; }
  const std::vector<GlobalInfo>& globals() const override { return globals_; }
  void* globalAddress(size_t) const override { return nullptr; }
  std::vector<std::string> unresolvedImports() const override { return program.imports; }
  const std::vector<std::string>& functions() const override { return functions_; }
  void* functionAddress(const std::string&) const override { return nullptr; }
  const std::string& buildFlags() const override { return program.build_flags; }

  const cuda::Program program;
  void* library = nullptr;

private:
  std::vector<spirv::KernelInfo> kernels_;
  std::vector<GlobalInfo> globals_;
  std::vector<std::string> functions_;  // none: they are inlined
};

void* link(const std::vector<char>& object) {
  namespace fs = std::filesystem;
  static int number = 0;
  const fs::path folder = fs::path(::testing::TempDir()) / ("zefuse-simulated-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string base = (folder / std::to_string(number++)).string();
  std::ofstream(base + ".o", std::ios::binary).write(object.data(), std::streamsize(object.size()));
  const std::string command = "ld -shared -z noexecstack -o " + base + ".so " + base + ".o -lm";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  void* library = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(library) << dlerror();
  fs::remove_all(folder);
  return library;
}

}  // namespace

std::vector<uint32_t> loadSpirv(const std::string& name) {
  std::ifstream f(std::string(KERNEL_DIR "/") + name + ".spv", std::ios::binary | std::ios::ate);
  if (!f) {
    ADD_FAILURE() << name << ".spv is missing";
    return {};
  }
  std::vector<uint32_t> words(size_t(f.tellg()) / 4);
  f.seekg(0);
  f.read(reinterpret_cast<char*>(words.data()), std::streamsize(words.size() * 4));
  return words;
}

Program::Program(const std::vector<uint32_t>& spirv, CompileOptions options) {
  cuda::CompileOptions for_gpu;
  for_gpu.architecture = 90;
  for_gpu.opt_level = options.opt_level;
  for_gpu.spec_constants = options.spec_constants;
  try {
    llvm::LLVMContext context;
    cuda::CompileResult result;
    auto target = cuda::createTargetMachine(90, for_gpu.opt_level);
    auto module = cuda::lowerToLlvm(spirv, for_gpu, context, *target, result);
    toHost(*module, result.program);
    auto host = createTargetMachine(IsaLevel::x86_64_v3, 2);
    void* library = link(emitObject(*module, *host));
    auto made = std::make_unique<Simulated>(std::move(result.program));
    made->library = library;
    module_ = std::move(made);
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
}

size_t Program::find(const std::string& kernel) const {
  for (size_t i = 0; module_ && i < module_->kernels().size(); ++i)
    if (module_->kernels()[i].name == kernel)
      return i;
  return ~size_t{0};
}

const spirv::KernelInfo& Program::info(const std::string& kernel) const {
  static const spirv::KernelInfo none;
  const size_t i = find(kernel);
  EXPECT_NE(i, ~size_t{0}) << kernel;
  return i == ~size_t{0} ? none : module_->kernels()[i];
}

void Program::run(const std::string& kernel, Size3 groups, Size3 local, std::vector<Arg> args, Size3 offset) {
  const size_t index = find(kernel);
  ASSERT_NE(index, ~size_t{0}) << kernel;
  const auto& simulated = static_cast<const Simulated&>(*module_);
  const cuda::ProgramKernel& k = simulated.program.kernels[index];
  ASSERT_EQ(k.info.args.size(), args.size()) << kernel;
  // As the driver lays parameters out.
  std::vector<void*> parameters;
  std::vector<uint64_t> local_offsets(args.size());
  uint64_t shared = cuda::alignLocal(k.info.local_bytes);
  for (size_t i = 0; i < args.size(); ++i) {
    if (k.info.args[i].kind == spirv::ArgKind::local_pointer) {
      local_offsets[i] = shared;
      shared += cuda::alignLocal(uint32_t(args[i].local_bytes));
      parameters.push_back(&local_offsets[i]);
    } else {
      ASSERT_EQ(k.info.args[i].size, args[i].value.size()) << kernel << " argument " << i;
      parameters.push_back(args[i].value.data());
    }
  }
  ASSERT_LE(shared, cuda::testing::local_bytes);
  if (k.takes_offset)
    for (uint64_t& each : offset)
      parameters.push_back(&each);
  const auto entry =
      reinterpret_cast<void (*)(void**)>(dlsym(simulated.library, ("run_" + std::to_string(index)).c_str()));
  ASSERT_TRUE(entry) << kernel;
  cuda::testing::Place id, count, size;
  for (size_t d = 0; d < 3; ++d) {
    count[d] = uint32_t(groups[d]);
    size[d] = uint32_t(local[d]);
  }
  for (id[2] = 0; id[2] < count[2]; ++id[2])
    for (id[1] = 0; id[1] < count[1]; ++id[1])
      for (id[0] = 0; id[0] < count[0]; ++id[0])
        ASSERT_EQ(cuda::testing::runGroup(id, count, size, entry, parameters.data()), "") << kernel;
}

std::vector<IsaLevel> hostLevels() { return {IsaLevel::x86_64_v3}; }

}  // namespace zefuse::cpu::testing
