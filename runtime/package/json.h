// A reader of JSON (RFC 8259) for a package's manifest and the header of its safetensors: small, and safe for any
// bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"

namespace zefuse::package {

// A value; immutable after parse(). Lookups of what is not there give null or empty, so that a reader can ask for a
// whole path and judge the end.
class Json {
public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the text's order

  // damaged: where it stops being JSON. Nesting up to 64; of equal keys the first counts.
  static Result<Json> parse(std::string_view text);

  bool isObject() const { return std::holds_alternative<Object>(value_); }
  const Json* find(std::string_view key) const;  // nullptr: no object, or no such key
  const Array& array() const;                    // empty for anything else
  const Object& object() const;
  std::optional<int64_t> integer() const;   // a number without fraction and exponent that fits
  std::optional<std::string> text() const;  // of a string
  std::string textOr(std::string_view key, std::string otherwise = {}) const;
  std::optional<bool> boolean() const;    // of true and false
  bool flag(std::string_view key) const;  // true only for the value true

private:
  friend class JsonParser;
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace zefuse::package
