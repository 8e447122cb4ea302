#include "runtime/cache/maintenance.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <tuple>

#include "common/base/atomic_file.h"
#include "common/base/descriptor_io.h"
#include "runtime/cache/entry.h"
#include "runtime/cache/folder.h"
#include "runtime/cache/key.h"

namespace zefuse {
namespace {

constexpr char export_magic[8] = {'Z', 'F', 'E', 'X', 'P', 'O', 'R', '2'};

struct ExportHeader {  // then for each entry its size (8 bytes) and packEntry's bytes
  char magic[8];
  uint64_t entries;
};

struct File {
  std::string name;
  struct stat info{};
  bool unfinished() const { return kindOf(name) == FileKind::unfinished; }
};

// Ours among the regular files of the folder itself, by name; "locks" is a folder. `ending`: of the names.
std::vector<File> filesOf(const std::string& directory, const std::string& ending = {}) {
  std::vector<File> files;
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(directory, error); !error && at != std::filesystem::end(at);
       at.increment(error)) {
    File file{at->path().filename().string()};
    if (file.name.ends_with(ending) && kindOf(file.name) != FileKind::foreign &&
        lstat(at->path().c_str(), &file.info) == 0 && S_ISREG(file.info.st_mode))
      files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &File::name);
  return files;
}

// What `read` finds in a file: nothing unless it may be used (trusted) and the key is that of the name.
std::optional<Entry> trustedEntry(const std::string& path, std::optional<Entry> (*read)(int file)) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return std::nullopt;
  struct stat info{};
  std::optional<Entry> entry = fstat(file, &info) == 0 && trusted(info) ? read(file) : std::nullopt;
  close(file);
  return entry && path.ends_with("/" + CacheKey::fileNameOf(entry->key)) ? std::move(entry) : std::nullopt;
}

// Every byte of it is right.
std::optional<Entry> soundEntry(const std::string& path) { return trustedEntry(path, &readEntry); }

// Newest first.
std::vector<CacheEntryInfo> infosOf(const std::string& directory, std::span<const File> files,
                                    std::optional<Entry> (*read)(int file)) {
  std::vector<CacheEntryInfo> entries;
  for (const File& file : files)
    if (const auto entry = trustedEntry(directory + "/" + file.name, read))
      entries.push_back({file.name, CacheKey::parse(entry->key), entry->note, uint64_t(file.info.st_size),
                         entry->created, file.info.st_mtim.tv_sec});
  std::sort(entries.begin(), entries.end(), [](const CacheEntryInfo& a, const CacheEntryInfo& b) {
    return std::tie(b.created, a.file) < std::tie(a.created, b.file);
  });
  return entries;
}

}  // namespace

std::vector<CacheEntryInfo> listEntries(const std::string& directory) {
  return infosOf(directory, filesOf(directory), &readEntry);
}

std::vector<CacheEntryInfo> listRecent(const std::string& directory, const std::string& kind, size_t count) {
  std::vector<File> files = filesOf(directory, "." + kind);
  std::ranges::sort(files, std::greater(), [](const File& file) {
    return std::tuple(file.info.st_mtim.tv_sec, file.info.st_mtim.tv_nsec, file.name);
  });
  return infosOf(directory, std::span(files).first(std::min(count, files.size())), &readHead);
}

void evict(const std::string& directory, uint64_t limit) {
  const int guard =
      open((directory + "/locks/evict").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (guard >= 0 && flock(guard, LOCK_EX | LOCK_NB) != 0) {
    close(guard);
    return;
  }
  std::vector<File> files = filesOf(directory);
  uint64_t total = 0;
  for (const File& file : files) {
    if (!file.unfinished() || !removeIfAbandoned(directory + "/" + file.name))
      total += uint64_t(file.info.st_size);
  }
  if (total > limit) {
    std::ranges::sort(files, {}, [](const File& file) { return std::tuple(file.info.st_mtim.tv_sec, file.name); });
    for (const File& file : files) {
      if (total <= limit / 10 * 9)
        break;
      if (!file.unfinished() && unlink((directory + "/" + file.name).c_str()) == 0)
        total -= uint64_t(file.info.st_size);
    }
  }
  if (guard >= 0)
    close(guard);
}

Result<uint64_t> clearCache(const std::string& directory) {
  uint64_t removed = 0;
  for (const File& file : filesOf(directory)) {
    const std::string path = directory + "/" + file.name;
    if (file.unfinished()) {
      removed += removeIfAbandoned(path, std::chrono::seconds(0));
      continue;
    }
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
      return Status{Code::not_found, "cannot remove " + path + ": " + std::strerror(errno)};
    ++removed;
  }
  return removed;
}

Result<uint64_t> exportCache(const std::string& directory, const std::string& path) {
  auto cannot = [&] { return Status{Code::not_found, "cannot write " + path + ": " + std::strerror(errno)}; };
  removeAbandoned(path);
  AtomicFile out(path, 0644);
  ExportHeader header{};
  std::memcpy(header.magic, export_magic, sizeof export_magic);
  if (out.descriptor() < 0 || !writeAll(out.descriptor(), &header, sizeof header))
    return cannot();
  for (const File& file : filesOf(directory)) {
    const auto entry = soundEntry(directory + "/" + file.name);
    if (!entry)
      continue;
    const auto packed = packEntry(entry->key, entry->note, entry->created, entry->body);
    const uint64_t size = packed.size();
    if (!writeAll(out.descriptor(), &size, sizeof size) || !writeAll(out.descriptor(), packed.data(), size))
      return cannot();
    ++header.entries;
  }
  if (lseek(out.descriptor(), 0, SEEK_SET) != 0 || !writeAll(out.descriptor(), &header, sizeof header) || !out.commit())
    return cannot();
  return header.entries;
}

Result<uint64_t> importCache(const std::string& directory, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return Status{Code::not_found, "no file " + path};
  auto damaged = [&](const std::string& what) {
    return Status{Code::damaged, path + ": " + what + "; make it again with `zefuse cache export`"};
  };
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  ExportHeader header;
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.magic, export_magic, sizeof export_magic) != 0)
    return damaged("not an exported cache of this version");
  makeFolder(directory);
  for (uint64_t count = 0; count < header.entries; ++count) {
    const std::string which = "entry " + std::to_string(count) + " of " + std::to_string(header.entries);
    uint64_t size = 0;
    if (!in.read(reinterpret_cast<char*>(&size), sizeof size) || size > file_bytes)
      return damaged(which + " is cut short");
    std::vector<std::byte> packed(size);
    if (!in.read(reinterpret_cast<char*>(packed.data()), std::streamsize(size)))
      return damaged(which + " is cut short");
    const auto entry = unpackEntry(packed);
    if (!entry)
      return damaged(which + " fails its check");
    const std::string target = directory + "/" + CacheKey::fileNameOf(entry->key);
    if (soundEntry(target))
      continue;
    if (const std::string why = writeEntryFile(target, packed); !why.empty())
      return Status{Code::not_found, "cannot write " + target + ": " + why};
  }
  if (in.peek() != std::ifstream::traits_type::eof())
    return damaged("it has bytes behind its last entry");
  return header.entries;
}

}  // namespace zefuse
