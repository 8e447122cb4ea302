#include "drivers/cpu/codegen/backend.h"

#include "drivers/spirv/spirv_module.h"

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SROA.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

#include <mutex>

namespace zefuse::cpu {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

const char* cpuOf(IsaLevel isa) { return isa == IsaLevel::x86_64_v3 ? "x86-64-v3" : "x86-64-v4"; }
const char* featuresOf(IsaLevel isa) {
  switch (isa) {
  case IsaLevel::x86_64_v3:
  case IsaLevel::avx512: return "";
  case IsaLevel::avx512_bf16: return "+avx512bf16,+avx512vnni";
  case IsaLevel::amx: return "+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8";
  }
  return "";
}

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

std::unique_ptr<llvm::TargetMachine> createTargetMachine(IsaLevel isa, int opt_level) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  std::string error;
  llvm::Triple triple(kTriple);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    throw spirv::CompileError("LLVM has no x86-64 target: " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.MCOptions.AsmVerbose = false;
  auto level = opt_level == 0   ? llvm::CodeGenOptLevel::None
               : opt_level == 1 ? llvm::CodeGenOptLevel::Less
               : opt_level == 2 ? llvm::CodeGenOptLevel::Default
                                : llvm::CodeGenOptLevel::Aggressive;
  std::unique_ptr<llvm::TargetMachine> tm(target->createTargetMachine(triple, cpuOf(isa), featuresOf(isa), options,
                                                                      llvm::Reloc::PIC_, std::nullopt, level));
  if (!tm)
    throw spirv::CompileError("LLVM refuses the target machine");
  return tm;
}

void setTargetAttributes(llvm::Module& module, IsaLevel isa) {
  bool wide = isa >= IsaLevel::avx512;
  for (llvm::Function& f : module) {
    if (f.isDeclaration())
      continue;
    f.removeFnAttr("target-cpu");
    f.removeFnAttr("target-features");
    f.removeFnAttr("tune-cpu");
    f.addFnAttr("target-cpu", cpuOf(isa));
    if (*featuresOf(isa))
      f.addFnAttr("target-features", featuresOf(isa));
    // x86-64-v4 prefers 256 bits for loops; the kernels' own 16-lane vectors decide here.
    f.addFnAttr("prefer-vector-width", wide ? "512" : "256");
    f.addFnAttr("min-legal-vector-width", wide ? "512" : "256");
    f.setUWTableKind(llvm::UWTableKind::None);
    f.setDoesNotThrow();
  }
}

void prepareKernels(llvm::Module& module, llvm::TargetMachine& target) {
  llvm::PassBuilder pb(&target);
  Analyses analyses(pb);
  llvm::ModulePassManager mpm;
  mpm.addPass(llvm::GlobalDCEPass());
  // Without lifetime markers: laying out work-items may put a variable where it is no alloca any more.
  mpm.addPass(llvm::AlwaysInlinerPass(/*InsertLifetime=*/false));
  mpm.addPass(llvm::GlobalDCEPass());
  llvm::FunctionPassManager fpm;
  fpm.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
  fpm.addPass(llvm::EarlyCSEPass());
  fpm.addPass(llvm::SimplifyCFGPass());
  mpm.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(fpm)));
  mpm.run(module, analyses.module);
}

void optimize(llvm::Module& module, llvm::TargetMachine& target, int opt_level, bool many_kernels) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = opt_level > 1 && !many_kernels;
  tuning.SLPVectorization = opt_level > 1 && !many_kernels;
  tuning.LoopUnrolling = opt_level > 1 && !many_kernels;
  llvm::PassBuilder pb(&target, tuning);
  Analyses analyses(pb);
  auto level = opt_level == 0   ? llvm::OptimizationLevel::O0
               : opt_level == 1 ? llvm::OptimizationLevel::O1
               : opt_level == 2 ? llvm::OptimizationLevel::O2
                                : llvm::OptimizationLevel::O3;
  auto mpm =
      level == llvm::OptimizationLevel::O0 ? pb.buildO0DefaultPipeline(level) : pb.buildPerModuleDefaultPipeline(level);
  mpm.run(module, analyses.module);
}

std::vector<char> emitObject(llvm::Module& module, llvm::TargetMachine& target) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager pm;
  if (target.addPassesToEmitFile(pm, out, nullptr, llvm::CodeGenFileType::ObjectFile, true))
    throw spirv::CompileError("LLVM cannot emit an object for this target");
  pm.run(module);
  return std::vector<char>(bytes.begin(), bytes.end());
}

}  // namespace zefuse::cpu
