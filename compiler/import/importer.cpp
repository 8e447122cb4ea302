#include "compiler/import/importer.h"

#include "compiler/import/contract.h"
#include "compiler/import/fallback.h"
#include "compiler/import/implementations.h"
#include "compiler/import/library_hints.h"
#include "compiler/import/op_table.h"
#include "compiler/import/size_checks.h"
#include "compiler/import/storage.h"
#include "lowering/dialect/Zefuse.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;

namespace zefuse {
namespace {
using fx::Argument;
using fx::Meta;
using fx::Node;

class Importer {
public:
  Importer(MLIRContext& context, const fx::Graph& graph, const ImportOptions& options)
      : context_(context), graph_(graph), options_(options), b_(&context), num_symbols_(graph.symbols.size()),
        checks_(context, graph.symbols.size()) {}

  OwningOpRef<ModuleOp> run() {
    readTuned();
    OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context_));
    collectArguments();
    function_ =
        func::FuncOp::create(UnknownLoc::get(&context_), "graph", FunctionType::get(&context_, argument_types_, {}));
    module->push_back(function_);
    Block* block = function_.addEntryBlock();
    b_.setInsertionPointToEnd(block);
    describeArguments();

    values_.resize(graph_.nodes.size());
    for (unsigned index = 0; index < graph_.nodes.size(); ++index)
      importNode(index);
    importOutputs();
    checks_.attachTo(function_);
    if (options_.list_operators)
      function_->setAttr("zefuse.operators", b_.getArrayAttr(operators_));
    if (options_.bf16_products)
      module->walk([](MatmulOp product) { product.setBf16Math(product.getA().getType().getElementType().isF32()); });
    eraseDeadOps(*block);
    forgetUnreadParameters();
    verify(*module);
    return module;
  }

private:
  struct Write {
    unsigned node;
    unsigned input, source;  // the FX nodes of the argument and of what it is overwritten with
    BlockArgument argument;
    Value value;
  };

  [[noreturn]] void fail(const Node& node, const std::string& reason) const {
    throw ImportError("FX node '" + node.name + "': " + reason);
  }

  AffineMapAttr mapOf(ArrayRef<AffineExpr> results) {
    return AffineMapAttr::get(AffineMap::get(0, num_symbols_, results, &context_));
  }

  RankedTensorType heldType(const Node& node) {
    const fx::TensorMeta& meta = node.meta.tensor;
    Type element = fx::elementType(meta.dtype, &context_);
    if (!element)
      fail(node, "tensors of " + fx::dtypeName(meta.dtype) + " are not supported");
    if (!meta.dense)
      fail(node, "only dense tensors on the CPU are supported");
    return shapedTensor(exprs(meta.sizes), element, num_symbols_);
  }

  void readTuned() {
    std::string error;
    const FailureOr<TunedKernels> tuned = readTuning(options_.tuning, error);
    if (failed(tuned))
      throw ImportError(error);
    for (const auto& [key, row] : *tuned)
      if (const auto chosen = implementationOf(row); chosen && *chosen != Implementation::modelled)
        tuned_.emplace(key, row);
    if (tuned_.empty() && !options_.list_operators)
      return;
    unsigned input = 0;
    for (const Node& node : graph_.nodes) {
      const bool placeholder = node.kind == Node::Kind::input;
      parameters_.push_back(node.kind == Node::Kind::constant ||
                            (placeholder && llvm::is_contained(options_.parameters, input)));
      input += placeholder;
    }
  }

  // Function arguments: tensor placeholders in order, then the module's constants.
  void collectArguments() {
    SmallVector<Attribute> inputs;
    unsigned input = 0;
    auto addArgument = [&](unsigned index, StringRef kind) {
      inputs.push_back(b_.getDictionaryAttr(b_.getNamedAttr("arg", b_.getI64IntegerAttr(argument_nodes_.size()))));
      argument_nodes_.push_back(index);
      argument_kinds_.push_back(kind);
      argument_types_.push_back(heldType(graph_.nodes[index]));
    };
    for (auto [index, node] : llvm::enumerate(graph_.nodes)) {
      if (node.kind != Node::Kind::input)
        continue;
      if (node.meta.kind == Meta::Kind::tensor) {
        addArgument(index, llvm::is_contained(options_.parameters, input) ? "parameter" : "user");
      } else if (auto symbol = dyn_cast_or_null<AffineSymbolExpr>(AffineExpr(node.meta.size))) {
        NamedAttrList entry;
        entry.append("symbol", b_.getI64IntegerAttr(symbol.getPosition()));
        if (node.meta.kind == Meta::Kind::real)
          entry.append("real", b_.getUnitAttr());
        inputs.push_back(entry.getDictionary(&context_));
      } else {
        inputs.push_back(b_.getUnitAttr());  // None, a constant, or an expression of other symbols: nothing to read
      }
      ++input;
    }
    for (auto [index, node] : llvm::enumerate(graph_.nodes))
      if (node.kind == Node::Kind::constant)
        addArgument(index, "constant");
    inputs_ = b_.getArrayAttr(inputs);
  }

  Attribute definition(const fx::NumberTree& tree) {
    if (tree.constant)
      return b_.getF64FloatAttr(*tree.constant);
    if (tree.op.empty())
      return mapOf(AffineExpr(tree.leaf));
    SmallVector<Attribute> parts = {b_.getStringAttr(tree.op)};
    for (const fx::NumberTree& arg : tree.args)
      parts.push_back(definition(arg));
    return b_.getArrayAttr(parts);
  }

  void describeArguments() {
    SmallVector<StringRef> symbols(graph_.symbols.begin(), graph_.symbols.end());
    SmallVector<Attribute> sources;
    for (const fx::SymbolSource& source : graph_.symbol_sources) {
      if (source.definition) {
        sources.push_back(definition(*source.definition));
        continue;
      }
      SmallVector<NamedAttribute> entries = {b_.getNamedAttr("input", b_.getI64IntegerAttr(source.input))};
      if (source.dim >= 0)
        entries.push_back(b_.getNamedAttr("dim", b_.getI64IntegerAttr(source.dim)));
      sources.push_back(b_.getDictionaryAttr(entries));
    }
    function_->setAttr("zefuse.symbols", b_.getStrArrayAttr(symbols));
    function_->setAttr("zefuse.symbol_sources", b_.getArrayAttr(sources));
    function_->setAttr("zefuse.inputs", inputs_);
    for (auto [position, index] : llvm::enumerate(argument_nodes_)) {
      const Node& node = graph_.nodes[index];
      function_.setArgAttr(position, "zefuse.name", b_.getStringAttr(node.users_name));
      function_.setArgAttr(position, "zefuse.kind", b_.getStringAttr(argument_kinds_[position]));
      function_.setArgAttr(position, "zefuse.strides",
                           mapOf(exprs(node.given_strides.empty() ? node.meta.tensor.strides : node.given_strides)));
    }
  }

  Location locationOf(const Node& node) {
    StringRef target = node.schema ? StringRef(node.schema->target) : StringRef("constant");
    Location child = node.file.empty() ? Location(UnknownLoc::get(&context_))
                                       : FileLineColLoc::get(&context_, node.file, node.line, 0);
    const std::string module = node.module.empty() ? "" : "|" + node.module;
    return NameLoc::get(b_.getStringAttr(target + "|" + node.name + module), child);
  }

  void importNode(unsigned index) {
    const Node& node = graph_.nodes[index];
    switch (node.kind) {
    case Node::Kind::input:
    case Node::Kind::constant: {
      auto found = llvm::find(argument_nodes_, index);
      if (found != argument_nodes_.end())
        values_[index] = {function_.getArgument(found - argument_nodes_.begin())};
      return;
    }
    case Node::Kind::size: return;
    case Node::Kind::getitem: {
      const Values& results = values_[node.source];
      if (node.item >= results.size() || (!results[node.item] && node.meta.kind == Meta::Kind::tensor))
        fail(node, "result " + std::to_string(node.item) + " of '" + graph_.nodes[node.source].name + "' was not made");
      values_[index] = {results[node.item]};
      return;
    }
    case Node::Kind::scalar: {
      TensorBuilder build(locationOf(node), b_, num_symbols_);
      values_[index] = {literal(node, build)};
      return;
    }
    case Node::Kind::call: importCall(index);
    }
  }

  Value literal(const Node& node, TensorBuilder& build) {
    RankedTensorType type = heldType(node);
    return build.loop({}, type, [&](Body& body, ArrayRef<Scalar>) {
      if (node.literal.kind == Argument::Kind::real)
        return body.constant(type.getElementType(), node.literal.real);
      return constantScalar(body.b, type.getElementType(), node.literal.integer);
    });
  }

  void importCall(unsigned index) {
    const Node& node = graph_.nodes[index];
    if (checks_.isTracings(node))
      return;
    if (importWrite(index))
      return;
    TensorBuilder build(locationOf(node), b_, num_symbols_);
    const Emitter* emitter = opTable().find(node.schema->target);
    const std::string key = parameters_.empty() ? "" : operatorKey(graph_, node, parameters_);
    const auto row = tuned_.find(key);
    const Implementation chosen = row == tuned_.end() ? Implementation::modelled : *implementationOf(row->second);
    if (chosen == Implementation::eager && runsInEager(index, build, row->second)) {
      list(node, key, {});
      return;
    }
    std::string reason = node.schema->random ? "draws from torch's generator"
                                             : "no lowering for " + node.schema->op +
                                                   (node.schema->overload.empty() ? "" : "." + node.schema->overload);
    if (emitter) {
      Operation* before = b_.getInsertionBlock()->empty() ? nullptr : &b_.getInsertionBlock()->back();
      Op op(graph_, node, values_, build);
      try {
        if (OpTable::refuses(node.schema->op, [&] { return op.element(); }))
          op.refuseType(op.element());
        for (StringRef tensor : llvm::split(OpTable::tensorsOfItsType(node.schema->op), ' '))
          if (op.takes(tensor))
            op.refuseOtherType(tensor);
        for (StringRef number : llvm::split(OpTable::numbersOfItsType(node.schema->op), ' '))
          if (op.takes(number))
            op.refuseOverflow(number);
        Values results = (*emitter)(op);
        checkResults(op, results);
        markActivation(op, results);
        const SmallVector<Operation*> made = operationsAfter(before);
        list(node, key, made);
        if (chosen > Implementation::eager)
          markImplementation(made, chosen, row->second);
        checks_.add(op);
        values_[index] = op.fallbackReason().empty() || !options_.host_calls
                             ? std::move(results)
                             : withFallback(node, results, before, op.fallbackReason());
        return;
      } catch (const NotLowered& refusal) {
        reason = refusal.what();
        eraseAfter(before);
        checks_.add(op);  // the call that raises goes where nothing reads what it gives: of no elements nothing is read
      }
    }
    if (!options_.host_calls)
      fail(node, reason);
    values_[index] = emitFallback(graph_, withItsStorage(node), values_, build, reason);
  }

  /// Whether eager's operator, which was measured to be quicker, could take the node's place.
  bool runsInEager(unsigned index, TensorBuilder& build, const TunedKernel& row) {
    const Node& node = graph_.nodes[index];
    if (!options_.host_calls || !options_.eager_operators || !mayRunInEager(node))
      return false;
    Block* block = b_.getInsertionBlock();
    Operation* before = block->empty() ? nullptr : &block->back();
    try {
      values_[index] = emitFallback(graph_, withItsStorage(node), values_, build,
                                    node.schema->op + ": " + whyMeasured(Implementation::eager, row));
      return true;
    } catch (const ImportError&) {  // a plan cannot hold an argument or a result
      eraseAfter(before);
      return false;
    }
  }

  SmallVector<Operation*> operationsAfter(Operation* last) {
    SmallVector<Operation*> found;
    for (Operation& op : llvm::reverse(*b_.getInsertionBlock())) {
      if (&op == last)
        break;
      found.push_back(&op);
    }
    return found;
  }

  /// What there is to measure of a node, for zefuse.operators.
  void list(const Node& node, StringRef key, ArrayRef<Operation*> made) {
    if (!options_.list_operators)
      return;
    NamedAttrList choices;
    for (const Implementation each : implementationsFor(node, made))
      if (each != Implementation::eager || (options_.host_calls && options_.eager_operators))
        choices.append(wordsFor(each), b_.getI64IntegerAttr(int64_t(each)));
    operators_.push_back(b_.getDictionaryAttr({b_.getNamedAttr("node", b_.getStringAttr(node.name)),
                                               b_.getNamedAttr("key", b_.getStringAttr(key)),
                                               b_.getNamedAttr("op", b_.getStringAttr(node.schema->target)),
                                               b_.getNamedAttr("choices", choices.getDictionary(&context_))}));
  }

  /// What was emitted behind `before`, as the first of two forms; the other is a call through ATen.
  Values withFallback(const Node& node, const Values& results, Operation* before, StringRef reason) {
    Block* block = b_.getInsertionBlock();
    Region lowered;
    Block& body = lowered.emplaceBlock();
    body.getOperations().splice(body.end(), block->getOperations(),
                                before ? std::next(before->getIterator()) : block->begin(), block->end());
    SmallVector<Type> types;
    for (Value value : results)
      if (value)
        types.push_back(value.getType());
    const Location location = locationOf(node);
    auto op = AlternativesOp::create(b_, location, types, 2u);
    op.getForms()[0].takeBody(lowered);
    OpBuilder inside = OpBuilder::atBlockEnd(&op.getForms()[1].emplaceBlock());
    TensorBuilder build(location, inside, num_symbols_);  // has an insertion point of its own
    const Values called = emitFallback(graph_, withItsStorage(node), values_, build, reason);
    Values kept(results);
    SmallVector<Value> from_lowered, from_called;
    for (auto [index, value] : llvm::enumerate(kept))
      if (value) {
        from_called.push_back(called[index]);
        from_lowered.push_back(std::exchange(value, op.getResult(from_lowered.size())));
      }
    YieldOp::create(inside, location, from_called);
    inside.setInsertionPointToEnd(&op.getForms()[0].front());
    YieldOp::create(inside, location, from_lowered);
    return kept;
  }

  /// as_strided counts from the start of its argument's storage, which a view that the plan made has of its own: ATen
  /// gets the tensor behind the view instead. A view of an input has the caller's storage.
  Node withItsStorage(const Node& node) {
    if (!StringRef(node.schema->target).starts_with("aten.as_strided") ||
        node.arguments[0].kind != Argument::Kind::node)
      return node;
    const unsigned self = node.arguments[0].node, behind = tensorBehind(graph_, self);
    const Node::Kind storage = graph_.nodes[storageOf(graph_, self)].kind;
    auto offset = llvm::find_if(node.schema->parameters, [](auto& each) { return each.name == "storage_offset"; });
    if (storage == Node::Kind::input || storage == Node::Kind::constant || offset == node.schema->parameters.end() ||
        StringRef(node.schema->target).contains("scatter"))
      return node;
    const auto begins = dyn_cast<AffineConstantExpr>(eagerOffset(graph_, behind));
    const Node& tensor = graph_.nodes[behind];
    const bool scattered =
        tensor.kind == Node::Kind::call && tensor.schema->target == "aten.as_strided_scatter.default";
    if (!scattered && (!begins || begins.getValue() != 0))
      throw ImportError("as_strided of '" + graph_.nodes[self].name +
                        "', which begins inside a storage of another dtype");
    Node other = node;
    other.arguments[0].node = behind;
    Argument& begin = other.arguments[offset - node.schema->parameters.begin()];
    if (begin.kind == Argument::Kind::none) {
      const AffineExpr known = eagerOffset(graph_, self);
      const auto constant = dyn_cast<AffineConstantExpr>(known);
      begin.kind = constant ? Argument::Kind::integer : Argument::Kind::size;
      begin.integer = constant ? constant.getValue() : 0;
      begin.size = fx::SizeExpr(known);
    }
    return other;
  }

  // AOTAutograd's form of what a graph does to its inputs: copy_ of the new value into a placeholder, whose result
  // nobody reads.
  bool importWrite(unsigned index) {
    const Node& node = graph_.nodes[index];
    if (node.schema->target != "aten.copy_.default")
      return false;
    const Argument &self = node.arguments[0], &source = node.arguments[1];
    if (self.kind != Argument::Kind::node || source.kind != Argument::Kind::node ||
        graph_.nodes[self.node].kind != Node::Kind::input)
      fail(node, "copy_ writes what is no input of the graph");
    Value value = values_[source.node].empty() ? Value() : values_[source.node][0];
    auto argument = dyn_cast_or_null<BlockArgument>(values_[self.node].empty() ? Value() : values_[self.node][0]);
    if (!value || !argument || typeOf(value).getElementType() != typeOf(argument).getElementType() ||
        typeOf(value).getShape() != typeOf(argument).getShape())
      fail(node, "copy_ of another shape or dtype into an input");
    if (value.getType() != argument.getType()) {  // the same sizes, put otherwise
      TensorBuilder build(locationOf(node), b_, num_symbols_);
      const AffineMap identity = build.map(rankOf(value), b_.getMultiDimIdentityMap(rankOf(value)).getResults());
      value = ViewOp::create(build.b, typeOf(argument), value, AffineMapAttr::get(identity));
    }
    for (const Write& write : writes_)
      if (write.argument == argument)
        fail(node, "an input is written twice");
    writes_.push_back({index, self.node, source.node, argument, value});
    values_[index] = {value};
    return true;
  }

  // An emitter's results must have torch's own shapes and dtypes: a slip becomes an error here, not a wrong answer
  // later.
  void checkResults(Op& op, Values& results) {
    for (unsigned i = 0; i < op.numResults(); ++i) {
      Value value = i < results.size() ? results[i] : Value();
      if (!value) {
        if (op.used(i))
          op.refuse("result " + Twine(i) + " is not lowered");
        continue;
      }
      value = results[i] = op.inTorchsForm(i, value);
      if (value.getType() != op.resultType(i)) {
        std::string text;
        llvm::raw_string_ostream(text) << "internal error: the lowering of " << op.node.schema->target << " made "
                                       << value.getType() << " where torch has " << op.resultType(i);
        fail(op.node, text);
      }
    }
  }

  void eraseAfter(Operation* last) {
    Block* block = b_.getInsertionBlock();
    while (!block->empty() && &block->back() != last)
      block->back().erase();
  }

  int64_t elementBytes(const Node& node) {
    return std::max(1u, fx::elementType(node.meta.tensor.dtype, &context_).getIntOrFloatBitWidth() / 8);
  }

  /// Where a view begins in the memory of a tensor, in elements of the view, which may be of another dtype.
  AffineExpr offsetIn(const Node& base, const Node& view) {
    const AffineExpr from = base.meta.tensor.offset, to = view.meta.tensor.offset;
    return to - (from * elementBytes(base)).floorDiv(elementBytes(view));
  }

  /// Whether a view may reach beyond the tensor that was given, as as_strided's can, into the rest of its storage, of
  /// which a plan has no address: then the result is a copy, and AOTAutograd makes the view for the caller.
  bool mayLeave(unsigned view, unsigned base) {
    if (!hasAsStrided(graph_, view))
      return false;
    auto extent = [&](const fx::TensorMeta& meta) {
      AffineExpr last = getAffineConstantExpr(0, &context_);
      for (auto [size, stride] : llvm::zip(meta.sizes, meta.strides))
        last = last + (AffineExpr(size) - 1) * AffineExpr(stride);
      return dyn_cast<AffineConstantExpr>(last + 1);
    };
    const Node &to = graph_.nodes[view], &from = graph_.nodes[base];
    const auto first = dyn_cast<AffineConstantExpr>(offsetIn(from, to)), reach = extent(to.meta.tensor),
               limit = extent(from.meta.tensor);
    return !first || !reach || !limit || first.getValue() < 0 ||
           (first.getValue() + reach.getValue()) * elementBytes(to) > limit.getValue() * elementBytes(from);
  }

  /// What overwrites the input that AOTAutograd takes an output for a view of: then it asks the output where in the
  /// input's storage it begins (python/zefuse/output_aliases.py). Null: none that lies as the input does.
  const Write* writtenWith(unsigned storage, unsigned output) {
    if (!llvm::is_contained(graph_.aliases, output))
      return nullptr;
    // What is written into the input has its sizes, however torch puts them.
    auto lieAlike = [](const fx::TensorMeta& made, const fx::TensorMeta& input) {
      return made.strides.size() == input.strides.size() &&
             llvm::all_of(llvm::zip(made.sizes, input.sizes, made.strides, input.strides), [](const auto& each) {
               auto [size, input_size, stride, input_stride] = each;
               // One element has no stride.
               return sameValue(stride, input_stride) || isConstant(size, 1) || isConstant(input_size, 1);
             });
    };
    // As another dtype it is a copy of bits within the graph (graphs/storage_views.py), for the caller a view.
    for (const Node* node = &graph_.nodes[storage];
         node->kind == Node::Kind::call && node->schema->target == "aten.view_copy.dtype";
         node = &graph_.nodes[storage])
      storage = storageOf(graph_, node->arguments[0].node);
    auto write = llvm::find_if(writes_, [&](const Write& each) {
      return storageOf(graph_, each.source) == storage &&
             lieAlike(graph_.nodes[each.source].meta.tensor, graph_.nodes[each.input].meta.tensor);
    });
    return write == writes_.end() ? nullptr : &*write;
  }

  void importOutputs() {
    SmallVector<Value> results;
    SmallVector<Attribute> outputs;
    for (auto [number, output] : llvm::enumerate(graph_.outputs)) {
      switch (output.kind) {
      case Argument::Kind::none: outputs.push_back(b_.getUnitAttr()); break;
      case Argument::Kind::integer:
        outputs.push_back(
            b_.getDictionaryAttr(b_.getNamedAttr("size", mapOf({getAffineConstantExpr(output.integer, &context_)}))));
        break;
      case Argument::Kind::size:
        outputs.push_back(b_.getDictionaryAttr(b_.getNamedAttr("size", mapOf({output.size}))));
        break;
      case Argument::Kind::node: {
        const Node& node = graph_.nodes[output.node];
        if (node.meta.kind != Meta::Kind::tensor || values_[output.node].empty() || !values_[output.node][0])
          fail(node, "the graph returns it, but it is not a tensor");
        const unsigned storage = storageOf(graph_, output.node);
        NamedAttrList entry;
        entry.append("result", b_.getI64IntegerAttr(results.size()));
        entry.append("strides", mapOf(exprs(node.meta.tensor.strides)));
        const Node& base = graph_.nodes[storage];
        if ((base.kind == Node::Kind::input || base.kind == Node::Kind::constant) && !mayLeave(output.node, storage)) {
          auto argument = cast<BlockArgument>(values_[storage][0]);
          entry.append("argument", b_.getI64IntegerAttr(argument.getArgNumber()));
          entry.append("offset", mapOf({offsetIn(base, node)}));
        } else if (const Write* write = writtenWith(storage, number)) {
          entry.append("argument", b_.getI64IntegerAttr(write->argument.getArgNumber()));
          entry.append("offset", mapOf({offsetIn(graph_.nodes[write->source], node)}));
        } else {
          entry.append("storage", b_.getI64IntegerAttr(storage));
          entry.append("offset", mapOf(AffineExpr(node.meta.tensor.offset)));
          if (base.kind == Node::Kind::input || base.kind == Node::Kind::constant)
            entry.append("leaves", b_.getUnitAttr());
          if (llvm::is_contained(graph_.any_strides, number))
            entry.append("any_strides", b_.getUnitAttr());
        }
        outputs.push_back(entry.getDictionary(&context_));
        results.push_back(values_[output.node][0]);
        break;
      }
      default:
        throw ImportError("the graph returns " + (output.text.empty() ? "a value" : output.text) +
                          ", which is neither a tensor nor a size");
      }
    }
    for (const Write& write : writes_) {
      NamedAttrList entry;
      entry.append("result", b_.getI64IntegerAttr(results.size()));
      entry.append("strides", function_.getArgAttr(write.argument.getArgNumber(), "zefuse.strides"));
      entry.append("storage", b_.getI64IntegerAttr(write.node));
      entry.append("written", b_.getI64IntegerAttr(write.argument.getArgNumber()));
      outputs.push_back(entry.getDictionary(&context_));
      results.push_back(write.value);
    }
    function_->setAttr("zefuse.outputs", b_.getArrayAttr(outputs));
    func::ReturnOp::create(b_, UnknownLoc::get(&context_), results);
    function_.setType(FunctionType::get(&context_, argument_types_, ValueRange(results).getTypes()));
  }

  void eraseDeadOps(Block& block) {
    for (Operation& op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  /// An exported program has every parameter as an input, also those that nothing reads (one of two tied ones): a plan
  /// does not ask for them. The user's inputs stay: a caller is told what they are.
  void forgetUnreadParameters() {
    SmallVector<Attribute> inputs(inputs_.begin(), inputs_.end());
    for (auto [number, input] : llvm::enumerate(inputs)) {
      auto entry = dyn_cast<DictionaryAttr>(input);
      auto argument = entry ? entry.getAs<IntegerAttr>("arg") : IntegerAttr();
      if (!argument || argument_kinds_[argument.getInt()] != "parameter" ||
          !function_.getArgument(argument.getInt()).use_empty())
        continue;
      if (llvm::none_of(graph_.symbol_sources,
                        [&](const fx::SymbolSource& source) { return !source.definition && source.input == number; }))
        input = b_.getUnitAttr();
    }
    function_->setAttr("zefuse.inputs", b_.getArrayAttr(inputs));
  }

  void verify(ModuleOp module) {
    std::string messages;
    ScopedDiagnosticHandler handler(&context_, [&](Diagnostic& diagnostic) {
      diagnostic.getLocation()->walk([&](Location part) {  // which nodes, by their names in the graph
        if (auto name = dyn_cast<NameLoc>(part))
          messages += name.getName().getValue().split('|').second.split('|').first.str() + ": ";
        return WalkResult::advance();
      });
      messages += diagnostic.str() + "\n";
    });
    if (failed(mlir::verify(module)) || failed(verifyImported(module)))
      throw ImportError("internal error: the imported graph breaks its contract:\n" + messages);
  }

  MLIRContext& context_;
  const fx::Graph& graph_;
  const ImportOptions& options_;
  OpBuilder b_;
  const unsigned num_symbols_;
  func::FuncOp function_;
  SmallVector<Type> argument_types_;
  SmallVector<unsigned> argument_nodes_;
  SmallVector<StringRef> argument_kinds_;
  ArrayAttr inputs_;
  std::vector<Values> values_;    // by FX node
  TunedKernels tuned_;            // of operators
  SmallVector<bool> parameters_;  // by FX node, where operators' keys are asked for: whether it is one
  SmallVector<Attribute> operators_;
  SizeChecks checks_;
  std::vector<Write> writes_;  // values that inputs are overwritten with, when the graph has run
};

}  // namespace

OwningOpRef<ModuleOp> importGraph(MLIRContext& context, const fx::Graph& graph, const ImportOptions& options) {
  return Importer(context, graph, options).run();
}

}  // namespace zefuse
