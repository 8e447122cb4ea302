// What an entry of the cache depends on, field by field, so that a miss can be explained by the field that differs.
#pragma once

#include "common/base/api.h"
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zefuse {

class ZEFUSE_API CacheKey {
public:
  // What is kept: "native", "plan", "spills". It is the file name's ending.
  explicit CacheKey(std::string kind) : kind_(std::move(kind)) { add("kind", kind_); }

  // Order matters. No device index, no absolute path: the same work on another machine has the same key.
  // Line ends in `value` become spaces.
  CacheKey& add(std::string name, std::string value);
  CacheKey& addHash(std::string name, std::span<const std::byte> bytes);  // its SHA-256

  const std::string& kind() const { return kind_; }
  std::string text() const;      // "name=value" lines
  std::string fileName() const;  // hash of the text, dot, kind

  static std::vector<std::pair<std::string, std::string>> parse(std::string_view text);
  static std::string fileNameOf(std::string_view text);

private:
  std::string kind_;
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace zefuse
