// A graph on its way through the compiler, for those who see no MLIR.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/toolchain/target_description.h"
#include "compiler/compilation.h"
#include "compiler/import/fx_graph.h"
#include "compiler/import/import_options.h"
#include "compiler/options.h"
#include "lowering/spill_survey.h"
#include "runtime/cache/key.h"
#include "runtime/package/manifest.h"

namespace zefuse::core {

// Owns an MLIR context, which keeps every type and attribute ever made: one per compilation. One thread at a time.
class ZEFUSE_API ImportedGraph {
public:
  ImportedGraph();  // no graph yet
  ~ImportedGraph();
  ImportedGraph(ImportedGraph&&) noexcept;

  mlir::MLIRContext& context();  // for the sizes of the graph to import
  // Once, before all that follows. Throws ImportError (compiler/import/importer.h).
  void import(const fx::Graph& graph, const ImportOptions& options);

  std::string text() const;
  // By which a package finds the plan of such a graph again.
  package::GraphKey packageKey(const Options& options) const;
  CacheKey planKey(const Options& options) const;

  // These consume the graph; see compiler/pipeline.h.
  Compilation compile(const Options& options, std::vector<StageTime> earlier, const SpillSurvey& spills,
                      const CancelCheck& cancelled);
  std::string whyNotLowered(const TargetDescription& target);
  // Frees the graph and its context, after which nothing of it may be called.
  void clear();

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The ATen operators that have a lowering, sorted: "aten.add.Tensor".
ZEFUSE_API std::vector<std::string> loweredOperators();

}  // namespace zefuse::core
