// Looking after the folder of a FileCache: what `zefuse cache` does. Every function tolerates that other processes use
// the folder meanwhile. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/api.h"
#include "common/base/status.h"

namespace zefuse {

struct CacheEntryInfo {
  std::string file;  // its name in the folder
  std::vector<std::pair<std::string, std::string>> key;
  std::string note;
  uint64_t bytes = 0;     // of the file
  int64_t created = 0;    // Unix time, nanoseconds
  int64_t last_used = 0;  // Unix time, seconds; exact to the hour
};

// All sound entries of this user's or root's, newest first: each is read whole. An empty list when there is no folder.
ZEFUSE_API std::vector<CacheEntryInfo> listEntries(const std::string& directory);

// Of one kind, the `count` that were used last, newest first: for reasons, which must not cost what reading a whole
// cache does. Their bodies are not read, so they may be damaged.
ZEFUSE_API std::vector<CacheEntryInfo> listRecent(const std::string& directory, const std::string& kind, size_t count);

// Removes the least recently used entries until 90 % of `limit` (bytes) are kept, when there are more than `limit`, and
// what killed writers left behind. One process at a time; the others return at once.
void evict(const std::string& directory, uint64_t limit);

// Removes every entry and what killed writers left, and nothing else. The number removed.
ZEFUSE_API Result<uint64_t> clearCache(const std::string& directory);

// What listEntries lists into one file (AtomicFile), and back; a sound entry that is there already
// stays. The number of entries. damaged: what is wrong; the entries before it are taken.
// Importing machine code means trusting who exported it; each entry's digest is checked, its origin cannot be.
ZEFUSE_API Result<uint64_t> exportCache(const std::string& directory, const std::string& file);
ZEFUSE_API Result<uint64_t> importCache(const std::string& directory, const std::string& file);

}  // namespace zefuse
