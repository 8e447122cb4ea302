// A content-keyed file cache: one file per entry, named by its key's hash. Thread- and
// process-safe: entries are written to a temporary file and renamed, readers check every byte. A
// missing or read-only directory only costs the reuse.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace zefuse {

class FileCache {
public:
  // `directory` empty: nothing is found and nothing is stored.
  explicit FileCache(std::string directory) : directory_(std::move(directory)) {}

  // The stored bytes, or nothing when there is no entry or it fails its checks (its file is then
  // removed if possible).
  std::optional<std::vector<std::byte>> load(const std::string& key) const;

  // Best effort. The Status is for tests and logs: callers go on without.
  Status store(const std::string& key, std::span<const std::byte> bytes) const;

  std::string entryPath(const std::string& key) const;

private:
  std::string directory_;
};

}  // namespace zefuse
