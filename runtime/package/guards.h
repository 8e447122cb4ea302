// What the arguments of a call must be, as torch.export found it while tracing: constants (`k == 2`), ranges of sizes
// (`x.size()[0] <= 64`), relations between sizes. The manifest has each condition as a tree (docs/aot.md) and as text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/base/api.h"
#include "runtime/package/json.h"

namespace zefuse::package {

// An argument of a call; nothing: one of another kind, such as a list. Unknown: a constant that a C caller leaves out,
// which makes every condition on it hold.
struct Unknown {};
struct None {};
struct Sizes {
  std::span<const int64_t> sizes, strides;
  int64_t offset = 0;  // in its storage, in elements
};
using Argument = std::variant<std::monostate, Unknown, None, bool, int64_t, double, std::string, Sizes>;

class ZEFUSE_API Guards {
public:
  // Nothing: an entry of the list is no condition that this version knows.
  static std::optional<Guards> read(const Json* list, size_t num_inputs);

  bool empty() const { return guards_.empty(); }
  std::vector<std::string> texts() const;
  // invalid_argument: the first condition that does not hold, and what its arguments are.
  Status check(std::span<const Argument> arguments) const;

private:
  // Evaluated by recursion; children come before their node's index is used.
  struct Node {
    enum class Kind : uint8_t { constant, input, size, stride, offset, operation } kind = Kind::constant;
    std::variant<std::monostate, bool, int64_t, double, std::string> constant;
    size_t input = 0, dim = 0;
    uint8_t operation = 0;
    std::string name;  // of an input, a size and so on, as the user calls it
    std::vector<Node> operands;
  };
  struct Guard {
    Node condition;
    std::string text;
  };
  class Evaluation;

  static bool readNode(const Json& json, size_t num_inputs, Node& node);

  std::vector<Guard> guards_;
};

}  // namespace zefuse::package
