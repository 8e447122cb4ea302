// AtenArgument to c10::IValue, by the schema's types.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/executor/aten_bridge.h"

namespace zefuse::aten {

// Thrown by convert and caught by AtenOp::call: an argument that does not fit the schema.
struct BadArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// What a schema type asks for, worked out once per operator.
struct Target {
  enum class Kind {
    tensor,
    integer,
    real,
    boolean,
    text,
    scalar,
    dtype,
    layout,
    memory_format,
    device,
    list,
    other  // Generator, Stream, ...: only None fits
  };
  Kind kind = Kind::other;
  bool optional = false;
  std::string type;                 // as the schema writes it, for messages
  c10::TypePtr element_type;        // list
  std::shared_ptr<Target> element;  // list
  int64_t length = 0;               // list: int[2] given one int repeats it; 0: no fixed length

  static Target of(const c10::Argument& argument);
};

// Storages made for a call around memory without an owner: what a result must not keep.
using BorrowedStorages = std::vector<const c10::StorageImpl*>;

c10::IValue convert(const Target& target, const AtenArgument& argument, BorrowedStorages& borrowed);

}  // namespace zefuse::aten
