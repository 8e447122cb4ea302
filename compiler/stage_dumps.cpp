#include "compiler/stage_dumps.h"

#include "compiler/fuse/pipeline.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace zefuse {

static Operation* moduleOf(Operation* op) {
  auto module = op->getParentOfType<ModuleOp>();
  return module ? module.getOperation() : op;
}

static std::string reproducerOf(StringRef stage) { return (stage + ".reproducer.mlir").str(); }

void StageDumps::write(const Dump& dump, StringRef stage, Operation* op) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  moduleOf(op)->print(stream, OpPrintingFlags().enableDebugInfo(true, true).useLocalScope());
  dump.write((stage + ".mlir").str(), text);
}

void StageDumps::runBeforePass(Pass* pass, Operation* op) {
  const StringRef stage = stageOf(pass->getArgument());
  if (stage.empty())
    return;
  std::string pipeline, text;
  llvm::raw_string_ostream names(pipeline), stream(text);
  names << "builtin.module(" << op->getName() << "(";
  pass->printAsTextualPipeline(names);
  names << "))";
  Operation* module = moduleOf(op);
  AsmState state(module, OpPrintingFlags().enableDebugInfo(true, false));
  state.attachResourcePrinter("mlir_reproducer", [&](Operation*, AsmResourceBuilder& builder) {
    builder.buildString("pipeline", pipeline);
    builder.buildBool("disable_threading", true);
    builder.buildBool("verify_each", true);
  });
  module->print(stream, state);
  dump_.write(reproducerOf(stage), text);
}

void StageDumps::runAfterPass(Pass* pass, Operation* op) {
  const StringRef stage = stageOf(pass->getArgument());
  if (stage.empty())
    return;
  write(dump_, stage, op);
  dump_.remove(reproducerOf(stage));
}

}  // namespace zefuse
