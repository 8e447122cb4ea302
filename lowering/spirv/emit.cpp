#include "lowering/spirv/emit.h"

#include "lowering/spirv/canonical.h"
#include "lowering/spirv/emitter_client.h"
#include "lowering/spirv/math_builtins.h"
#include "lowering/spirv/workarounds.h"
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
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

using namespace mlir;

namespace zefuse {

// Infinity as an integer is some number to SPIR-V, and poison to LLVM, which makes all that is computed of it poison:
// NaN less such a number would be no NaN.
static void freezeIntegersOfFloats(ModuleOp module) {
  module.walk([](Operation* conversion) {
    if (!isa<LLVM::FPToSIOp, LLVM::FPToUIOp>(conversion))
      return;
    OpBuilder builder(conversion->getContext());
    builder.setInsertionPointAfter(conversion);
    auto frozen = LLVM::FreezeOp::create(builder, conversion->getLoc(), conversion->getResult(0));
    conversion->getResult(0).replaceAllUsesExcept(frozen, frozen);
  });
}

LogicalResult convertToLLVMDialect(ModuleOp module, unsigned index_bits) {
  MLIRContext* context = module.getContext();
  context->loadDialect<cf::ControlFlowDialect, LLVM::LLVMDialect>();
  foldAnglesOfZeros(module);
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
  options.overrideIndexBitwidth(index_bits);
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
    bool kernel = !function.isExternal();
    function.setCConv(kernel ? LLVM::CConv::SPIR_KERNEL : LLVM::CConv::SPIR_FUNC);
    function.setLinkage(LLVM::Linkage::External);
    function.setNoUnwind(true);
    // Work-items meet in them: no pass may move one into or out of a branch.
    if (function.getName() == "_Z7barrierj" || function.getName().contains("sub_group_"))
      function.setConvergent(true);
    if (auto size = function->getAttrOfType<IntegerAttr>("zefuse.group_size")) {
      function.setReqdWorkGroupSizeAttr(DenseI32ArrayAttr::get(context, {int32_t(size.getInt()), 1, 1}));
      function->removeAttr("zefuse.group_size");
    }
    if (auto size = function->getAttrOfType<IntegerAttr>("zefuse.subgroup_size")) {
      function.setIntelReqdSubGroupSize(int32_t(size.getInt()));
      function->removeAttr("zefuse.subgroup_size");
    }
  }
  module.walk([](LLVM::CallOp call) { call.setCConv(LLVM::CConv::SPIR_FUNC); });
  freezeIntegersOfFloats(module);
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
    if (!function.isDeclaration()) {
      passes.run(function, functions);
      rewriteForBackEnd(function);
      // The back end gives the name of a block that a pass has named another id than its label.
      for (llvm::BasicBlock& block : function)
        block.setName("");
    }
  return result;
}

FailureOr<std::vector<uint32_t>> emitSpirv(const llvm::Module& module, std::string& error) {
  llvm::SmallVector<char, 0> bitcode;
  llvm::raw_svector_ostream stream(bitcode);
  llvm::WriteBitcodeToFile(module, stream);
  Result<std::vector<uint32_t>> words = runSpirvBackEnd({bitcode.data(), bitcode.size()});
  if (!words.ok()) {
    error = words.status().message();
    return failure();
  }
  if (auto invalid = canonicaliseIds(*words)) {
    error = "the SPIR-V back end wrote a module that does not parse: " + *invalid;
    return failure();
  }
  return std::move(*words);
}

}  // namespace zefuse
