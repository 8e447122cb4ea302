// An FX graph as plain C++ data: what fx_reader makes from the Python objects, and all that the importer sees. Nothing
// here refers to Python, so operators can be added and tested without it, nor to MLIR's headers, so that the reader is
// compiled without them. Sizes are affine expressions over the graph's symbols.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/import/size_expr.h"

namespace zefuse::fx {

struct TensorMeta {
  int dtype = -1;  // torch's ScalarType number
  Sizes sizes, strides;
  SizeExpr offset;    // elements from the storage's start
  bool dense = true;  // strided layout; on the CPU or the plan's device, as python/zefuse/parts.py has seen to
};

// What is known of a node's value before it is computed (meta["val"]).
struct Meta {
  enum class Kind : uint8_t { none, tensor, size, real, list, other };
  Kind kind = Kind::none;
  TensorMeta tensor;
  SizeExpr size;            // size: a constant too; real: the symbol whose value is the number's bits
  std::vector<Meta> items;  // list: several results
  std::string text;         // other: the Python type's name
};

struct Argument {
  enum class Kind : uint8_t {
    none,
    node,
    size,
    integer,
    real,
    formula,
    boolean,
    text,
    dtype,
    layout,
    memory_format,
    device,
    list,
    other
  };
  Kind kind = Kind::none;
  unsigned node = 0;    // node: index into Graph::nodes, a tensor (or several)
  SizeExpr size;        // size: not a constant; formula (a real number that sizes decide): the symbol of its bits
  int64_t integer = 0;  // integer, boolean; dtype, layout, memory_format: torch's numbers
  double real = 0;
  std::string text;               // text, device; other: its repr
  std::optional<unsigned> maker;  // other: the node that makes it, where it is a real number
  std::vector<Argument> items;    // list
};

struct Schema {
  struct Parameter {
    std::string name;
    Argument default_value;
  };
  std::string target;    // "aten.add.Tensor"
  std::string op;        // "aten::add"
  std::string overload;  // "Tensor", "" for the default one
  std::vector<Parameter> parameters;
  bool random = false;      // draws from torch's generator
  int view_of = -1;         // the parameter whose memory the results share, by the schema; -1: results are fresh
  bool no_results = false;  // runs for its effect
};

struct Node {
  enum class Kind : uint8_t {
    input,     // a placeholder
    constant,  // a tensor held by the module
    scalar,    // a constant of one element, `literal` is its value
    call,
    getitem,  // result `item` of node `source`
    size      // symbolic arithmetic: only its meta matters
  };
  Kind kind = Kind::call;
  std::string name;
  std::shared_ptr<const Schema> schema;  // call
  std::vector<Argument> arguments;       // call: in the schema's order, defaults filled in
  bool ordered = false;                  // call: has an effect besides its results, so it stays in program order
  Meta meta;
  std::string users_name;  // input: what the user calls it, for messages
  Sizes given_strides;     // input: how its tensor lies, where that is not meta.tensor.strides; else empty
  Argument literal;
  unsigned source = 0, item = 0;
  unsigned constant = 0;  // constant: its number
  std::string file;       // of the user's line that made the node; "" when unknown
  unsigned line = 0;
  std::string module;      // path of the user's module that made it: "encoder.layers.0"; "" where there is none
  std::vector<bool> used;  // call: which results have users (one entry for a single result)
};

// A number that affine expressions cannot hold: affine leaves and real constants under the operators of plan::ExprOp,
// by name. Operands have the types that the operator takes.
struct NumberTree {
  std::string op;                  // empty: a leaf
  SizeExpr leaf;                   // an integer, without dimensions
  std::optional<double> constant;  // a leaf that is a real number
  std::vector<NumberTree> args;    // one or two
};

// Where a symbol's value comes from: the size `dim` of an input, an integer input itself (dim < 0), or other symbols.
struct SymbolSource {
  unsigned input = 0;
  int dim = -1;
  std::optional<NumberTree> definition;
};

struct Graph {
  std::vector<Node> nodes;  // topological order; inputs first
  std::vector<Argument> outputs;
  std::vector<unsigned> any_strides;  // outputs whose strides nobody relies on
  std::vector<unsigned> aliases;      // outputs that the caller takes for views of an input, where they begin included
  std::vector<std::string> symbols;
  std::vector<SymbolSource> symbol_sources;
};

}  // namespace zefuse::fx
