#include "runtime/cache/file_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <thread>

#include "runtime/cache/entry.h"
#include "runtime/cache/folder.h"
#include "runtime/cache/maintenance.h"

namespace zefuse {
namespace {

constexpr time_t use_resolution = 3600;  // how exactly the time of the last use is kept; finer costs a write per hit

Status cannotWrite(const std::string& path, const std::string& why) {
  return {Code::not_found, "cannot write the cache entry " + path + ": " + why};
}

int64_t unixNanoseconds() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::optional<std::vector<std::byte>> FileCache::load(const CacheKey& key) const {
  if (directory_.empty())
    return std::nullopt;
  const std::string path = entryPath(key);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return std::nullopt;
  struct stat info{};
  const bool usable = fstat(file, &info) == 0 && trusted(info);
  std::optional<Entry> entry = usable ? readEntry(file) : std::nullopt;
  const bool good = entry && entry->key == key.text();
  if (good && info.st_mtim.tv_sec + use_resolution < time(nullptr))
    futimens(file, nullptr);  // the time of the last use, for the limit; fails on what is not ours, which is fine
  close(file);
  if (usable && !good)
    unlink(path.c_str());  // damaged: made anew and stored again by the caller
  return good ? std::optional(std::move(entry->body)) : std::nullopt;
}

Status FileCache::store(const CacheKey& key, std::span<const std::byte> bytes, const std::string& note) const {
  if (directory_.empty())
    return {};
  makeFolder(directory_);
  const std::string path = entryPath(key);
  struct stat folder{};
  if (stat(directory_.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode))
    return cannotWrite(path, "its folder does not exist and cannot be made");
  const std::vector<std::byte> packed = packEntry(key.text(), note, unixNanoseconds(), bytes);
  if (const std::string why = writeEntryFile(path, packed); !why.empty())
    return cannotWrite(path, why);
  keepLimit(packed.size());
  return {};
}

FileCache::Lock::~Lock() {
  if (file_ < 0)
    return;
  flock(file_, LOCK_UN);  // a process that was forked meanwhile holds the file open too
  close(file_);
}

FileCache::Lock FileCache::lock(const CacheKey& key, std::chrono::milliseconds deadline,
                                const CancelCheck& cancelled) const {
  if (directory_.empty())
    return {};
  makeFolder(directory_);
  makeFolder(directory_ + "/locks");
  // A fixed set of files that are never removed: an unlinked lock file could be held by one and made anew by another.
  const std::string path = directory_ + "/locks/" + key.fileName().substr(0, 2);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (file < 0)
    return {};
  struct stat info{};
  if (fstat(file, &info) != 0 || !trusted(info)) {  // whoever else can open it could hold it for ever
    close(file);
    return {};
  }
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (auto pause = std::chrono::microseconds(200);; pause = std::min(pause * 2, std::chrono::microseconds(10000))) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
      return Lock(file);
    if ((errno != EWOULDBLOCK && errno != EINTR) || std::chrono::steady_clock::now() >= end || cancelled()) {
      close(file);
      return {};
    }
    std::this_thread::sleep_for(pause);
  }
}

void FileCache::keepLimit(uint64_t stored_bytes) const {
  // Looking at every file costs milliseconds: at a process's first store, then after each sixteenth of the limit.
  static std::atomic<uint64_t> since{UINT64_MAX};
  uint64_t before = since.load();
  if (before != UINT64_MAX && (since += stored_bytes) < limit_ / 16)
    return;
  since = 0;
  evict(directory_, limit_);
}

}  // namespace zefuse
