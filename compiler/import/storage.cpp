#include "compiler/import/storage.h"

#include <optional>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

using namespace mlir;

namespace zefuse {
using fx::Argument;
using fx::Node;

std::optional<unsigned> viewedBy(const Node& node) {
  static const llvm::StringRef maybe[] = {"aten.contiguous.default", "aten.reshape.default", "aten.reshape_as.default",
                                          "aten.flatten.using_ints", "aten.ravel.default"};
  if (node.kind != Node::Kind::call || node.schema->view_of < 0 || llvm::is_contained(maybe, node.schema->target) ||
      llvm::StringRef(node.schema->target).starts_with("aten.to.") ||
      node.arguments[node.schema->view_of].kind != Argument::Kind::node)
    return std::nullopt;
  return node.arguments[node.schema->view_of].node;
}

unsigned storageOf(const fx::Graph& graph, unsigned index) {
  for (;;) {
    const Node& node = graph.nodes[index];
    const std::optional<unsigned> next = node.kind == Node::Kind::getitem ? node.source : viewedBy(node);
    if (!next)
      return index;
    index = *next;
  }
}

unsigned tensorBehind(const fx::Graph& graph, unsigned index) {
  for (;;) {
    const Node& node = graph.nodes[index];
    const bool item = node.kind == Node::Kind::getitem;
    const std::optional<unsigned> next = viewedBy(item ? graph.nodes[node.source] : node);
    if (!next || graph.nodes[*next].meta.tensor.dtype != node.meta.tensor.dtype)
      return index;
    index = *next;
  }
}

bool hasAsStrided(const fx::Graph& graph, unsigned index) {
  for (;;) {
    const Node& node = graph.nodes[index];
    if (node.kind == Node::Kind::call && node.schema->target == "aten.as_strided.default")
      return true;
    const std::optional<unsigned> next = node.kind == Node::Kind::getitem ? node.source : viewedBy(node);
    if (!next)
      return false;
    index = *next;
  }
}

AffineExpr eagerOffset(const fx::Graph& graph, unsigned index) {
  const unsigned behind = tensorBehind(graph, index);
  const Node& node = graph.nodes[behind];
  const AffineExpr offset = graph.nodes[index].meta.tensor.offset;
  if (node.kind != Node::Kind::call || node.schema->target != "aten.as_strided_scatter.default")
    return offset;
  return offset - AffineExpr(node.meta.tensor.offset) + eagerOffset(graph, node.arguments[0].node);
}

}  // namespace zefuse
