#include "compiler/import/implementations.h"

#include "compiler/import/storage.h"
#include "lowering/dialect/Zefuse.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;

namespace zefuse {
namespace {
using fx::Argument;
using fx::Meta;
using fx::Node;

constexpr std::pair<StringLiteral, StringLiteral> names[] = {
    {"modelled", "the cost model's choice"},
    {"eager", "eager's operator"},
    {"kernel", "a kernel of its own"},
    {"blocked", "the library's blocked product"},
    {"gemm", "the library's gemm"},
    {"inner_product", "the library's inner product"},
    {"direct", "the library's direct convolution"},
    {"by_product", "the library's convolution by a product"},
    {"padded", "the library's direct convolution of a padded copy"},
    {"split", "the product of numbers in three parts of bf16"},
    {"blas", "the product of torch's MKL"},
    {"panels", "the product of a weight packed in panels"},
    {"winograd", "Winograd's convolution"},
};

class KeyText {
public:
  KeyText(const fx::Graph& graph, ArrayRef<bool> parameters) : graph_(graph), parameters_(parameters), out_(text_) {}

  std::string of(const Node& node) {
    out_ << node.schema->target;
    for (const Argument& argument : node.arguments)
      add(argument);
    out_ << " ->";
    add(node.meta);
    for (bool used : node.used)
      out_ << used;
    return text_;
  }

private:
  void add(const fx::Sizes& sizes) {
    for (const fx::SizeExpr& size : sizes)
      out_ << AffineExpr(size) << ",";
  }

  void add(const Meta& meta) {
    out_ << " " << int(meta.kind);
    if (meta.kind == Meta::Kind::tensor) {
      out_ << ":" << meta.tensor.dtype << "[";
      add(meta.tensor.sizes);
      out_ << "][";
      add(meta.tensor.strides);
      out_ << "]";
    }
    for (const Meta& item : meta.items)
      add(item);
  }

  void add(const Argument& argument) {
    out_ << " " << int(argument.kind);
    switch (argument.kind) {
    case Argument::Kind::node:
      if (graph_.nodes[argument.node].kind == Node::Kind::scalar)
        add(graph_.nodes[argument.node].literal);
      out_ << (parameters_[storageOf(graph_, argument.node)] ? "p" : "");
      return add(graph_.nodes[argument.node].meta);
    case Argument::Kind::size:
    case Argument::Kind::formula: out_ << AffineExpr(argument.size); return;
    case Argument::Kind::real: out_ << llvm::format("%.17g", argument.real); return;
    case Argument::Kind::list:
      for (const Argument& item : argument.items)
        add(item);
      return;
    default: out_ << argument.integer << argument.text;
    }
  }

  const fx::Graph& graph_;
  ArrayRef<bool> parameters_;
  std::string text_;
  llvm::raw_string_ostream out_;
};

/// The products and convolutions among operations, and in their regions.
SmallVector<Operation*> callsAmong(ArrayRef<Operation*> operations) {
  SmallVector<Operation*> calls;
  for (Operation* op : operations)
    op->walk([&](Operation* inner) {
      if (isa<MatmulOp, ConvolutionOp>(inner))
        calls.push_back(inner);
    });
  return calls;
}

std::string microseconds(double number) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.3g", number);
  return text;
}

}  // namespace

StringRef nameOf(Implementation implementation) { return names[size_t(implementation)].first; }

std::string wordsFor(Implementation implementation) { return names[size_t(implementation)].second.str(); }

std::string operatorKey(const fx::Graph& graph, const fx::Node& node, ArrayRef<bool> parameters) {
  llvm::SHA256 hash;
  hash.update(KeyText(graph, parameters).of(node));
  const auto digest = hash.final();
  return "operator " + llvm::toHex(ArrayRef<uint8_t>(digest.data(), 16), /*LowerCase=*/true);
}

bool mayRunInEager(const fx::Node& node) {
  return StringRef(node.schema->target).starts_with("aten.") && !node.schema->random && node.schema->view_of < 0 &&
         !node.schema->no_results && !node.ordered;
}

std::optional<Implementation> implementationOf(const TunedKernel& row) {
  const auto chosen = row.choice.find(implementation_decision);
  if (chosen == row.choice.end() || chosen->second <= 0 || chosen->second >= int64_t(std::size(names)))
    return std::nullopt;
  return Implementation(chosen->second);
}

std::string whyMeasured(Implementation implementation, const TunedKernel& row) {
  std::string text = "tuned: " + wordsFor(implementation) + " instead of " + wordsFor(Implementation::modelled);
  if (row.before_us > 0)
    text += ", " + microseconds(row.before_us) + " -> " + microseconds(row.after_us) + " µs";
  return text;
}

void markImplementation(ArrayRef<Operation*> operations, Implementation implementation, const TunedKernel& row) {
  for (Operation* call : callsAmong(operations)) {
    call->setAttr(implementation_attribute, StringAttr::get(call->getContext(), nameOf(implementation)));
    call->setAttr("zefuse.note", StringAttr::get(call->getContext(), whyMeasured(implementation, row)));
  }
}

std::vector<Implementation> implementationsFor(const fx::Node& node, ArrayRef<Operation*> operations) {
  std::vector<Implementation> found;
  if (mayRunInEager(node))
    found.push_back(Implementation::eager);
  bool products = false, convolutions = false;
  for (Operation* call : callsAmong(operations))
    (isa<MatmulOp>(call) ? products : convolutions) = true;
  if (products || convolutions)
    found.push_back(Implementation::kernel);
  if (products)
    found.insert(found.end(), {Implementation::blocked, Implementation::gemm, Implementation::inner_product,
                               Implementation::split, Implementation::blas, Implementation::panels});
  if (convolutions)
    found.insert(found.end(), {Implementation::direct, Implementation::by_product, Implementation::padded,
                               Implementation::winograd});
  return found;
}

}  // namespace zefuse
