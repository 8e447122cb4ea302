#include "core/imported_graph.h"

#include "compiler/import/graph_identity.h"
#include "compiler/import/importer.h"
#include "compiler/import/op_table.h"
#include "compiler/pipeline.h"
#include "core/attached_package.h"
#include "core/plan_key.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/raw_ostream.h"

namespace zefuse::core {
namespace {

mlir::DialectRegistry dialects() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  return registry;
}

}  // namespace

struct ImportedGraph::Impl {
  mlir::MLIRContext context{dialects(), mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

ImportedGraph::ImportedGraph() : impl_(std::make_unique<Impl>()) { impl_->context.loadAllAvailableDialects(); }
ImportedGraph::~ImportedGraph() = default;
ImportedGraph::ImportedGraph(ImportedGraph&&) noexcept = default;

mlir::MLIRContext& ImportedGraph::context() { return impl_->context; }

void ImportedGraph::import(const fx::Graph& graph, const ImportOptions& options) {
  impl_->module = importGraph(impl_->context, graph, options);
}

std::string ImportedGraph::text() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  impl_->module->print(stream);
  return text;
}

package::GraphKey ImportedGraph::packageKey(const Options& options) const {
  return graphKey(identify(*impl_->module), options);
}

CacheKey ImportedGraph::planKey(const Options& options) const { return core::planKey(*impl_->module, options); }

Compilation ImportedGraph::compile(const Options& options, std::vector<StageTime> earlier, const SpillSurvey& spills,
                                   const CancelCheck& cancelled) {
  return compileModule(*impl_->module, options, std::move(earlier), spills, cancelled);
}

std::string ImportedGraph::whyNotLowered(const TargetDescription& target) {
  return zefuse::whyNotLowered(*impl_->module, target);
}

void ImportedGraph::clear() { impl_.reset(); }

std::vector<std::string> loweredOperators() { return opTable().targets(); }

}  // namespace zefuse::core
