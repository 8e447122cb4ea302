#include "lowering/spirv/emit.h"

#include <cstring>
#include <mutex>

#include "lowering/spirv/canonical.h"
#include "lowering/spirv/math_builtins.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/Cloning.h"

extern "C" {
void LLVMInitializeSPIRVTarget();
void LLVMInitializeSPIRVTargetInfo();
void LLVMInitializeSPIRVTargetMC();
void LLVMInitializeSPIRVAsmPrinter();
}

using namespace mlir;

namespace zefuse {

LogicalResult convertToLLVMDialect(ModuleOp module, StringRef entry) {
  MLIRContext* context = module.getContext();
  context->loadDialect<cf::ControlFlowDialect, LLVM::LLVMDialect>();
  {
    RewritePatternSet patterns(context);
    populateSCFToControlFlowConversionPatterns(patterns);
    ConversionTarget target(*context);
    target.addIllegalDialect<scf::SCFDialect>();
    target.markUnknownOpDynamicallyLegal([](Operation*) { return true; });
    if (failed(applyPartialConversion(module, target, std::move(patterns))))
      return failure();
  }
  LowerToLLVMOptions options(context);
  options.useBarePtrCallConv = true;
  LLVMTypeConverter converter(context, options);
  RewritePatternSet patterns(context);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  populateVectorToLLVMConversionPatterns(converter, patterns);
  populateMathBuiltinPatterns(converter, patterns);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp>();
  if (failed(applyFullConversion(module, target, std::move(patterns))))
    return failure();
  for (auto function : module.getOps<LLVM::LLVMFuncOp>()) {
    bool kernel = function.getName() == entry;
    function.setCConv(kernel ? LLVM::CConv::SPIR_KERNEL : LLVM::CConv::SPIR_FUNC);
    function.setLinkage(LLVM::Linkage::External);
    function.setNoUnwind(true);
    if (function.getName() == "_Z7barrierj")
      function.setConvergent(true);
    if (auto size = function->getAttrOfType<IntegerAttr>("zefuse.group_size")) {
      function.setReqdWorkGroupSizeAttr(DenseI32ArrayAttr::get(context, {int32_t(size.getInt()), 1, 1}));
      function->removeAttr("zefuse.group_size");
    }
  }
  module.walk([](LLVM::CallOp call) { call.setCConv(LLVM::CConv::SPIR_FUNC); });
  return success();
}

std::unique_ptr<llvm::Module> translateToLLVM(ModuleOp module, llvm::LLVMContext& context) {
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  std::unique_ptr<llvm::Module> result = translateModuleToLLVMIR(module, context, "kernel");
  if (!result)
    return nullptr;
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager cgsccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(cgsccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, cgsccs, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::ADCEPass());
  for (llvm::Function& function : *result)
    if (!function.isDeclaration())
      passes.run(function, functions);
  return result;
}

namespace {

/// One run of LLVM's SPIR-V back end, which changes `module` as it goes. Ids may still be wrong (spirv/canonical.h).
FailureOr<std::vector<uint32_t>> runBackEnd(llvm::Module& module, llvm::TargetMachine& machine, std::string& error) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    error = "the SPIR-V back end cannot write an object file";
    return failure();
  }
  passes.run(module);
  if (bytes.size() % 4 != 0 || bytes.empty()) {
    error = "the SPIR-V back end wrote " + std::to_string(bytes.size()) + " bytes";
    return failure();
  }
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

}  // namespace

FailureOr<std::vector<uint32_t>> emitSpirv(llvm::Module& module, std::string& error) {
  // The back end keeps state of the module in static objects: one module at a time in this process.
  static std::mutex back_end;
  std::lock_guard lock(back_end);
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeSPIRVTargetInfo();
    LLVMInitializeSPIRVTarget();
    LLVMInitializeSPIRVTargetMC();
    LLVMInitializeSPIRVAsmPrinter();
  });
  llvm::Triple triple("spirv64v1.2-unknown-unknown");
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return failure();
  // Level None leaves out loop-strength reduction, which would turn a[i] into byte-pointer phis. (Its own switch is
  // global to the process and would reach the CPU driver's code generator too.)
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, "", "", llvm::TargetOptions(), std::nullopt, std::nullopt, llvm::CodeGenOptLevel::None));
  module.setTargetTriple(triple);
  module.setDataLayout(machine->createDataLayout());
  // A label of an earlier module may equal a new label of this one. Then the module is ambiguous, and only another run
  // helps, whose MachineFunction lies elsewhere: the block just freed is held, so that it cannot be used again.
  constexpr int attempts = 16;
  std::vector<std::unique_ptr<std::byte[]>> held;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
    FailureOr<std::vector<uint32_t>> words = runBackEnd(*copy, *machine, error);
    if (failed(words))
      return failure();
    std::optional<std::string> invalid = canonicaliseIds(*words);
    if (!invalid)
      return words;
    error = "the SPIR-V back end wrote a module that does not parse: " + *invalid;
    held.push_back(std::make_unique<std::byte[]>(sizeof(llvm::MachineFunction)));
  }
  return failure();
}

}  // namespace zefuse
