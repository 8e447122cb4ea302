// A package whose plans stand in for compiling: torch.compile(..., options={"package": "model.zefuse"}).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "compiler/options.h"
#include "runtime/executor/executable.h"
#include "runtime/package/manifest.h"

namespace zefuse {

struct GraphIdentity;  // compiler/import/graph_identity.h

namespace core {

// What the manifest keeps of a graph and the options that change code.
package::GraphKey graphKey(const GraphIdentity& identity, const Options& options);

// Immutable; thread-safe.
class ZEFUSE_API AttachedPackage {
public:
  // Opened once as long as the file is the same one. The weights are not read: a compiled model brings its own.
  static Result<std::shared_ptr<const AttachedPackage>> open(const std::string& path);

  struct Match {
    std::string section;           // of the plan; empty: none
    std::vector<int64_t> sources;  // for each input of the plan: the graph's input, -1 where nobody reads it
    std::string reason;            // without a plan: how the nearest one differs
  };
  Match find(const package::GraphKey& graph) const;

  // The plan with its native code. With `compile` false, code that the package has none of is an error.
  Result<std::unique_ptr<Executable>> create(const Match& match, ExecutableOptions options, bool compile) const;

  const std::string& name() const { return reader_->name(); }

private:
  std::shared_ptr<package::Reader> reader_;
  package::Manifest manifest_;
};

}  // namespace core
}  // namespace zefuse
