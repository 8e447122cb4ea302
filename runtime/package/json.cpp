#include "runtime/package/json.h"

#include <charconv>

namespace zefuse::package {

class JsonParser {
public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  bool document(Json& out) {
    if (!value(out, 0))
      return false;
    space();
    return at_ == text_.size();
  }
  size_t position() const { return at_; }

private:
  static constexpr int max_depth = 64;

  void space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c)
      return false;
    ++at_;
    return true;
  }
  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected)
      return false;
    at_ += expected.size();
    return true;
  }

  bool value(Json& out, int depth) {
    space();
    if (depth > max_depth || at_ >= text_.size())
      return false;
    switch (text_[at_]) {
    case '{': return object(out, depth);
    case '[': return array(out, depth);
    case '"': return string(out.value_.emplace<std::string>());
    case 't': out.value_ = true; return word("true");
    case 'f': out.value_ = false; return word("false");
    case 'n': return word("null");
    default: return number(out);
    }
  }

  bool object(Json& out, int depth) {
    auto& entries = out.value_.emplace<Json::Object>();
    ++at_;
    if (take('}'))
      return true;
    do {
      space();
      entries.emplace_back();
      if (at_ >= text_.size() || text_[at_] != '"' || !string(entries.back().first) || !take(':') ||
          !value(entries.back().second, depth + 1))
        return false;
    } while (take(','));
    return take('}');
  }

  bool array(Json& out, int depth) {
    auto& items = out.value_.emplace<Json::Array>();
    ++at_;
    if (take(']'))
      return true;
    do {
      items.emplace_back();
      if (!value(items.back(), depth + 1))
        return false;
    } while (take(','));
    return take(']');
  }

  bool number(Json& out) {
    const size_t start = at_;
    while (at_ < text_.size() && std::string_view("+-0123456789.eE").find(text_[at_]) != std::string_view::npos)
      ++at_;
    const char *first = text_.data() + start, *last = text_.data() + at_;
    int64_t integer = 0;
    if (auto [end, error] = std::from_chars(first, last, integer); error == std::errc() && end == last) {
      out.value_ = integer;
      return true;
    }
    double real = 0;
    auto [end, error] = std::from_chars(first, last, real);
    out.value_ = real;
    return start != at_ && error == std::errc() && end == last;
  }

  bool hex4(uint32_t& code) {
    if (text_.size() - at_ < 4)
      return false;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, code, 16);
    at_ += 4;
    return error == std::errc() && end == text_.data() + at_;
  }

  static void appendUtf8(std::string& out, uint32_t code) {
    if (code < 0x80) {
      out += char(code);
      return;
    }
    const int extra = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    out += char((extra == 1 ? 0xC0 : extra == 2 ? 0xE0 : 0xF0) | code >> (6 * extra));
    for (int i = extra - 1; i >= 0; --i)
      out += char(0x80 | (code >> (6 * i) & 0x3F));
  }

  bool string(std::string& out) {
    ++at_;  // the quote
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"')
        return true;
      if (uint8_t(c) < 0x20)
        return false;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ >= text_.size())
        return false;
      const char escape = text_[at_++];
      constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
      if (const size_t known = names.find(escape); known != std::string_view::npos) {
        out += meanings[known];
        continue;
      }
      uint32_t code = 0, low = 0;
      if (escape != 'u' || !hex4(code))
        return false;
      if (code >= 0xD800 && code < 0xDC00) {  // a surrogate pair
        if (!word("\\u") || !hex4(low) || low < 0xDC00 || low > 0xDFFF)
          return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      } else if (code >= 0xDC00 && code < 0xE000) {
        return false;
      }
      appendUtf8(out, code);
    }
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
};

namespace {

// RFC 3629, section 4: no overlong forms, no surrogates, nothing above U+10FFFF.
bool isUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = uint8_t(text[at++]);
    if (lead < 0x80)
      continue;
    if (lead < 0xc2 || lead > 0xf4)
      return false;
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    uint32_t code = lead & (0x3fu >> more);
    for (int i = 0; i < more; ++i, ++at) {
      if (at == text.size() || (uint8_t(text[at]) & 0xc0) != 0x80)
        return false;
      code = code << 6 | (uint8_t(text[at]) & 0x3f);
    }
    if ((more == 2 && code < 0x800) || (more == 3 && code < 0x10000) || code > 0x10ffff ||
        (code >= 0xd800 && code <= 0xdfff))
      return false;
  }
  return true;
}

}  // namespace

Result<Json> Json::parse(std::string_view text) {
  if (!isUtf8(text))
    return Status{Code::damaged, "no JSON: it is not UTF-8"};
  Json json;
  JsonParser parser(text);
  if (!parser.document(json))
    return Status{Code::damaged, "no JSON at byte " + std::to_string(parser.position())};
  return json;
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : object())
    if (name == key)
      return &value;
  return nullptr;
}

const Json::Array& Json::array() const {
  static const Array none;
  const auto* items = std::get_if<Array>(&value_);
  return items ? *items : none;
}

const Json::Object& Json::object() const {
  static const Object none;
  const auto* entries = std::get_if<Object>(&value_);
  return entries ? *entries : none;
}

std::optional<int64_t> Json::integer() const {
  const auto* number = std::get_if<int64_t>(&value_);
  return number ? std::optional(*number) : std::nullopt;
}

std::optional<std::string> Json::text() const {
  const auto* string = std::get_if<std::string>(&value_);
  return string ? std::optional(*string) : std::nullopt;
}

std::string Json::textOr(std::string_view key, std::string otherwise) const {
  const Json* value = find(key);
  return value ? value->text().value_or(std::move(otherwise)) : std::move(otherwise);
}

std::optional<bool> Json::boolean() const {
  const bool* set = std::get_if<bool>(&value_);
  return set ? std::optional<bool>(*set) : std::nullopt;
}

bool Json::flag(std::string_view key) const {
  const Json* value = find(key);
  const bool* set = value ? std::get_if<bool>(&value->value_) : nullptr;
  return set && *set;
}

}  // namespace zefuse::package
