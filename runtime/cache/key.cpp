#include "runtime/cache/key.h"

#include <algorithm>

#include "runtime/cache/sha256.h"

namespace zefuse {

CacheKey& CacheKey::add(std::string name, std::string value) {
  std::replace(value.begin(), value.end(), '\n', ' ');
  fields_.emplace_back(std::move(name), std::move(value));
  return *this;
}

CacheKey& CacheKey::addHash(std::string name, std::span<const std::byte> bytes) {
  return add(std::move(name), hex(Sha256().update(bytes).finish()));
}

std::string CacheKey::text() const {
  std::string text;
  for (const auto& [name, value] : fields_)
    text += name + "=" + value + "\n";
  return text;
}

std::string CacheKey::fileName() const { return fileNameOf(text()); }

std::vector<std::pair<std::string, std::string>> CacheKey::parse(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> fields;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t equals = std::min(line.find('='), line.size());
    fields.emplace_back(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
  }
  return fields;
}

std::string CacheKey::fileNameOf(std::string_view text) {
  std::string kind = "entry";
  for (const auto& [name, value] : parse(text))
    if (name == "kind" && !value.empty() && value.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos)
      kind = value;
  return hex(Sha256().update(text).finish()) + "." + kind;
}

}  // namespace zefuse
