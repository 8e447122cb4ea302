// mlir-opt with zefuse's dialects and passes (--help lists them), and --emit=... to lower every zefuse.kernel of a file
// and print one stage of it.
#include "compiler/fuse/pipeline.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/lower.h"
#include "lowering/passes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace cl = llvm::cl;
using namespace mlir;

static cl::opt<std::string> emit("emit", cl::desc("print this stage of each kernel: scheduled, llvm, spirv, launch"));
static cl::opt<std::string> target_name("target", cl::init("cpu"), cl::desc("cpu, or an Intel GPU such as dg2-g11"));

static int lowerFile(StringRef file) {
  DialectRegistry registry;
  zefuse::registerDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  llvm::SourceMgr sources;
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(file);
  if (!buffer) {
    llvm::errs() << file << ": " << buffer.getError().message() << "\n";
    return 1;
  }
  sources.AddNewSourceBuffer(std::move(*buffer), llvm::SMLoc());
  SourceMgrDiagnosticHandler diagnostics(sources, &context);
  auto module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return 1;
  std::optional<zefuse::TargetDescription> target = zefuse::TargetDescription::named(target_name.getValue());
  if (!target) {
    llvm::errs() << "--target=" << target_name << ": not a known target; known are cpu";
    for (const zefuse::GpuTarget& gpu : zefuse::gpuTargets())
      llvm::errs() << ", " << StringRef(gpu.product);
    llvm::errs() << "\n";
    return 1;
  }
  StringRef wanted = emit == "scheduled" ? "scheduled.mlir" : emit == "llvm" ? "kernel.ll" : "kernel.spvasm";
  int failures = 0;
  auto dump = [&](std::string_view stage, std::string_view text) {
    if (emit != "launch" && StringRef(stage) == wanted)
      llvm::outs() << text << "\n";
  };
  module->walk([&](Operation* op) {
    FailureOr<zefuse::LoweredKernel> lowered;
    if (auto kernel = dyn_cast<zefuse::KernelOp>(op)) {
      lowered = zefuse::lowerKernel(kernel, *target, dump);
    } else {
      return;
    }
    if (failed(lowered)) {
      ++failures;
      return;
    }
    if (emit == "launch") {
      llvm::outs() << lowered->name << ": extent " << lowered->extent << ", grain " << lowered->grain << ", group "
                   << lowered->group_size[0] << (lowered->chunked ? ", chunked" : ", exact")
                   << ", schedule: " << zefuse::describe(lowered->schedule) << "\n";
      if (lowered->scratch_bytes)
        llvm::outs() << "  scratch " << lowered->scratch_bytes << " bytes per group\n";
      for (unsigned symbol : lowered->symbols)
        llvm::outs() << "  symbol s" << symbol << "\n";
      for (const auto& check : lowered->checks)
        llvm::outs() << "  check " << check.error << ": " << check.message << "\n";
    }
  });
  return failures == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  DialectRegistry registry;
  zefuse::registerDialects(registry);
  zefuse::registerFusePasses();
  zefuse::registerLoweringPasses();
  registerTransformsPasses();  // cse, canonicalize and their like
  // A graph's context has one thread (compiler/fuse/analysed_groups.h); here functions of a file would have one each.
  SmallVector<char*> arguments(argv, argv + argc);
  std::string one_thread = "--mlir-disable-threading";
  arguments.insert(arguments.begin() + 1, one_thread.data());
  argc = int(arguments.size());
  argv = arguments.data();
  auto [input, output] = registerAndParseCLIOptions(argc, argv, "zefuse's passes and kernel lowering", registry);
  if (!emit.empty())
    return lowerFile(input);
  return failed(MlirOptMain(argc, argv, input, output, registry)) ? 1 : 0;
}
