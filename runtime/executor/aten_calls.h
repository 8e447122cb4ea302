// Steps that call ATen: the bridge's loading, the operators of a program, and per-frame argument
// lists.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "runtime/executor/aten_bridge.h"
#include "runtime/executor/binding.h"

namespace zefuse {

// Installs a bridge instead of libzefuse_aten.so: for tests and for hosts that link the bridge in.
// Before the first plan with an ATen step; nullptr uninstalls.
void setAtenBridge(AtenBridge* bridge);

// Where libzefuse_aten.so is, for a host that has several, one for each torch; otherwise it is looked for beside this
// code. Before the first plan with an ATen step.
ZEFUSE_API void setAtenBridgeFolder(std::string folder);

}  // namespace zefuse

namespace zefuse::executor {

// The installed bridge, else libzefuse_aten.so from beside this code (then from the search path).
// Thread-safe.
Result<AtenBridge*> atenBridge();

// The operators of a program, resolved once. Immutable.
class AtenOps {
public:
  static Result<AtenOps> resolve(const plan::Program& program);
  AtenBridge* bridge() const { return bridge_; }
  const AtenOp& op(size_t step) const { return *ops_[step]; }

  // A second handle of the same tensor, and a new tensor: for results that need them.
  Result<AtenResult> alias(const TensorRef& tensor) const;
  Result<AtenResult> emptyStrided(const BoundValue& value) const;

private:
  Result<AtenResult> one(const AtenOp& op, std::span<const AtenArgument> arguments) const;
  AtenBridge* bridge_ = nullptr;
  std::vector<std::unique_ptr<AtenOp>> ops_;  // by step; null for other steps
  std::unique_ptr<AtenOp> alias_, empty_strided_;
};

// The arguments of one step, built for a binding and reused while it stays: only addresses and
// owners change per call.
class AtenArguments {
public:
  void build(const plan::AtenCallT& call, const Binding& binding);
  bool built() const { return built_; }
  void clear() { built_ = false; }  // the binding goes away

  template <typename Fill> std::span<const AtenArgument> fill(const Fill& tensor) {
    for (const auto& [argument, value] : tensors_)
      tensor(value, argument->tensor);
    return arguments_;
  }

private:
  AtenArgument convert(const plan::ArgumentT& argument, const Binding& binding) const;
  void collect(const plan::ArgumentT& from, AtenArgument& to);

  bool built_ = false;
  std::vector<AtenArgument> arguments_;
  std::vector<std::pair<AtenArgument*, uint32_t>> tensors_;  // into arguments_, which does not change after build
};

}  // namespace zefuse::executor
