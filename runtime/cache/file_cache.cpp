#include "runtime/cache/file_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/cache/sha256.h"
#include "runtime/descriptor_io.h"

namespace zefuse {
namespace {

// Header, key, body. The digest covers key and body with their lengths, so that a file under a
// wrong name or cut short is refused too.
struct Header {
  char magic[8];
  uint64_t key_bytes;
  uint64_t body_bytes;
  Digest digest;
};
constexpr char magic[8] = {'Z', 'F', 'C', 'A', 'C', 'H', 'E', '1'};

Digest digestOf(const Header& header, std::span<const std::byte> key_and_body) {
  return Sha256().update(std::as_bytes(std::span(&header.key_bytes, 2))).update(key_and_body).finish();
}

std::optional<std::vector<std::byte>> readEntry(int file, const std::string& key) {
  Header header;
  struct stat info{};
  if (fstat(file, &info) != 0 || !readAll(file, &header, sizeof header) ||
      std::memcmp(header.magic, magic, sizeof magic) != 0 || header.key_bytes != key.size() ||
      header.body_bytes > uint64_t(info.st_size) ||
      sizeof header + header.key_bytes + header.body_bytes != uint64_t(info.st_size))
    return std::nullopt;
  std::vector<std::byte> bytes(header.key_bytes + header.body_bytes);
  if (!readAll(file, bytes.data(), bytes.size()) || std::memcmp(bytes.data(), key.data(), key.size()) != 0 ||
      digestOf(header, bytes) != header.digest)
    return std::nullopt;
  bytes.erase(bytes.begin(), bytes.begin() + ptrdiff_t(key.size()));
  return bytes;
}

}  // namespace

std::string FileCache::entryPath(const std::string& key) const {
  return directory_ + "/" + hex(Sha256().update(key).finish()) + ".native";
}

std::optional<std::vector<std::byte>> FileCache::load(const std::string& key) const {
  if (directory_.empty())
    return std::nullopt;
  const std::string path = entryPath(key);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return std::nullopt;
  std::optional<std::vector<std::byte>> bytes = readEntry(file, key);
  close(file);
  if (!bytes)
    unlink(path.c_str());  // damaged: rebuilt and stored again by the caller
  return bytes;
}

Status FileCache::store(const std::string& key, std::span<const std::byte> bytes) const {
  if (directory_.empty())
    return {};
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  const std::string path = entryPath(key);
  static std::atomic<uint64_t> counter{0};
  const std::string temporary = path + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".tmp";
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0)
    return {Code::not_found, "cannot write the cache entry " + temporary + ": " + std::strerror(errno)};
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.key_bytes = key.size();
  header.body_bytes = bytes.size();
  header.digest = Sha256().update(std::as_bytes(std::span(&header.key_bytes, 2))).update(key).update(bytes).finish();
  const bool written = writeAll(file, &header, sizeof header) && writeAll(file, key.data(), key.size()) &&
                       writeAll(file, bytes.data(), bytes.size());
  const bool closed = close(file) == 0;
  if (!written || !closed || rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    unlink(temporary.c_str());
    return {Code::not_found, "cannot write the cache entry " + path + ": " + reason};
  }
  return {};
}

}  // namespace zefuse
