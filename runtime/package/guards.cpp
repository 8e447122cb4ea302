#include "runtime/package/guards.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace zefuse::package {
namespace {

enum Operation : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  both,
  either,
  negation,
  negative,
  least,
  greatest,
  floor,
  ceil,
  trunc,
  absolute,
  square_root,
  is_nan,
  is_none,
  choose,
  real
};
struct Name {
  std::string_view text;
  size_t least, most;  // operands
};
constexpr size_t any = 1 << 20;
// In the order of Operation.
constexpr std::array<Name, 28> kOperations{
    {{"+", 2, any},   {"-", 2, 2},     {"*", 2, any},  {"/", 2, 2},     {"//", 2, 2},  {"%", 2, 2},
     {"**", 2, 2},    {"==", 2, 2},    {"!=", 2, 2},   {"<", 2, 2},     {"<=", 2, 2},  {">", 2, 2},
     {">=", 2, 2},    {"and", 1, any}, {"or", 1, any}, {"not", 1, 1},   {"neg", 1, 1}, {"min", 1, any},
     {"max", 1, any}, {"floor", 1, 1}, {"ceil", 1, 1}, {"trunc", 1, 1}, {"abs", 1, 1}, {"sqrt", 1, 1},
     {"isnan", 1, 1}, {"none", 1, 1},  {"if", 3, 3},   {"float", 1, 1}}};

// Python's numbers; nothing: no value (a division by zero, an overflow, an argument of another kind).
using Value = std::variant<std::monostate, Unknown, None, bool, int64_t, double, std::string>;

std::optional<int64_t> integerOf(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value))
    return *flag;
  if (const auto* number = std::get_if<int64_t>(&value))
    return *number;
  return std::nullopt;
}

std::optional<double> realOf(const Value& value) {
  if (const auto* number = std::get_if<double>(&value))
    return *number;
  if (const auto number = integerOf(value))
    return double(*number);
  return std::nullopt;
}

bool truth(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value))
    return !text->empty();
  const auto number = realOf(value);
  return number && *number != 0;
}

Value toInteger(double number) {
  if (!(number >= -9.2e18 && number <= 9.2e18))
    return {};
  return int64_t(number);
}

Value ofIntegers(Operation operation, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (operation) {
  case add: return __builtin_add_overflow(a, b, &result) ? Value() : Value(result);
  case subtract: return __builtin_sub_overflow(a, b, &result) ? Value() : Value(result);
  case multiply: return __builtin_mul_overflow(a, b, &result) ? Value() : Value(result);
  case floor_divide:
  case modulo: {
    if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
      return {};
    const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return operation == modulo ? a - quotient * b : quotient;
  }
  case power: {
    if (b < 0)
      return a == 0 ? Value() : Value(std::pow(double(a), double(b)));
    result = 1;
    if (a >= -1 && a <= 1)
      return a == -1 && b % 2 == 0 ? int64_t(1) : b == 0 ? int64_t(1) : a;
    for (int64_t i = 0; i < b; ++i)
      if (__builtin_mul_overflow(result, a, &result))
        return {};
    return result;
  }
  default: return {};
  }
}

Value ofReals(Operation operation, double a, double b) {
  switch (operation) {
  case add: return a + b;
  case subtract: return a - b;
  case multiply: return a * b;
  case divide: return b == 0 ? Value() : Value(a / b);
  case floor_divide: return b == 0 ? Value() : Value(std::floor(a / b));
  case modulo: return b == 0 ? Value() : Value(a - std::floor(a / b) * b);
  case power: return std::pow(a, b);
  default: return {};
  }
}

Value compare(Operation operation, const Value& a, const Value& b) {
  const auto *left = std::get_if<std::string>(&a), *right = std::get_if<std::string>(&b);
  auto as = [operation](const auto& x, const auto& y) -> Value {
    switch (operation) {
    case equal: return x == y;
    case not_equal: return x != y;
    case less: return x < y;
    case less_equal: return x <= y;
    case greater: return x > y;
    default: return x >= y;
    }
  };
  if (left && right)
    return as(*left, *right);
  if (const auto x = integerOf(a), y = integerOf(b); x && y)
    return as(*x, *y);
  if (const auto x = realOf(a), y = realOf(b); x && y)
    return as(*x, *y);
  if (operation == equal || operation == not_equal)
    return operation == not_equal;  // of different kinds
  return {};
}

std::string textOf(const Value& value) {
  if (std::holds_alternative<None>(value))
    return "None";
  if (const auto* flag = std::get_if<bool>(&value))
    return *flag ? "True" : "False";
  if (const auto* number = std::get_if<int64_t>(&value))
    return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&value)) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", *number);
    return text;
  }
  if (const auto* text = std::get_if<std::string>(&value))
    return "'" + *text + "'";
  return "of another kind";
}

}  // namespace

class Guards::Evaluation {
public:
  explicit Evaluation(std::span<const Argument> arguments) : arguments_(arguments) {}

  Value of(const Node& node) const {
    switch (node.kind) {
    case Node::Kind::constant: return std::visit([](const auto& value) -> Value { return value; }, node.constant);
    case Node::Kind::input:
      return std::visit(
          [](const auto& value) -> Value {
            if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Sizes>)
              return {};
            else
              return value;
          },
          arguments_[node.input]);
    case Node::Kind::size:
    case Node::Kind::stride:
    case Node::Kind::offset: {
      const auto* tensor = std::get_if<Sizes>(&arguments_[node.input]);
      if (!tensor)
        return {};
      if (node.kind == Node::Kind::offset)
        return tensor->offset;
      const auto numbers = node.kind == Node::Kind::size ? tensor->sizes : tensor->strides;
      return node.dim < numbers.size() ? Value(numbers[node.dim]) : Value();
    }
    case Node::Kind::operation: return apply(node);
    }
    return {};
  }

  // "x.size()[0] is 65": once for each name in the condition.
  void leaves(const Node& node, std::vector<std::string>& texts) const {
    if (!node.name.empty())
      if (std::string text = leaf(node); std::ranges::find(texts, text) == texts.end())
        texts.push_back(std::move(text));
    for (const Node& operand : node.operands)
      leaves(operand, texts);
  }

private:
  std::string leaf(const Node& node) const {
    const Argument& argument = arguments_[node.input];
    if (node.kind == Node::Kind::input)
      return node.name + (std::holds_alternative<Sizes>(argument) ? " is a tensor" : " is " + textOf(of(node)));
    const std::string tensor = node.name.substr(0, node.name.rfind('.'));
    if (const auto* sizes = std::get_if<Sizes>(&argument); sizes && node.dim >= sizes->sizes.size())
      return tensor + " has " + std::to_string(sizes->sizes.size()) +
             (sizes->sizes.size() == 1 ? " dimension" : " dimensions");
    return std::holds_alternative<Sizes>(argument) ? node.name + " is " + textOf(of(node)) : tensor + " is no tensor";
  }

  Value apply(const Node& node) const {
    const auto operation = Operation(node.operation);
    if (operation == both || operation == either) {
      Value last;
      for (const Node& operand : node.operands) {
        last = of(operand);
        if (std::holds_alternative<std::monostate>(last) || std::holds_alternative<Unknown>(last) ||
            truth(last) == (operation == either))
          return last;
      }
      return last;
    }
    if (operation == choose) {
      const Value condition = of(node.operands[0]);
      if (std::holds_alternative<std::monostate>(condition) || std::holds_alternative<Unknown>(condition))
        return condition;
      return of(node.operands[truth(condition) ? 1 : 2]);
    }
    Value result = of(node.operands[0]);
    if (node.operands.size() == 1)
      return alone(operation, result);
    for (size_t i = 1; i < node.operands.size(); ++i)
      result = two(operation, result, of(node.operands[i]));
    return result;
  }

  static Value alone(Operation operation, const Value& value) {
    if (std::holds_alternative<Unknown>(value))
      return value;
    if (operation == is_none)
      return std::holds_alternative<None>(value);
    if (operation == negation)
      return std::holds_alternative<std::monostate>(value) ? Value() : Value(!truth(value));
    const auto integer = integerOf(value);
    const auto number = realOf(value);
    if (!number)
      return {};
    switch (operation) {
    case negative: return integer ? ofIntegers(subtract, 0, *integer) : Value(-*number);
    case absolute:
      return integer ? (*integer < 0 ? ofIntegers(subtract, 0, *integer) : Value(*integer)) : Value(std::fabs(*number));
    case floor: return integer ? Value(*integer) : toInteger(std::floor(*number));
    case ceil: return integer ? Value(*integer) : toInteger(std::ceil(*number));
    case trunc: return integer ? Value(*integer) : toInteger(std::trunc(*number));
    case square_root: return *number < 0 ? Value() : Value(std::sqrt(*number));
    case is_nan: return std::isnan(*number);
    case real: return *number;
    default: return value;  // the sum, least, ... of one
    }
  }

  static Value two(Operation operation, const Value& a, const Value& b) {
    if (std::holds_alternative<Unknown>(a) || std::holds_alternative<Unknown>(b))
      return Unknown{};
    if (std::holds_alternative<std::monostate>(a) || std::holds_alternative<std::monostate>(b))
      return {};
    if (operation >= equal && operation <= greater_equal)
      return compare(operation, a, b);
    if (operation == least || operation == greatest) {
      const Value less_than = compare(less, a, b);
      if (!std::holds_alternative<bool>(less_than))
        return {};
      return std::get<bool>(less_than) == (operation == least) ? a : b;
    }
    const auto x = integerOf(a), y = integerOf(b);
    if (x && y && operation != divide)
      return ofIntegers(operation, *x, *y);
    const auto p = realOf(a), q = realOf(b);
    return p && q ? ofReals(operation, *p, *q) : Value();
  }

  std::span<const Argument> arguments_;
};

// A number, true or false: itself. ["real", "0x1.8p+0"], ["text", "a"]. ["input", number, name],
// ["size", number, dim, name], ["stride", ...], ["offset", number, name]. Else [operation, operand...].
bool Guards::readNode(const Json& json, size_t num_inputs, Node& node) {
  if (const auto number = json.integer()) {
    node.constant = *number;
    return true;
  }
  if (const auto flag = json.boolean()) {
    node.constant = *flag;
    return true;
  }
  const Json::Array& list = json.array();
  if (list.size() < 2)
    return false;
  const std::string head = list[0].text().value_or("");
  const auto text = list[1].text();
  if (head == "real" || head == "text") {
    if (!text)
      return false;
    if (head == "text")
      node.constant = *text;
    else
      node.constant = std::strtod(text->c_str(), nullptr);
    return true;
  }
  const bool size = head == "size" || head == "stride";
  if (size || head == "input" || head == "offset") {
    const int64_t input = list[1].integer().value_or(-1),
                  dim = size && list.size() > 2 ? list[2].integer().value_or(-1) : 0;
    if (input < 0 || size_t(input) >= num_inputs || dim < 0 || list.size() != (size ? 4 : 3))
      return false;
    node.kind = head == "input"    ? Node::Kind::input
                : head == "offset" ? Node::Kind::offset
                : head == "size"   ? Node::Kind::size
                                   : Node::Kind::stride;
    node.input = size_t(input);
    node.dim = size_t(dim);
    node.name = list.back().text().value_or("an argument");
    return true;
  }
  const auto known = std::ranges::find(kOperations, std::string_view(head), &Name::text);
  if (known == kOperations.end() || list.size() - 1 < known->least || list.size() - 1 > known->most)
    return false;
  node.kind = Node::Kind::operation;
  node.operation = uint8_t(known - kOperations.begin());
  node.operands.resize(list.size() - 1);
  for (size_t i = 1; i < list.size(); ++i)
    if (!readNode(list[i], num_inputs, node.operands[i - 1]))
      return false;
  return true;
}

std::optional<Guards> Guards::read(const Json* list, size_t num_inputs) {
  Guards guards;
  for (const Json& item : list ? list->array() : Json::Array()) {
    Guard guard;
    const Json* condition = item.find("condition");
    guard.text = item.textOr("text");
    if (!condition || !readNode(*condition, num_inputs, guard.condition))
      return std::nullopt;
    guards.guards_.push_back(std::move(guard));
  }
  return guards;
}

std::vector<std::string> Guards::texts() const {
  std::vector<std::string> all;
  for (const Guard& guard : guards_)
    all.push_back(guard.text);
  return all;
}

Status Guards::check(std::span<const Argument> arguments) const {
  const Evaluation evaluation(arguments);
  for (const Guard& guard : guards_) {
    const Value value = evaluation.of(guard.condition);
    if (std::holds_alternative<Unknown>(value) || truth(value)) [[likely]]
      continue;
    std::vector<std::string> leaves;
    evaluation.leaves(guard.condition, leaves);
    std::string text;
    for (const std::string& leaf : leaves)
      text += (text.empty() ? "" : ", ") + leaf;
    return {Code::invalid_argument, "input: the program was exported for " + guard.text + ", but " + text +
                                        "; pass what it allows, or export it for this too"};
  }
  return {};
}

}  // namespace zefuse::package
