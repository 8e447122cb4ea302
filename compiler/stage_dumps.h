// Dumps of a pass manager's stages, and what repeats one that failed.
#pragma once

#include "compiler/dump.h"
#include "mlir/Pass/PassInstrumentation.h"

namespace zefuse {

// Writes the module after each pass that ends a stage ("2d_layouts.mlir"). While such a pass runs, and for good where
// it fails or ends the process, "2d_layouts.reproducer.mlir" holds the module before it and the pass's name:
// zefuse-opt --run-reproducer runs it again. `dump` outlives this. Not thread-safe: for one function at a time.
class StageDumps : public mlir::PassInstrumentation {
public:
  explicit StageDumps(const Dump& dump) : dump_(dump) {}
  void runBeforePass(mlir::Pass* pass, mlir::Operation* op) override;
  void runAfterPass(mlir::Pass* pass, mlir::Operation* op) override;

  // The stage's text for people: names and source lines, which no parser reads.
  static void write(const Dump& dump, llvm::StringRef stage, mlir::Operation* op);

private:
  const Dump& dump_;
};

}  // namespace zefuse
