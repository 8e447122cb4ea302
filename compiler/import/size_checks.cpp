#include "compiler/import/size_checks.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace zefuse {

void SizeChecks::add(const fx::Node& node, const Op::Requirement& required) {
  if (!known_[required.error].insert(required.least).second)
    return;
  auto map = [&](ArrayRef<AffineExpr> results) {
    return AffineMapAttr::get(AffineMap::get(0, num_symbols_, results, b_.getContext()));
  };
  const std::string source = node.file.empty() ? "" : node.file + ":" + std::to_string(node.line);
  checks_.push_back(b_.getDictionaryAttr(
      {b_.getNamedAttr("least", map(required.least)), b_.getNamedAttr("error", b_.getStringAttr(required.error)),
       b_.getNamedAttr("message", b_.getStringAttr(required.message)),
       b_.getNamedAttr("numbers", map(required.numbers)), b_.getNamedAttr("source", b_.getStringAttr(source))}));
}

void SizeChecks::add(const Op& op) {
  for (const Op::Requirement& required : op.requirements())
    add(op.node, required);
}

bool SizeChecks::isTracings(const fx::Node& node) {
  const StringRef target = node.schema->target;
  if (target == "aten._assert_scalar.default") {
    if (node.arguments[0].kind == fx::Argument::Kind::size)
      add(node, {node.arguments[0].size, "runtime_error", node.arguments[1].text, {}});
    return true;
  }
  return target == "aten._assert_tensor_metadata.default" || target == "aten.sym_constrain_range.default" ||
         target == "aten.sym_constrain_range_for_size.default";
}

void SizeChecks::attachTo(Operation* function) {
  if (!checks_.empty())
    function->setAttr("zefuse.size_checks", b_.getArrayAttr(checks_));
}

}  // namespace zefuse
