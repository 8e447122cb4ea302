#include "compiler/import/library_hints.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;

namespace zefuse {
namespace {

// The names are those of zefuse.matmul's post-ops.
std::optional<StringRef> activationOf(const Op& op) {
  StringRef target = op.node.schema->target;
  if (target == "aten.gelu.default")
    return op.text("approximate") == "tanh" ? "gelu_tanh" : "gelu_erf";
  if (target == "aten.relu.default")
    return "relu";
  if (target == "aten.relu6.default" ||
      (target == "aten.hardtanh.default" && op.real("min_val") == 0 && op.real("max_val") == 6))
    return "relu6";
  if (target == "aten.hardswish.default")
    return "hardswish";
  if (target == "aten.silu.default")
    return "silu";
  if (target == "aten.tanh.default")
    return "tanh";
  if (target == "aten.sigmoid.default")
    return "sigmoid";
  return std::nullopt;
}

}  // namespace

void markActivation(const Op& op, const Values& results) {
  auto loop = results.size() == 1 ? results[0].getDefiningOp<linalg::GenericOp>() : nullptr;
  if (!loop || loop.getNumDpsInputs() != 1)
    return;
  if (auto name = activationOf(op))
    loop->setDiscardableAttr("zefuse.activation", StringAttr::get(loop.getContext(), *name));
}

}  // namespace zefuse
