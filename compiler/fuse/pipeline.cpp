#include "compiler/fuse/pipeline.h"

#include "common/toolchain/target_description.h"
#include "compiler/fuse/passes.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

namespace zefuse {

void buildFusePipeline(OpPassManager& passes, const FuseOptions& options) {
  // A name that is none fails in zefuse-legalize.
  const TargetDescription target = TargetDescription::named(options.target).value_or(TargetDescription::cpu());
  OpPassManager& graph = passes.nest<func::FuncOp>();
  graph.addPass(createLegalizeForTarget({.target = options.target}));
  if (!target.product_library.empty()) {
    graph.addPass(createPatchProducts({.target = options.target, .library = options.library}));
    graph.addPass(createPadProducts({.target = options.target, .library = options.library}));
  }
  if (target.supports.products)
    graph.addPass(createSplitProducts(
        {.target = options.target, .library = options.library, .convolutions = options.convolutions}));
  if (options.strict)
    graph.addPass(createRefuseFallbacks());
  graph.addPass(createPrepareGraph());
  graph.addPass(createChooseKernelProducts(
      {.target = options.target, .library = options.library, .convolutions = options.convolutions}));
  if (!target.product_library.empty())
    graph.addPass(createFoldBatchNorms());
  graph.addPass(createFuseLibraryEpilogues());
  if (options.fuse)
    graph.addPass(createSplitReductions({.target = options.target}));
  graph.addPass(createRepeatCheapProducers());
  if (options.fuse)
    graph.addPass(createRecomputeForReductions());
  graph.addPass(createOutlineKernels({.merge = options.fuse}));
  graph.addPass(createAssignLayouts({.target = options.target}));
  graph.addPass(createDivideRefusedKernels());
  if (options.fuse && target.supports.batches)
    graph.addPass(createBatchKernels({.target = options.target}));
  if (target.supports.in_place)
    graph.addPass(createWriteInPlace({.target = options.target}));
  if (options.fuse)
    graph.addPass(createJoinSideBySide({.target = options.target}));
}

void registerFusePasses() {
  registerFuseGraphPasses();
  PassPipelineRegistration<FuseOptions>("zefuse-fuse", "stage 1 to stage 2, as the compiler does it",
                                        buildFusePipeline);
}

StringRef stageOf(StringRef pass_argument) {
  static constexpr std::pair<StringLiteral, StringLiteral> stages[] = {
      {"zefuse-legalize", "2_legalized"},
      {"zefuse-patch-products", "2_patch_products"},
      {"zefuse-pad-products", "2_pad_products"},
      {"zefuse-split-products", "2_split_products"},
      {"zefuse-prepare", "2a_prepared"},
      {"zefuse-choose-kernel-products", "2a_products"},
      {"zefuse-fold-batch-norms", "2a_folded"},
      {"zefuse-fuse-library-epilogues", "2b_epilogues"},
      {"zefuse-split-reductions", "2c_split"},
      {"zefuse-repeat-cheap-producers", "2c_repeated"},
      {"zefuse-recompute-for-reductions", "2c_recomputed"},
      {"zefuse-outline-kernels", "2c_kernels"},
      {"zefuse-assign-layouts", "2d_layouts"},
      {"zefuse-divide-refused", "2d_divided"},
      {"zefuse-batch-kernels", "2e_batches"},
      {"zefuse-write-in-place", "2f_in_place"},
      {"zefuse-join-side-by-side", "2g_side_by_side"},
  };
  const auto* stage = llvm::find_if(stages, [&](const auto& entry) { return entry.first == pass_argument; });
  return stage == std::end(stages) ? StringRef() : StringRef(stage->second);
}

}  // namespace zefuse
