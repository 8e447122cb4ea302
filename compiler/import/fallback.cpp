#include "compiler/import/fallback.h"

#include "compiler/import/storage.h"
#include "lowering/dialect/Zefuse.h"

using namespace mlir;

namespace zefuse {
namespace {
using fx::Argument;

class Fallback {
public:
  Fallback(const fx::Graph& graph, const fx::Node& node, ArrayRef<Values> values, TensorBuilder& build,
           StringRef reason)
      : graph_(graph), node_(node), values_(values), build_(build), b_(build.b), reason_(reason) {}

  Values emit() {
    SmallVector<Attribute> arguments;
    for (auto [position, argument] : llvm::enumerate(node_.arguments))
      arguments.push_back(attribute(argument, node_.schema->parameters[position].name));
    collectResult(node_.meta);
    auto op = AtenOp::create(b_, result_types_, operands_, b_.getStringAttr(node_.schema->op),
                             b_.getStringAttr(node_.schema->overload), b_.getArrayAttr(arguments),
                             b_.getArrayAttr(operand_strides_), b_.getArrayAttr(result_strides_),
                             b_.getStringAttr(reason_), node_.ordered, node_.schema->random, DenseI64ArrayAttr());
    if (static_cast<int64_t>(result_positions_.size()) != num_results_)
      op.setResultPositions(result_positions_);
    if (std::optional<unsigned> viewed = viewedBy(node_))
      op->setDiscardableAttr("zefuse.views", b_.getI64IntegerAttr(numbers_.at(*viewed)));
    Values results(num_results_);
    for (auto [position, value] : llvm::zip(result_positions_, op.getResults()))
      results[position] = value;
    return results;
  }

private:
  [[noreturn]] void fail(const Twine& what) const {
    throw ImportError(("FX node '" + node_.name + "' (" + node_.schema->op + "): " + what).str());
  }

  Attribute tagged(StringRef tag, Attribute value) { return b_.getDictionaryAttr(b_.getNamedAttr(tag, value)); }

  Attribute attribute(const Argument& argument, StringRef name) {
    using Kind = Argument::Kind;
    switch (argument.kind) {
    case Kind::none: return b_.getUnitAttr();
    case Kind::node: return tensor(argument.node, name);
    case Kind::size: return tagged("size", AffineMapAttr::get(AffineMap::get(0, build_.num_symbols, argument.size)));
    case Kind::integer: return b_.getI64IntegerAttr(argument.integer);
    case Kind::real: return b_.getF64FloatAttr(argument.real);
    case Kind::boolean: return b_.getBoolAttr(argument.integer != 0);
    case Kind::text: return b_.getStringAttr(argument.text);
    case Kind::dtype: return tagged("dtype", b_.getI64IntegerAttr(argument.integer));
    case Kind::layout: return tagged("layout", b_.getI64IntegerAttr(argument.integer));
    case Kind::memory_format: return tagged("memory_format", b_.getI64IntegerAttr(argument.integer));
    case Kind::device: return tagged("device", b_.getStringAttr(argument.text));
    case Kind::list: {
      SmallVector<Attribute> items;
      for (const Argument& item : argument.items)
        items.push_back(attribute(item, name));
      return b_.getArrayAttr(items);
    }
    case Kind::formula:
      return tagged("formula", AffineMapAttr::get(AffineMap::get(0, build_.num_symbols, argument.size)));
    case Kind::other:
      if (argument.maker)  // its maker goes out of the plan, not its reader
        throw ImportError("FX node '" + graph_.nodes[*argument.maker].name +
                          "': it is a real number that a plan cannot compute");
      fail("argument '" + name + "' (" + argument.text + ") cannot be passed from a plan");
    }
    llvm_unreachable("argument kind");
  }

  Attribute tensor(unsigned node, StringRef name) {
    const fx::Node& source = graph_.nodes[node];
    if (source.meta.kind != fx::Meta::Kind::tensor || values_[node].empty() || !values_[node][0])
      fail("argument '" + name + "' is not a tensor that a plan can hold");
    auto [entry, inserted] = numbers_.try_emplace(node, operands_.size());
    if (inserted) {
      operands_.push_back(values_[node][0]);
      operand_strides_.push_back(strides(source.meta.tensor));
    }
    return tagged("tensor", b_.getI64IntegerAttr(entry->second));
  }

  Attribute strides(const fx::TensorMeta& meta) { return AffineMapAttr::get(build_.map(0, exprs(meta.strides))); }

  void collectResult(const fx::Meta& meta) {
    switch (meta.kind) {
    case fx::Meta::Kind::list:
      for (const fx::Meta& item : meta.items)
        collectResult(item);
      return;
    case fx::Meta::Kind::tensor: {
      Type element = fx::elementType(meta.tensor.dtype, b_.getContext());
      if (!element || !meta.tensor.dense)
        fail("a result of " + (element ? std::string("a sparse layout") : fx::dtypeName(meta.tensor.dtype)) +
             " cannot be held by a plan");
      result_types_.push_back(build_.type(exprs(meta.tensor.sizes), element));
      result_strides_.push_back(strides(meta.tensor));
      result_positions_.push_back(num_results_++);
      return;
    }
    default:  // None, or a number that nobody may use (argument() names who does)
      ++num_results_;
    }
  }

  const fx::Graph& graph_;
  const fx::Node& node_;
  ArrayRef<Values> values_;
  TensorBuilder& build_;
  ImplicitLocOpBuilder& b_;
  StringRef reason_;
  SmallVector<Value> operands_;
  SmallVector<Attribute> operand_strides_, result_strides_;
  SmallVector<Type> result_types_;
  SmallVector<int64_t> result_positions_;
  int64_t num_results_ = 0;
  llvm::DenseMap<unsigned, int64_t> numbers_;
};

}  // namespace

Values emitFallback(const fx::Graph& graph, const fx::Node& node, ArrayRef<Values> values, TensorBuilder& build,
                    StringRef reason) {
  return Fallback(graph, node, values, build, reason).emit();
}

}  // namespace zefuse
