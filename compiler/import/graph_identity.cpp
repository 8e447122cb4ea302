#include "compiler/import/graph_identity.h"

#include <map>

#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace zefuse {
namespace {

// Operations and arguments in the order in which the results need them, operations with effects first and in their own
// order. What nobody needs is not in it.
class Order {
public:
  explicit Order(Block& block) : block_(block) {
    for (Operation& op : block)
      if (&op != block.getTerminator() && !isMemoryEffectFree(&op))
        visit(&op);
    visit(block.getTerminator());
  }
  std::vector<Operation*> operations;
  std::vector<BlockArgument> arguments;

private:
  // What stands before `op`: its operands, and what its regions read from outside.
  std::vector<Value> needs(Operation* op) const {
    std::vector<Value> values;
    op->walk<WalkOrder::PreOrder>([&](Operation* inner) {
      for (Value value : inner->getOperands())
        if (value.getParentBlock() == &block_)
          values.push_back(value);
    });
    return values;
  }

  void visit(Operation* root) {
    struct Entry {
      Operation* op;
      std::vector<Value> values;
      size_t next = 0;
    };
    std::vector<Entry> stack;
    if (seen_.insert(root).second)
      stack.push_back({root, needs(root)});
    while (!stack.empty()) {
      Entry& top = stack.back();
      if (top.next == top.values.size()) {
        operations.push_back(top.op);
        stack.pop_back();
        continue;
      }
      const Value value = top.values[top.next++];
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        if (seen_arguments_.insert(argument).second)
          arguments.push_back(argument);
      } else if (Operation* op = value.getDefiningOp(); seen_.insert(op).second) {
        stack.push_back({op, needs(op)});  // `top` is no longer valid
      }
    }
  }

  Block& block_;
  llvm::DenseSet<Operation*> seen_;
  llvm::DenseSet<Value> seen_arguments_;
};

// Symbols in the order in which inputs, then operations mention them.
class Symbols {
public:
  explicit Symbols(unsigned count) : number_(count, -1) {}

  void note(AffineMap map) {
    map.walkExprs([&](AffineExpr expr) {
      if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
        if (int64_t& number = number_[symbol.getPosition()]; number < 0) {
          number = static_cast<int64_t>(old_.size());
          old_.push_back(symbol.getPosition());
        }
    });
  }
  AffineMap renamed(AffineMap map) const {
    SmallVector<AffineExpr> by;
    for (int64_t number : number_)
      by.push_back(number < 0 ? getAffineConstantExpr(0, map.getContext())
                              : getAffineSymbolExpr(static_cast<unsigned>(number), map.getContext()));
    return map.replaceDimsAndSymbols({}, by, map.getNumDims(), static_cast<unsigned>(old_.size()));
  }
  bool knows(AffineMap map) const {
    bool known = true;
    map.walkExprs([&](AffineExpr expr) {
      if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
        known &= number_[symbol.getPosition()] >= 0;
    });
    return known;
  }
  bool has(AffineMap map) const { return map.getNumSymbols() == number_.size() && !number_.empty(); }
  const std::vector<unsigned>& old() const { return old_; }  // by new number

private:
  std::vector<int64_t> number_;  // by old number; -1: not mentioned
  std::vector<unsigned> old_;
};

std::string textOf(ArrayRef<AffineExpr> sizes) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << "[";
  llvm::interleaveComma(sizes, stream);
  stream << "]";
  return text;
}

std::string textOf(RankedTensorType type, AffineMap strides) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << type.getElementType() << textOf(shapeOf(type));
  if (ArrayRef(contiguousStrides(shapeOf(type), type.getContext())) != strides.getResults())
    stream << " with strides " << textOf(strides.getResults());
  return text;
}

std::string countsOf(ArrayRef<Operation*> operations) {
  std::map<std::string, int> counts;
  auto count = [&](Operation* op, auto& again) -> void {
    if (auto alternatives = dyn_cast<AlternativesOp>(op))
      for (Operation& inner : alternatives.getForms().front().front())
        again(&inner, again);
    else if (auto aten = dyn_cast<AtenOp>(op))
      ++counts[(aten.getOp() + (aten.getOverload().empty() ? "" : ".") + aten.getOverload()).str()];
    else if (!isa<func::ReturnOp, YieldOp>(op) && op->getName().getStringRef() != "tensor.empty" &&
             !op->hasTrait<OpTrait::ConstantLike>())
      ++counts[op->getName().getStringRef().str()];
  };
  for (Operation* op : operations)
    count(op, count);
  std::string text;
  for (const auto& [name, count] : counts)
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
  return text;
}

std::string printed(Attribute attribute) {
  std::string text;
  llvm::raw_string_ostream(text) << attribute;
  return text;
}

}  // namespace

GraphIdentity identify(ModuleOp original) {
  OwningOpRef<ModuleOp> module = original.clone();
  auto graph = module->lookupSymbol<func::FuncOp>("graph");
  Block& block = graph.getBody().front();
  MLIRContext* context = graph.getContext();
  const auto inputs = graph->getAttrOfType<ArrayAttr>("zefuse.inputs");
  const auto outputs = graph->getAttrOfType<ArrayAttr>("zefuse.outputs");
  const auto sources = graph->getAttrOfType<ArrayAttr>("zefuse.symbol_sources");
  const unsigned num_symbols = graph->getAttrOfType<ArrayAttr>("zefuse.symbols").size();

  Order order(block);
  Symbols symbols(num_symbols);
  AttrTypeWalker walker;
  walker.addWalk([&](AffineMapAttr map) {
    if (symbols.has(map.getValue()))
      symbols.note(map.getValue());
  });
  for (BlockArgument argument : order.arguments) {
    walker.walk(argument.getType());
    walker.walk(graph.getArgAttrDict(argument.getArgNumber()));
  }
  walker.walk(outputs);
  for (Operation* top : order.operations)
    top->walk<WalkOrder::PreOrder>([&](Operation* op) {
      walker.walk(op->getAttrDictionary());
      for (Type type : op->getResultTypes())
        walker.walk(type);
    });
  auto definitionOf = [&](unsigned symbol) -> Attribute {
    auto source = dyn_cast<DictionaryAttr>(sources[symbol]);
    return source && source.contains("input") ? Attribute() : sources[symbol];
  };
  for (size_t at = 0; at < symbols.old().size(); ++at)  // definitions mention others, which are appended
    if (Attribute definition = definitionOf(symbols.old()[at]))
      walker.walk(definition);

  AttrTypeReplacer replacer;
  replacer.addReplacement([&](AffineMapAttr map) -> std::pair<Attribute, WalkResult> {
    return {symbols.has(map.getValue()) ? AffineMapAttr::get(symbols.renamed(map.getValue())) : map,
            WalkResult::skip()};
  });

  GraphIdentity identity;
  identity.operations = countsOf(order.operations);
  llvm::DenseMap<int64_t, int64_t> place;  // of an argument: its number in `inputs`
  std::vector<int64_t> number(block.getNumArguments(), -1), integer(num_symbols, -1);
  for (auto [at, input] : llvm::enumerate(inputs.getValue()))
    if (auto entry = dyn_cast<DictionaryAttr>(input)) {
      if (auto argument = entry.getAs<IntegerAttr>("arg"))
        number[argument.getInt()] = static_cast<int64_t>(at);
      else if (auto symbol = entry.getAs<IntegerAttr>("symbol"))
        if (integer[symbol.getInt()] < 0)
          integer[symbol.getInt()] = static_cast<int64_t>(at);
    }
  auto describe = [&](BlockArgument argument) {
    const unsigned old = argument.getArgNumber();
    const auto strides = cast<AffineMapAttr>(replacer.replace(graph.getArgAttr(old, "zefuse.strides"))).getValue();
    const bool user = graph.getArgAttrOfType<StringAttr>(old, "zefuse.kind").getValue() == "user";
    return (user ? "" : "static ") + textOf(cast<RankedTensorType>(replacer.replace(argument.getType())), strides);
  };
  for (BlockArgument argument : order.arguments) {
    const unsigned old = argument.getArgNumber();
    place[old] = static_cast<int64_t>(identity.arguments.size());
    identity.arguments.push_back(number[old]);
    identity.inputs.push_back(describe(argument));
  }
  AttrTypeWalker sizes;
  bool known = true;
  sizes.addWalk([&](AffineMapAttr map) { known &= !symbols.has(map.getValue()) || symbols.knows(map.getValue()); });
  for (BlockArgument argument : block.getArguments())
    if (const unsigned old = argument.getArgNumber(); !place.contains(old) && number[old] >= 0) {
      known = true;
      sizes.walk(argument.getType());
      sizes.walk(graph.getArgAttr(old, "zefuse.strides"));
      if (known)
        identity.unread.emplace_back(describe(argument), number[old]);
    }
  std::string definitions;
  for (unsigned symbol : symbols.old()) {
    const Attribute definition = definitionOf(symbol);
    identity.symbols.push_back(definition ? -1 : integer[symbol]);
    definitions += definition ? printed(replacer.replace(definition)) + "\n" : "given\n";
  }

  llvm::DenseMap<int64_t, int64_t> storages, sharing;  // numbered by their first mention; how many outputs lie there
  for (Attribute output : outputs)
    if (auto entry = dyn_cast<DictionaryAttr>(output))  // None is none
      if (auto storage = entry.getAs<IntegerAttr>("storage"))
        ++sharing[storage.getInt()];
  for (Attribute output : outputs) {
    auto entry = dyn_cast<DictionaryAttr>(output);
    auto mapOf = [&](StringRef name) { return cast<AffineMapAttr>(replacer.replace(entry.get(name))).getValue(); };
    if (!entry) {
      identity.outputs.emplace_back("none");
      continue;
    }
    if (entry.contains("size")) {
      identity.outputs.push_back("size " + textOf(mapOf("size").getResults()));
      continue;
    }
    const Value result = block.getTerminator()->getOperand(entry.getAs<IntegerAttr>("result").getInt());
    std::string text = textOf(cast<RankedTensorType>(replacer.replace(result.getType())), mapOf("strides"));
    if (entry.contains("any_strides"))
      text += " or others";
    if (entry.contains("leaves"))
      text += " beyond an input";
    if (auto written = entry.getAs<IntegerAttr>("written")) {
      auto known = place.find(written.getInt());
      text += " into input " + (known == place.end() ? "none" : std::to_string(known->second));
    }
    if (auto argument = entry.getAs<IntegerAttr>("argument")) {
      auto known = place.find(argument.getInt());
      text += " of input " + (known == place.end() ? "none" : std::to_string(known->second)) + " from " +
              textOf(mapOf("offset").getResults());
    } else if (auto storage = entry.getAs<IntegerAttr>("storage"); storage && sharing[storage.getInt()] > 1) {
      text +=
          " in shared memory " + std::to_string(storages.try_emplace(storage.getInt(), storages.size()).first->second);
    }
    identity.outputs.push_back(std::move(text));
  }

  // The clone in that order, without names and numbers of its own.
  for (Operation* op : order.operations)
    op->moveBefore(&block, block.end());
  llvm::DenseSet<Operation*> kept(order.operations.begin(), order.operations.end());
  for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (!kept.contains(&op)) {
      op.dropAllUses();
      op.erase();
    }
  const unsigned before = block.getNumArguments();
  for (BlockArgument argument : order.arguments)
    argument.replaceAllUsesWith(block.addArgument(argument.getType(), UnknownLoc::get(context)));
  block.eraseArguments(0, before);
  graph->setDiscardableAttrs(ArrayRef<NamedAttribute>{});
  graph.removeArgAttrsAttr();
  graph.removeResAttrsAttr();
  graph.setType(FunctionType::get(context, block.getArgumentTypes(), block.getTerminator()->getOperandTypes()));
  replacer.recursivelyReplaceElementsIn(graph, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
  llvm::raw_string_ostream stream(identity.text);
  stream << definitions;
  module->print(stream, OpPrintingFlags().useLocalScope().enableDebugInfo(false));
  return identity;
}

}  // namespace zefuse
