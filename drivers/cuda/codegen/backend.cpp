#include "drivers/cuda/codegen/backend.h"

#include "drivers/cuda/codegen/extrema.h"
#include "drivers/cuda/codegen/widened_pairs.h"
#include "drivers/spirv/spirv_module.h"

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

#include <mutex>

namespace zefuse::cuda {
namespace {

constexpr const char* kTriple = "nvptx64-nvidia-cuda";

// The oldest PTX that knows what we use of the architecture, so that older CUDA drivers take it: 8.0 is
// CUDA 12.0's, 8.6 CUDA 12.7's.
struct Architecture {
  uint32_t number;
  const char *cpu, *features;
};
constexpr Architecture kArchitectures[] = {
    {80, "sm_80", "+ptx80"}, {86, "sm_86", "+ptx80"},   {89, "sm_89", "+ptx80"},
    {90, "sm_90", "+ptx80"}, {100, "sm_100", "+ptx86"},
};

struct Analyses {
  llvm::LoopAnalysisManager loop;
  llvm::FunctionAnalysisManager function;
  llvm::CGSCCAnalysisManager cgscc;
  llvm::ModuleAnalysisManager module;
  explicit Analyses(llvm::PassBuilder& pb) {
    pb.registerModuleAnalyses(module);
    pb.registerCGSCCAnalyses(cgscc);
    pb.registerFunctionAnalyses(function);
    pb.registerLoopAnalyses(loop);
    pb.crossRegisterProxies(loop, function, cgscc, module);
  }
};

}  // namespace

uint32_t codeArchitecture(uint32_t device_architecture) {
  uint32_t best = 0;
  for (const Architecture& each : kArchitectures)
    if (each.number <= device_architecture)
      best = each.number;
  return best;
}

std::unique_ptr<llvm::TargetMachine> createTargetMachine(uint32_t architecture, int opt_level, bool own) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  const uint32_t number = codeArchitecture(architecture);
  const Architecture* found = nullptr;
  for (const Architecture& each : kArchitectures)
    if (each.number == number)
      found = &each;
  if (!found)
    throw spirv::CompileError("a device of compute capability " + std::to_string(architecture / 10) + "." +
                              std::to_string(architecture % 10) + " is too old: 8.0 is the least");
  std::string error;
  llvm::Triple triple(kTriple);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    throw spirv::CompileError("LLVM has no NVPTX target: " + error);
  llvm::TargetOptions options;
  // Multiplications and additions are rounded on their own (".rn") unless the SPIR-V lets them be joined.
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  options.MCOptions.AsmVerbose = false;
  auto level = opt_level == 0   ? llvm::CodeGenOptLevel::None
               : opt_level == 1 ? llvm::CodeGenOptLevel::Less
               : opt_level == 2 ? llvm::CodeGenOptLevel::Default
                                : llvm::CodeGenOptLevel::Aggressive;
  const std::string cpu = std::string(found->cpu) + (own ? "a" : "");
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, cpu, found->features, options, std::nullopt, std::nullopt, level));
  if (!machine)
    throw spirv::CompileError("LLVM refuses the target machine");
  return machine;
}

void prepareKernels(llvm::Module& module, llvm::TargetMachine& target) {
  llvm::PassBuilder pb(&target);
  Analyses analyses(pb);
  llvm::ModulePassManager mpm;
  mpm.addPass(llvm::GlobalDCEPass());
  mpm.addPass(llvm::AlwaysInlinerPass());
  mpm.addPass(llvm::GlobalDCEPass());
  llvm::FunctionPassManager fpm;
  fpm.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
  fpm.addPass(llvm::EarlyCSEPass());
  fpm.addPass(llvm::SimplifyCFGPass());
  mpm.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(fpm)));
  mpm.run(module, analyses.module);
}

void promotePrivate(llvm::Module& module, llvm::TargetMachine& target) {
  llvm::PassBuilder pb(&target);
  Analyses analyses(pb);
  llvm::ModulePassManager mpm;
  mpm.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::SROAPass(llvm::SROAOptions::PreserveCFG)));
  mpm.run(module, analyses.module);
}

void optimize(llvm::Module& module, llvm::TargetMachine& target, int opt_level) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = false;  // kernels have their vectors; lanes are work-items
  llvm::PassBuilder pb(&target, tuning);
  // Callbacks come before the analyses, which take them over.
  pb.registerPeepholeEPCallback(
      [](llvm::FunctionPassManager& passes, llvm::OptimizationLevel) { passes.addPass(ExtremumInstructions()); });
  pb.registerOptimizerLastEPCallback(
      [](llvm::ModulePassManager& passes, llvm::OptimizationLevel, llvm::ThinOrFullLTOPhase) {
        passes.addPass(llvm::createModuleToFunctionPassAdaptor(WidenedPairs()));
      });
  Analyses analyses(pb);
  auto level = opt_level == 0   ? llvm::OptimizationLevel::O0
               : opt_level == 1 ? llvm::OptimizationLevel::O1
               : opt_level == 2 ? llvm::OptimizationLevel::O2
                                : llvm::OptimizationLevel::O3;
  auto mpm = opt_level == 0 ? pb.buildO0DefaultPipeline(level) : pb.buildPerModuleDefaultPipeline(level);
  mpm.run(module, analyses.module);
}

std::string emitPtx(llvm::Module& module, llvm::TargetMachine& target) {
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream out(text);
  llvm::legacy::PassManager passes;
  if (target.addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile))
    throw spirv::CompileError("LLVM cannot write PTX");
  passes.run(module);
  return std::string(text.data(), text.size());
}

}  // namespace zefuse::cuda
