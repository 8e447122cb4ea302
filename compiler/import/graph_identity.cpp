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

// One graph's identity, of a clone that it may rewrite: what is in it in the order in which it is needed, without names
// and numbers of its own.
class Identification {
public:
  explicit Identification(ModuleOp module)
      : module_(module), graph_(module.lookupSymbol<func::FuncOp>("graph")), block_(graph_.getBody().front()),
        sources_(graph_->getAttrOfType<ArrayAttr>("zefuse.symbol_sources")), order_(block_),
        symbols_(graph_->getAttrOfType<ArrayAttr>("zefuse.symbols").size()),
        input_of_argument_(block_.getNumArguments(), -1), input_of_symbol_(sources_.size(), -1) {
    numberSymbols();
    numberInputs();
    replacer_.addReplacement([this](AffineMapAttr map) -> std::pair<Attribute, WalkResult> {
      return {symbols_.has(map.getValue()) ? AffineMapAttr::get(symbols_.renamed(map.getValue())) : map,
              WalkResult::skip()};
    });
  }

  GraphIdentity run() {
    identity_.operations = countsOf(order_.operations);
    describeInputs();
    const std::string definitions = describeSymbols(), checks = describeChecks();
    describeOutputs();
    rewrite();
    llvm::raw_string_ostream stream(identity_.text);
    stream << definitions << checks;
    module_.print(stream, OpPrintingFlags().useLocalScope().enableDebugInfo(false));
    return std::move(identity_);
  }

private:
  // In the order of their first mention.
  void numberSymbols() {
    AttrTypeWalker walker;
    walker.addWalk([this](AffineMapAttr map) {
      if (symbols_.has(map.getValue()))
        symbols_.note(map.getValue());
    });
    for (BlockArgument argument : order_.arguments) {
      walker.walk(argument.getType());
      walker.walk(graph_.getArgAttrDict(argument.getArgNumber()));
    }
    walker.walk(outputs());
    for (Operation* top : order_.operations)
      top->walk<WalkOrder::PreOrder>([&](Operation* op) {
        walker.walk(op->getAttrDictionary());
        for (Type type : op->getResultTypes())
          walker.walk(type);
      });
    if (Attribute checks = graph_->getAttr("zefuse.size_checks"))
      walker.walk(checks);
    for (size_t at = 0; at < symbols_.old().size(); ++at)  // definitions mention others, which are appended
      if (Attribute definition = definitionOf(symbols_.old()[at]))
        walker.walk(definition);
  }

  void numberInputs() {
    for (auto [at, input] : llvm::enumerate(graph_->getAttrOfType<ArrayAttr>("zefuse.inputs").getValue()))
      if (auto entry = dyn_cast<DictionaryAttr>(input)) {
        if (auto argument = entry.getAs<IntegerAttr>("arg"))
          input_of_argument_[argument.getInt()] = static_cast<int64_t>(at);
        else if (auto symbol = entry.getAs<IntegerAttr>("symbol"))
          if (int64_t& known = input_of_symbol_[symbol.getInt()]; known < 0)
            known = static_cast<int64_t>(at);
      }
  }

  void describeInputs() {
    for (BlockArgument argument : order_.arguments) {
      const unsigned old = argument.getArgNumber();
      place_[old] = static_cast<int64_t>(identity_.arguments.size());
      identity_.arguments.push_back(input_of_argument_[old]);
      identity_.inputs.push_back(describe(argument));
    }
    bool known = true;
    AttrTypeWalker sizes;
    sizes.addWalk([&](AffineMapAttr map) { known &= !symbols_.has(map.getValue()) || symbols_.knows(map.getValue()); });
    for (BlockArgument argument : block_.getArguments())
      if (const unsigned old = argument.getArgNumber(); !place_.contains(old) && input_of_argument_[old] >= 0) {
        known = true;
        sizes.walk(argument.getType());
        sizes.walk(graph_.getArgAttr(old, "zefuse.strides"));
        if (known)
          identity_.unread.emplace_back(describe(argument), input_of_argument_[old]);
      }
  }

  // Returns their definitions, a line each.
  std::string describeSymbols() {
    std::string definitions;
    for (unsigned symbol : symbols_.old()) {
      const Attribute definition = definitionOf(symbol);
      identity_.symbols.push_back(definition ? -1 : input_of_symbol_[symbol]);
      definitions += definition ? printed(replacer_.replace(definition)) + "\n" : "given\n";
    }
    return definitions;
  }

  // What must hold of sizes, whoever's line asks for it.
  std::string describeChecks() {
    std::vector<std::string> lines;
    if (auto checks = graph_->getAttrOfType<ArrayAttr>("zefuse.size_checks"))
      for (auto check : checks.getAsRange<DictionaryAttr>())
        lines.push_back("requires " + textOf(mapOf(check, "least").getResults()) + " or " +
                        check.getAs<StringAttr>("error").str() + "\n");
    llvm::sort(lines);
    std::string text;
    for (const std::string& line : lines)
      text += line;
    return text;
  }

  void describeOutputs() {
    llvm::DenseMap<int64_t, int64_t> sharing;  // of a storage, how many outputs lie there
    for (Attribute output : outputs())
      if (auto entry = dyn_cast<DictionaryAttr>(output))  // None is none
        if (auto storage = entry.getAs<IntegerAttr>("storage"))
          ++sharing[storage.getInt()];
    llvm::DenseMap<int64_t, int64_t> storages;  // numbered by their first mention
    for (Attribute output : outputs()) {
      auto entry = dyn_cast<DictionaryAttr>(output);
      identity_.outputs.push_back(!entry                   ? "none"
                                  : entry.contains("size") ? "size " + textOf(mapOf(entry, "size").getResults())
                                                           : describe(entry, sharing, storages));
    }
  }

  std::string describe(DictionaryAttr output, const llvm::DenseMap<int64_t, int64_t>& sharing,
                       llvm::DenseMap<int64_t, int64_t>& storages) {
    const Value result = block_.getTerminator()->getOperand(output.getAs<IntegerAttr>("result").getInt());
    std::string text = textOf(cast<RankedTensorType>(replacer_.replace(result.getType())), mapOf(output, "strides"));
    auto inputOf = [&](IntegerAttr argument) {
      auto known = place_.find(argument.getInt());
      return "input " + (known == place_.end() ? "none" : std::to_string(known->second));
    };
    if (output.contains("any_strides"))
      text += " or others";
    if (output.contains("leaves"))
      text += " beyond an input";
    if (auto written = output.getAs<IntegerAttr>("written"))
      text += " into " + inputOf(written);
    if (auto argument = output.getAs<IntegerAttr>("argument"))
      text += " of " + inputOf(argument) + " from " + textOf(mapOf(output, "offset").getResults());
    else if (auto storage = output.getAs<IntegerAttr>("storage"); storage && sharing.lookup(storage.getInt()) > 1)
      text +=
          " in shared memory " + std::to_string(storages.try_emplace(storage.getInt(), storages.size()).first->second);
    return text;
  }

  std::string describe(BlockArgument argument) {
    const unsigned old = argument.getArgNumber();
    const auto strides = cast<AffineMapAttr>(replacer_.replace(graph_.getArgAttr(old, "zefuse.strides"))).getValue();
    const bool user = graph_.getArgAttrOfType<StringAttr>(old, "zefuse.kind").getValue() == "user";
    return (user ? "" : "static ") + textOf(cast<RankedTensorType>(replacer_.replace(argument.getType())), strides);
  }

  // Gives the clone that order, and takes its names and numbers.
  void rewrite() {
    for (Operation* op : order_.operations)
      op->moveBefore(&block_, block_.end());
    llvm::DenseSet<Operation*> kept(order_.operations.begin(), order_.operations.end());
    for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block_)))
      if (!kept.contains(&op)) {
        op.dropAllUses();
        op.erase();
      }
    MLIRContext* context = graph_.getContext();
    const unsigned before = block_.getNumArguments();
    for (BlockArgument argument : order_.arguments)
      argument.replaceAllUsesWith(block_.addArgument(argument.getType(), UnknownLoc::get(context)));
    block_.eraseArguments(0, before);
    graph_->setDiscardableAttrs(ArrayRef<NamedAttribute>{});
    graph_.removeArgAttrsAttr();
    graph_.removeResAttrsAttr();
    graph_.setType(FunctionType::get(context, block_.getArgumentTypes(), block_.getTerminator()->getOperandTypes()));
    replacer_.recursivelyReplaceElementsIn(graph_, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
  }

  ArrayAttr outputs() { return graph_->getAttrOfType<ArrayAttr>("zefuse.outputs"); }
  // What a symbol is made of; null: an input's size gives it.
  Attribute definitionOf(unsigned symbol) const {
    auto source = dyn_cast<DictionaryAttr>(sources_[symbol]);
    return source && source.contains("input") ? Attribute() : sources_[symbol];
  }
  AffineMap mapOf(DictionaryAttr entry, StringRef name) {
    return cast<AffineMapAttr>(replacer_.replace(entry.get(name))).getValue();
  }

  ModuleOp module_;
  func::FuncOp graph_;
  Block& block_;
  const ArrayAttr sources_;
  Order order_;
  Symbols symbols_;
  std::vector<int64_t> input_of_argument_, input_of_symbol_;  // numbers in "zefuse.inputs"; -1: none
  llvm::DenseMap<int64_t, int64_t> place_;                    // of an argument: its number in `identity_.inputs`
  AttrTypeReplacer replacer_;
  GraphIdentity identity_;
};

}  // namespace

GraphIdentity identify(ModuleOp original) {
  OwningOpRef<ModuleOp> module = original.clone();
  return Identification(*module).run();
}

}  // namespace zefuse
