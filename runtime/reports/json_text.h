// JSON as text, for reports: small values put together by hand.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace zefuse::json {

// A value that is JSON already.
struct Text {
  std::string json;
};

inline const Text null{"null"};

Text of(std::string_view text);  // bytes that are no UTF-8 stay as they are
inline Text of(const std::string& text) { return of(std::string_view(text)); }
inline Text of(const char* text) { return of(std::string_view(text)); }
inline Text of(const Text& text) { return text; }
inline Text of(std::same_as<bool> auto value) { return {value ? "true" : "false"}; }
inline Text of(std::integral auto value)
  requires(!std::same_as<decltype(value), bool>)
{
  return {std::to_string(value)};
}
Text of(double value);  // finite

// [a,b]
class List {
public:
  template <typename T> void add(const T& value) {
    text_ += text_.empty() ? "" : ",";
    text_ += of(value).json;
  }
  Text text() const { return {"[" + text_ + "]"}; }

private:
  std::string text_;
};
inline Text of(const List& list) { return list.text(); }

template <typename Range> Text listOf(const Range& range) {
  List list;
  for (const auto& value : range)
    list.add(value);
  return list.text();
}

// {"name":value}, in the order of add().
class Object {
public:
  template <typename T> Object& add(std::string_view name, const T& value) {
    text_ += text_.empty() ? "" : ",";
    text_ += of(name).json + ":" + of(value).json;
    return *this;
  }
  Text text() const { return {"{" + text_ + "}"}; }

private:
  std::string text_;
};
inline Text of(const Object& object) { return object.text(); }

}  // namespace zefuse::json
