// The content-addressed cache: one file per entry, named by its key's hash, in one folder of the user's.
//
// Thread- and process-safe. An entry is written beside its place and renamed into it, so a reader sees all of it or
// nothing, whenever a writer is killed. Readers check every byte. A folder that is missing, read-only, full or somebody
// else's only costs the reuse: callers go on without it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/base/status.h"
#include "runtime/cache/key.h"

namespace zefuse {

class ZEFUSE_API FileCache {
public:
  static constexpr uint64_t default_limit = uint64_t(2) << 30;

  // `directory` empty: nothing is found and nothing is stored. `limit`: bytes of all entries; the least recently used
  // go when there are more.
  explicit FileCache(std::string directory, uint64_t limit = default_limit)
      : directory_(std::move(directory)), limit_(limit) {}

  // The stored bytes. Nothing when there is no entry, when it fails its checks (its file is then removed if possible),
  // or when it could have been written by another user than this one and root.
  std::optional<std::vector<std::byte>> load(const CacheKey& key) const;

  // `note`: for people, such as the kernel's name. Best effort: the Status is for logs and tests.
  Status store(const CacheKey& key, std::span<const std::byte> bytes, const std::string& note = {}) const;

  // Held by the one thread of all processes that makes the entry; the others wait for it, and find the entry then.
  class Lock {
  public:
    Lock() = default;
    explicit Lock(int file) : file_(file) {}
    Lock(Lock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    Lock& operator=(Lock&& other) noexcept {
      std::swap(file_, other.file_);
      return *this;
    }
    ~Lock();
    bool held() const { return file_ >= 0; }

  private:
    int file_ = -1;
  };
  // Waits at most `deadline`, and until it is cancelled; not held afterwards when that ended, the folder cannot be
  // written or the lock could be somebody else's (work is then done twice, never wrongly). The kernel releases it when
  // its holder dies. Never take two.
  Lock lock(const CacheKey& key, std::chrono::milliseconds deadline, const CancelCheck& cancelled = {}) const;

  const std::string& directory() const { return directory_; }
  std::string entryPath(const CacheKey& key) const { return directory_ + "/" + key.fileName(); }

private:
  void keepLimit(uint64_t stored_bytes) const;

  std::string directory_;
  uint64_t limit_;
};

}  // namespace zefuse
