// One entry as a file: header, key, note, body. The digest covers all of it, so that an entry under a wrong name, cut
// short or changed in any bit is refused. Data only: reading one executes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zefuse {

struct Entry {
  std::string key;      // CacheKey::text()
  std::string note;     // for people: which kernel; not part of the key
  int64_t created = 0;  // Unix time, nanoseconds
  std::vector<std::byte> body;
};

std::vector<std::byte> packEntry(std::string_view key, std::string_view note, int64_t created,
                                 std::span<const std::byte> body);

// Puts a packed entry at `path` in one step (AtomicFile), readable by this user alone. Empty, or why it could not be
// written. Thread- and process-safe.
std::string writeEntryFile(const std::string& path, std::span<const std::byte> packed);

// Nothing when the bytes fail their checks.
std::optional<Entry> unpackEntry(std::span<const std::byte> file);

// From an open file.
std::optional<Entry> readEntry(int file);

// The same without the body, which is not read: so only the key is sure, where it gives the file's name.
std::optional<Entry> readHead(int file);

}  // namespace zefuse
