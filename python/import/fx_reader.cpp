#include "python/import/fx_reader.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "compiler/import/errors.h"
#include "compiler/import/number_tree.h"
#include "python/import/node_origin.h"
#include "python/import/sympy_reader.h"

namespace py = pybind11;

namespace zefuse {
namespace {
using fx::Argument;
using fx::Meta;
using fx::Node;

std::string text(py::handle value) { return py::str(value).cast<std::string>(); }
// Such a symbol has no value at run time: torch passes an object that only says which lengths are the same.
bool isNested(py::handle sym_int) { return py::bool_(sym_int.attr("node").attr("is_nested_int")()); }
const char* typeName(py::handle value) { return Py_TYPE(value.ptr())->tp_name; }

class Reader {
public:
  Reader(mlir::MLIRContext& context, const py::object& graph_module);
  FxGraph read();

private:
  void readNode(const py::object& node);
  void noteComputation(const py::object& node, py::handle value);
  std::optional<fx::NumberTree> numberOf(py::handle argument);
  void readConstant(const py::object& node, Node& into);
  void readCall(const py::object& node, const py::object& target, Node& into);
  void readOperator(const py::object& node, const py::object& target, const py::tuple& arguments, Node& into);
  void readGetitem(const py::tuple& arguments, Node& into);
  bool isPassedToken(const py::object& node);
  std::shared_ptr<const fx::Schema> schemaOf(const py::object& target);
  bool makesNothing(const py::object& target);
  Argument argument(py::handle value);
  Argument defaultValue(py::handle parameter);
  void readPosition(const py::tuple& arguments, Node& into);
  void readAssertion(const py::tuple& arguments, Node& into);
  Meta meta(py::handle value);
  fx::TensorMeta tensorMeta(py::handle value);
  void findSymbolSources();
  [[noreturn]] void fail(const Node& node, const std::string& reason) {
    throw ImportError("FX node '" + node.name + "': " + reason);
  }

  mlir::MLIRContext& context_;
  py::object graph_module_;
  py::object torch_;
  py::handle node_type_, tensor_type_, sym_int_type_, sym_float_type_, dtype_type_, layout_type_, memory_format_type_,
      device_type_;
  std::vector<py::object> alive_;
  py::object getitem_, with_effects_;
  std::unordered_map<PyObject*, int> numbers_;  // dtypes, layouts and memory formats: singletons
  std::unordered_map<PyObject*, std::shared_ptr<const fx::Schema>> schemas_;
  std::unordered_map<PyObject*, unsigned> indices_;  // FX node to its index in the graph
  std::unordered_map<unsigned, unsigned> tokens_;    // of a call under with_effects: the node that is its token
  fx::SympyReader sympy_;
  std::vector<std::string> symbol_owners_;  // the node in whose meta each symbol was met first
  FxGraph result_;
  unsigned num_inputs_ = 0;
};

Reader::Reader(mlir::MLIRContext& context, const py::object& graph_module)
    : context_(context), graph_module_(graph_module), torch_(py::module_::import("torch")), sympy_(context) {
  auto keep = [&](py::object object) {
    alive_.push_back(object);
    return py::handle(object);
  };
  node_type_ = keep(py::module_::import("torch.fx").attr("Node"));
  tensor_type_ = keep(torch_.attr("Tensor"));
  sym_int_type_ = keep(torch_.attr("SymInt"));
  sym_float_type_ = keep(torch_.attr("SymFloat"));
  dtype_type_ = keep(torch_.attr("dtype"));
  layout_type_ = keep(torch_.attr("layout"));
  memory_format_type_ = keep(torch_.attr("memory_format"));
  device_type_ = keep(torch_.attr("device"));
  getitem_ = py::module_::import("operator").attr("getitem");
  with_effects_ = torch_.attr("ops").attr("higher_order").attr("with_effects");
  static const std::pair<const char*, int> numbers[] = {
      {"uint8", 0},           {"int8", 1},          {"int16", 2},           {"int32", 3},      {"int64", 4},
      {"float16", 5},         {"float32", 6},       {"float64", 7},         {"complex32", 8},  {"complex64", 9},
      {"complex128", 10},     {"bool", 11},         {"qint8", 12},          {"quint8", 13},    {"qint32", 14},
      {"bfloat16", 15},       {"strided", 0},       {"sparse_coo", 1},      {"sparse_csr", 2}, {"contiguous_format", 0},
      {"preserve_format", 1}, {"channels_last", 2}, {"channels_last_3d", 3}};
  for (auto [name, number] : numbers)
    numbers_[torch_.attr(name).ptr()] = number;
}

FxGraph Reader::read() {
  // Tensor attributes of FakeTensor would otherwise each enter Python's __torch_function__.
  py::object no_torch_function = py::module_::import("torch._C").attr("DisableTorchFunctionSubclass")();
  no_torch_function.attr("__enter__")();
  try {
    // A list first: torch's own node iterator never ends for PyIter_Next.
    for (py::handle node : py::list(graph_module_.attr("graph").attr("nodes")))
      readNode(py::reinterpret_borrow<py::object>(node));
  } catch (...) {
    no_torch_function.attr("__exit__")(py::none(), py::none(), py::none());
    throw;
  }
  no_torch_function.attr("__exit__")(py::none(), py::none(), py::none());
  findSymbolSources();
  return std::move(result_);
}

void Reader::readNode(const py::object& node) {
  std::string op = text(node.attr("op"));
  fx::Graph& graph = result_.graph;
  if (op == "output") {
    py::tuple arguments = node.attr("args");
    py::object outputs = arguments[0];
    if (!py::isinstance<py::tuple>(outputs) && !py::isinstance<py::list>(outputs))
      outputs = py::make_tuple(outputs);
    graph.outputs = argument(outputs).items;
    // python/zefuse/saved_strides.py writes the first and an input's zefuse_strides, output_aliases.py the second.
    py::dict metadata = node.attr("meta");
    if (metadata.contains("zefuse_any_strides"))
      for (py::handle number : metadata["zefuse_any_strides"])
        graph.any_strides.push_back(py::cast<unsigned>(number));
    if (metadata.contains("zefuse_aliases"))
      for (py::handle number : metadata["zefuse_aliases"])
        graph.aliases.push_back(py::cast<unsigned>(number));
    return;
  }
  Node into;
  into.name = text(node.attr("name"));
  py::dict metadata = node.attr("meta");
  if (op != "get_attr") {
    // Tracing says nothing of an operator that makes nothing: an assertion.
    const bool none = !metadata.contains("val") && op == "call_function" && makesNothing(node.attr("target"));
    if (!none && !metadata.contains("val"))
      fail(into, "it has no meta['val']: trace the graph with fake tensors (AOTAutograd or make_fx)");
    const py::object value = none ? py::none() : py::object(metadata["val"]);
    if (op == "call_function")
      noteComputation(node, value);
    into.meta = meta(value);
    if (op == "placeholder" &&
        reinterpret_cast<PyObject*>(Py_TYPE(py::object(metadata["val"]).ptr())) == sym_float_type_.ptr()) {
      into.meta.kind = Meta::Kind::real;
      into.meta.size = sympy_.realInput(metadata["val"]);
    }
    symbol_owners_.resize(sympy_.symbols().size(), into.name);
  }
  if (op == "placeholder") {
    into.kind = Node::Kind::input;
    ++num_inputs_;
    into.users_name = metadata.contains("zefuse_name") ? text(metadata["zefuse_name"]) : into.name;
    if (metadata.contains("zefuse_strides"))
      for (py::handle stride : metadata["zefuse_strides"])
        into.given_strides.push_back(sympy_.stride(stride));
  } else if (op == "get_attr") {
    readConstant(node, into);
  } else if (op == "call_function") {
    if (isPassedToken(node))
      return;
    readLocation(metadata, into);
    readModule(metadata, into);
    readCall(node, node.attr("target"), into);
  } else {
    fail(into, "op '" + op + "' is not part of a functional ATen graph: trace the module first");
  }
  indices_[node.ptr()] = graph.nodes.size();
  alive_.push_back(node);
  graph.nodes.push_back(std::move(into));
}

// A node that makes a number of real ones: sympy rearranges what it says (x * 0.7 * 3 becomes x * 2.1, another number),
// the nodes are what eager computes.
void Reader::noteComputation(const py::object& node, py::handle value) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(value.ptr()));
  if (type != sym_int_type_.ptr() && type != sym_float_type_.ptr())
    return;
  py::object target = node.attr("target");
  if (py::hasattr(target, "_schema") || !py::hasattr(target, "__name__") || !py::dict(node.attr("kwargs")).empty())
    return;
  std::vector<fx::NumberTree> arguments;
  for (py::handle argument : py::tuple(node.attr("args"))) {
    auto tree = numberOf(argument);
    if (!tree)
      return;
    arguments.push_back(std::move(*tree));
  }
  if (auto tree = fx::computation(text(target.attr("__name__")), std::move(arguments)); tree && fx::usesReal(*tree))
    sympy_.define(value, std::move(*tree));
}

std::optional<fx::NumberTree> Reader::numberOf(py::handle value) {
  const Argument number = argument(value);
  switch (number.kind) {
  case Argument::Kind::integer: return fx::NumberTree{"", fx::SizeExpr::constant(context_, number.integer), {}, {}};
  case Argument::Kind::size: return fx::NumberTree{"", number.size, {}, {}};
  case Argument::Kind::real: return fx::NumberTree{"", {}, number.real, {}};
  case Argument::Kind::formula: return fx::NumberTree{"from_bits", {}, {}, {{"", number.size, {}, {}}}};
  default: return std::nullopt;
  }
}

void Reader::readConstant(const py::object& node, Node& into) {
  std::string path = text(node.attr("target"));
  py::object value = graph_module_;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('.', begin), path.size());
    value = value.attr(path.substr(begin, end - begin).c_str());
    begin = end + 1;
  }
  if (!py::isinstance(value, tensor_type_))
    fail(into, "attribute '" + path + "' is a " + typeName(value) +
                   ", not a tensor (higher-order operators are not supported)");
  into.meta = meta(value);
  if (into.meta.tensor.sizes.empty() && into.meta.tensor.dense) {
    // A backend is called under a FakeTensorMode, which refuses to look into a real tensor.
    py::object no_modes = py::module_::import("torch.utils._python_dispatch").attr("_disable_current_modes")();
    no_modes.attr("__enter__")();
    py::object number = value.attr("item")();
    no_modes.attr("__exit__")(py::none(), py::none(), py::none());
    if (PyBool_Check(number.ptr()) || PyLong_Check(number.ptr()) || PyFloat_Check(number.ptr())) {
      into.kind = Node::Kind::scalar;
      into.literal = argument(number);
      return;
    }
  }
  into.kind = Node::Kind::constant;
  into.constant = result_.constants.size();
  result_.constants.push_back(value);
}

void Reader::readCall(const py::object& node, const py::object& target, Node& into) {
  if (into.meta.kind == Meta::Kind::size || into.meta.kind == Meta::Kind::real || into.meta.kind == Meta::Kind::other) {
    into.kind = Node::Kind::size;
    return;
  }
  py::tuple arguments = node.attr("args");
  if (target.is(getitem_))
    return readGetitem(arguments, into);
  if (target.is(with_effects_)) {
    // with_effects(token, op, *args) gives (token, *results). The token only says that the order matters; at run time
    // it is None.
    unsigned token = indices_.at(py::object(arguments[0]).ptr());
    result_.graph.nodes[token].meta = Meta();
    tokens_[result_.graph.nodes.size()] = token;
    into.ordered = true;
    into.meta.items.erase(into.meta.items.begin());
    py::object op = arguments[1];
    readOperator(node, op, arguments[py::slice(2, static_cast<py::ssize_t>(arguments.size()), 1)], into);
    return;
  }
  readOperator(node, target, arguments, into);
}

void Reader::readGetitem(const py::tuple& arguments, Node& into) {
  Argument source = argument(arguments[0]);
  if (source.kind != Argument::Kind::node)
    fail(into, "getitem of something that is not an operator's result");
  into.kind = Node::Kind::getitem;
  into.source = source.node;
  into.item = py::cast<unsigned>(arguments[1]) - (tokens_.count(into.source) ? 1 : 0);
  std::vector<bool>& used = result_.graph.nodes[into.source].used;
  if (into.item < used.size())
    used[into.item] = true;
}

// Item 0 of a call under with_effects is the token again.
bool Reader::isPassedToken(const py::object& node) {
  if (!py::object(node.attr("target")).is(getitem_))
    return false;
  py::tuple arguments = node.attr("args");
  auto source = indices_.find(py::object(arguments[0]).ptr());
  if (source == indices_.end() || py::cast<unsigned>(arguments[1]) != 0)
    return false;
  auto token = tokens_.find(source->second);
  if (token == tokens_.end())
    return false;
  indices_[node.ptr()] = token->second;
  alive_.push_back(node);
  return true;
}

bool Reader::makesNothing(const py::object& target) {
  const auto schema = schemaOf(target);
  return schema && schema->no_results;
}

void Reader::readOperator(const py::object& node, const py::object& target, const py::tuple& arguments, Node& into) {
  into.kind = Node::Kind::call;
  into.schema = schemaOf(target);
  if (!into.schema)
    fail(into, "its target " + py::repr(target).cast<std::string>() +
                   " is not an operator of torch.ops (higher-order operators and Python functions cannot be compiled)");
  into.ordered |= into.schema->random || into.schema->no_results;
  into.arguments.reserve(into.schema->parameters.size());
  py::dict keywords = node.attr("kwargs");
  for (size_t position = 0; position < into.schema->parameters.size(); ++position) {
    const fx::Schema::Parameter& parameter = into.schema->parameters[position];
    if (position < arguments.size())
      into.arguments.push_back(argument(arguments[position]));
    else if (!keywords.empty() && keywords.contains(parameter.name.c_str()))
      into.arguments.push_back(argument(keywords[parameter.name.c_str()]));
    else
      into.arguments.push_back(parameter.default_value);
  }
  readPosition(arguments, into);
  readAssertion(arguments, into);
  if (into.meta.kind == Meta::Kind::list)
    into.used.assign(into.meta.items.size(), false);
  else
    into.used.assign(1, !py::dict(node.attr("users")).empty());
}

std::shared_ptr<const fx::Schema> Reader::schemaOf(const py::object& target) {
  auto found = schemas_.find(target.ptr());
  if (found != schemas_.end())
    return found->second;
  if (!py::hasattr(target, "_schema") || !py::hasattr(target, "_overloadname"))
    return nullptr;
  py::object torch_schema = target.attr("_schema");
  auto schema = std::make_shared<fx::Schema>();
  schema->target = text(target);
  schema->op = text(torch_schema.attr("name"));
  schema->overload = text(torch_schema.attr("overload_name"));
  for (py::handle given : torch_schema.attr("arguments")) {
    fx::Schema::Parameter parameter;
    parameter.name = text(given.attr("name"));
    if (py::bool_(given.attr("has_default_value")()))
      parameter.default_value = defaultValue(given);
    if (py::object alias = given.attr("alias_info");
        !alias.is_none() && !py::bool_(alias.attr("is_write")) && schema->view_of < 0)
      schema->view_of = schema->parameters.size();
    schema->parameters.push_back(std::move(parameter));
  }
  schema->no_results = py::len(torch_schema.attr("returns")) == 0;
  py::object seeded = torch_.attr("Tag").attr("nondeterministic_seeded");
  for (py::handle tag : target.attr("tags"))
    schema->random |= tag.equal(seeded);
  schemas_[target.ptr()] = schema;
  alive_.push_back(target);
  return schema;
}

// Emitters take a position as it is where it or the dimension's size is symbolic: here it is counted from the
// beginning. A number that is selected stays as it is: one out of range is an error, and no other position.
void Reader::readPosition(const py::tuple& arguments, Node& into) {
  static const std::string_view ops[] = {"aten::slice", "aten::select", "aten::slice_scatter", "aten::select_scatter"};
  if (std::ranges::find(ops, into.schema->op) == std::end(ops))
    return;
  auto valueOf = [&](py::object value) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())) == node_type_.ptr())
      value = py::dict(value.attr("meta"))["val"];
    return value;
  };
  for (size_t number = 0; number < into.schema->parameters.size(); ++number) {
    const fx::Schema::Parameter& parameter = into.schema->parameters[number];
    if ((parameter.name != "start" && parameter.name != "index") || number >= arguments.size())
      continue;
    Argument& start = into.arguments[number];
    const size_t dim_at = into.schema->op.find("scatter") == std::string::npos ? 1 : 2;
    if ((start.kind != Argument::Kind::size && start.kind != Argument::Kind::integer) ||
        into.arguments[dim_at].kind != Argument::Kind::integer)
      continue;
    py::tuple shape = valueOf(arguments[0]).attr("shape");
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t dim = into.arguments[dim_at].integer;
    if (dim < -rank || dim >= rank)
      continue;
    py::object size = shape[static_cast<size_t>(dim < 0 ? dim + rank : dim)], given = valueOf(arguments[number]);
    const bool clamped = parameter.name == "start";
    if (PyLong_Check(given.ptr()) && (!clamped || PyLong_Check(size.ptr()) || start.integer == 0))
      continue;
    fx::SizeExpr position = sympy_.position(given, size, clamped);
    start = Argument();
    if (!position) {
      start.kind = Argument::Kind::other;
      start.text = text(arguments[number]) + ", which may be counted from the end or not";
    } else if (const std::optional<int64_t> constant = position.constant()) {
      start.kind = Argument::Kind::integer;
      start.integer = *constant;
    } else {
      start.kind = Argument::Kind::size;
      start.size = position;
    }
  }
}

// What tracing has taken for granted of sizes without a guard: a number that is not negative.
void Reader::readAssertion(const py::tuple& arguments, Node& into) {
  if (into.schema->target != "aten._assert_scalar.default" || arguments.empty() ||
      reinterpret_cast<PyObject*>(Py_TYPE(py::object(arguments[0]).ptr())) != node_type_.ptr())
    return;
  py::object value = py::dict(py::object(arguments[0]).attr("meta"))["val"];
  const fx::SizeExpr least = typeName(value) == std::string_view("SymBool") ? sympy_.condition(value) : fx::SizeExpr();
  if (!least)
    return;
  into.arguments[0].kind = Argument::Kind::size;
  into.arguments[0].size = least;
}

// A schema holds the default of a dtype, a layout or a memory format as a number.
Argument Reader::defaultValue(py::handle parameter) {
  using Kind = Argument::Kind;
  Argument value = argument(parameter.attr("default_value"));
  if (value.kind != Kind::integer)
    return value;
  const std::string type = text(parameter.attr("real_type"));
  for (auto [name, kind] : {std::pair("ScalarType", Kind::dtype), std::pair("Layout", Kind::layout),
                            std::pair("MemoryFormat", Kind::memory_format)})
    if (type == name || type == std::string("Optional[") + name + "]")
      value.kind = kind;
  return value;
}

Argument Reader::argument(py::handle value) {
  Argument result;
  using Kind = Argument::Kind;
  PyObject* object = value.ptr();
  PyTypeObject* type = Py_TYPE(object);
  auto size = [&](fx::SizeExpr expr) {
    if (const std::optional<int64_t> number = expr.constant()) {
      result.kind = Kind::integer;
      result.integer = *number;
    } else {
      result.kind = Kind::size;
      result.size = expr;
    }
  };
  auto number = [&](Kind kind) {
    result.kind = kind;
    auto found = numbers_.find(object);
    if (found == numbers_.end()) {
      result.kind = Kind::other;
      result.text = text(value);
    } else {
      result.integer = found->second;
    }
  };
  if (object == Py_None)
    return result;
  if (reinterpret_cast<PyObject*>(type) == node_type_.ptr()) {
    auto found = indices_.find(object);
    if (found == indices_.end())
      throw ImportError("FX node '" + text(value) + "' is used before it is defined");
    const Node& node = result_.graph.nodes[found->second];
    if (node.meta.kind == Meta::Kind::size) {
      size(node.meta.size);
    } else if (node.meta.kind == Meta::Kind::real) {
      result.kind = Kind::formula;
      result.size = node.meta.size;
    } else if (node.meta.kind == Meta::Kind::none) {
      return result;
    } else if (node.meta.kind == Meta::Kind::other) {
      result.kind = Kind::other;
      result.text = node.name + ", a " + node.meta.text;
      if (node.meta.text == "SymFloat")
        result.maker = found->second;
    } else {
      result.kind = Kind::node;
      result.node = found->second;
    }
  } else if (PyBool_Check(object)) {
    result.kind = Kind::boolean;
    result.integer = object == Py_True;
  } else if (PyLong_Check(object)) {
    result.kind = Kind::integer;
    result.integer = PyLong_AsLongLong(object);
  } else if (PyFloat_Check(object)) {
    result.kind = Kind::real;
    result.real = PyFloat_AS_DOUBLE(object);
  } else if (PyUnicode_Check(object)) {
    result.kind = Kind::text;
    result.text = text(value);
  } else if (PyList_Check(object) || PyTuple_Check(object)) {
    result.kind = Kind::list;
    for (py::handle item : value)
      result.items.push_back(argument(item));
  } else if (reinterpret_cast<PyObject*>(type) == sym_int_type_.ptr()) {
    size(sympy_.size(value));
  } else if (reinterpret_cast<PyObject*>(type) == dtype_type_.ptr()) {
    number(Kind::dtype);
  } else if (reinterpret_cast<PyObject*>(type) == layout_type_.ptr()) {
    number(Kind::layout);
  } else if (reinterpret_cast<PyObject*>(type) == memory_format_type_.ptr()) {
    number(Kind::memory_format);
  } else if (reinterpret_cast<PyObject*>(type) == device_type_.ptr()) {
    result.kind = Kind::device;
    result.text = text(value);
  } else {
    result.kind = Kind::other;
    result.text = py::repr(value).cast<std::string>();
  }
  return result;
}

Meta Reader::meta(py::handle value) {
  Meta result;
  PyObject* object = value.ptr();
  if (object == Py_None)
    return result;
  if (PyObject_IsInstance(object, tensor_type_.ptr()) == 1) {
    result.kind = Meta::Kind::tensor;
    result.tensor = tensorMeta(value);
  } else if (PyList_Check(object) || PyTuple_Check(object)) {
    result.kind = Meta::Kind::list;
    for (py::handle item : value)
      result.items.push_back(meta(item));
  } else if (reinterpret_cast<PyObject*>(Py_TYPE(object)) == sym_int_type_.ptr() && isNested(value)) {
    result.kind = Meta::Kind::other;
    result.text = "SymInt that stands for a nested tensor's lengths";
  } else if ((PyLong_Check(object) && !PyBool_Check(object)) ||
             reinterpret_cast<PyObject*>(Py_TYPE(object)) == sym_int_type_.ptr()) {
    result.kind = Meta::Kind::size;
    result.size = sympy_.size(value);
  } else {
    result.kind = Meta::Kind::other;
    result.text = typeName(value);
    if (reinterpret_cast<PyObject*>(Py_TYPE(object)) == sym_float_type_.ptr())
      if (fx::SizeExpr bits = sympy_.real(value)) {
        result.kind = Meta::Kind::real;
        result.size = bits;
      }
  }
  return result;
}

fx::TensorMeta Reader::tensorMeta(py::handle value) {
  fx::TensorMeta result;
  auto dtype = numbers_.find(value.attr("dtype").ptr());
  result.dtype = dtype == numbers_.end() ? -1 : dtype->second;
  result.dense = numbers_.count(value.attr("layout").ptr()) && numbers_[value.attr("layout").ptr()] == 0;
  for (py::handle size : value.attr("shape"))
    result.sizes.push_back(sympy_.size(size));
  result.offset = fx::SizeExpr::constant(context_, 0);
  if (!result.dense)
    return result;
  for (py::handle stride : value.attr("stride")())
    result.strides.push_back(sympy_.stride(stride));
  result.offset = sympy_.size(value.attr("storage_offset")());
  return result;
}

void Reader::findSymbolSources() {
  fx::Graph& graph = result_.graph;
  graph.symbols = sympy_.symbols();
  std::vector<std::optional<fx::SymbolSource>> sources(graph.symbols.size());
  auto offer = [&](fx::SizeExpr expr, unsigned input, int dim) {
    const std::optional<unsigned> symbol = expr ? expr.symbol() : std::nullopt;
    if (symbol && (!sources[*symbol] || dim < 0))
      sources[*symbol] = fx::SymbolSource{input, dim, std::nullopt};
  };
  unsigned input = 0;
  for (const Node& node : graph.nodes) {
    if (node.kind != Node::Kind::input)
      continue;
    if (node.meta.kind == Meta::Kind::size || node.meta.kind == Meta::Kind::real)
      offer(node.meta.size, input, -1);
    if (node.meta.kind == Meta::Kind::tensor)
      for (size_t dim = 0; dim < node.meta.tensor.sizes.size(); ++dim)
        offer(node.meta.tensor.sizes[dim], input, static_cast<int>(dim));
    ++input;
  }
  for (unsigned number = 0; number < sources.size(); ++number) {
    std::optional<fx::SymbolSource>& source = sources[number];
    if (const fx::NumberTree* definition = sympy_.definition(number); definition && !source)
      source = fx::SymbolSource{0, -1, *definition};
    if (!source)
      throw ImportError(
          "FX node '" + (number < symbol_owners_.size() ? symbol_owners_[number] : std::string("?")) +
          "': the symbolic size " + graph.symbols[number] +
          " is neither the size of an input nor an expression that a plan can compute: make that dimension "
          "static (torch.compile(..., dynamic=False) or torch._dynamo.mark_static)");
    graph.symbol_sources.push_back(*source);
  }
}

}  // namespace

FxGraph readGraph(mlir::MLIRContext& context, const py::object& graph_module) {
  return Reader(context, graph_module).read();
}

}  // namespace zefuse
