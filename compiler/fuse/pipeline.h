// Stage 1 to stage 2: the order of the passes, for everyone who runs them (the compile, reports, zefuse-opt, tests).
#pragma once

#include <string>

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

namespace zefuse {

// What decides the passes; all of it is text, so that a pipeline printed by one process runs in another.
struct FuseOptions : mlir::PassPipelineOptions<FuseOptions> {
  Option<std::string> target{*this, "target", llvm::cl::desc("cpu, or a GPU such as dg2-g11"), llvm::cl::init("cpu")};
  Option<bool> fuse{*this, "fuse", llvm::cl::desc("false: one kernel per operation"), llvm::cl::init(true)};
  Option<std::string> library{*this, "library",
                              llvm::cl::desc("matrix products of a GPU vendor's library: never, auto, always"),
                              llvm::cl::init("auto")};
  Option<std::string> convolutions{*this, "convolutions", llvm::cl::desc("convolutions of that vendor's: likewise"),
                                   llvm::cl::init("auto")};
  Option<bool> strict{*this, "strict", llvm::cl::desc("an operator that would run in ATen is an error")};
};

// `passes` takes modules; the passes run on its functions.
void buildFusePipeline(mlir::OpPassManager& passes, const FuseOptions& options);

// Makes the passes and the pipeline ("zefuse-fuse") known by name. Once per process.
void registerFusePasses();

// The stage that the pass ends, as files of a dump are named ("2d_layouts"); empty: none.
llvm::StringRef stageOf(llvm::StringRef pass_argument);

}  // namespace zefuse
