#include "lowering/spirv/emit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
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
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"

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

using BackEnd = llvm::function_ref<FailureOr<std::vector<uint32_t>>(std::string&)>;

/// Runs the back end in a child process. It keeps tables of earlier modules in static objects, keyed by addresses that
/// are used again: in a long-lived process that gave ambiguous modules and crashes. The parent never runs it, so each
/// child starts with empty tables, and what ends the child becomes a message. Fails after a deadline: a child of a
/// process with threads can inherit a lock that nobody will release.
FailureOr<std::vector<uint32_t>> inChild(BackEnd back_end, std::string& error) {
  constexpr int deadline_ms = 30'000;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    error = std::string("no pipe for the SPIR-V back end: ") + std::strerror(errno);
    return failure();
  }
  pid_t child = fork();
  if (child == 0) {
    std::string message;
    FailureOr<std::vector<uint32_t>> words = back_end(message);
    char kind = succeeded(words) ? 'w' : 'e';
    llvm::StringRef body = succeeded(words)
                               ? llvm::StringRef(reinterpret_cast<const char*>(words->data()), words->size() * 4)
                               : llvm::StringRef(message);
    bool written = write(ends[1], &kind, 1) == 1;
    while (written && !body.empty()) {
      ssize_t count = write(ends[1], body.data(), body.size());
      if (count < 0 && errno == EINTR)
        continue;
      written = count > 0;
      body = body.drop_front(written ? static_cast<size_t>(count) : 0);
    }
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    error = std::string("no process for the SPIR-V back end: ") + std::strerror(errno);
    return failure();
  }
  std::string answer;
  bool late = false;
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms);
  for (char buffer[1 << 16];;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd wait{ends[0], POLLIN, 0};
    int ready = left > 0 ? poll(&wait, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready <= 0) {
      late = true;
      kill(child, SIGKILL);
      break;
    }
    ssize_t count = read(ends[0], buffer, sizeof buffer);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      break;
    answer.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (late)
    error = "the SPIR-V back end did not end within 30 s";
  else if (WIFSIGNALED(status))
    error = std::string("the SPIR-V back end crashed: ") + strsignal(WTERMSIG(status));
  else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || answer.empty())
    error = "the SPIR-V back end ended its process: it met something that it cannot legalise";
  else if (answer[0] == 'e')
    error = answer.substr(1);
  else if ((answer.size() - 1) % 4 != 0)
    error = "the SPIR-V back end's answer is cut off";
  else {
    std::vector<uint32_t> words((answer.size() - 1) / 4);
    std::memcpy(words.data(), answer.data() + 1, answer.size() - 1);
    return words;
  }
  return failure();
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
  FailureOr<std::vector<uint32_t>> words =
      inChild([&](std::string& message) { return runBackEnd(module, *machine, message); }, error);
  if (failed(words))
    return failure();
  if (auto invalid = canonicaliseIds(*words)) {
    error = "the SPIR-V back end wrote a module that does not parse: " + *invalid;
    return failure();
  }
  return words;
}

}  // namespace zefuse
