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

#include "runtime/cache/entry.h"
#include "runtime/cache/key.h"

namespace zefuse {
namespace {

constexpr time_t abandoned_after = 600;  // seconds: no writer of a live process takes as long
constexpr char export_magic[8] = {'Z', 'F', 'E', 'X', 'P', 'O', 'R', '1'};

struct File {
  std::string name;
  struct stat info{};
};

bool isTemporary(const std::string& name) { return name.ends_with(".tmp"); }

// Regular files of the folder itself; "locks" is a folder.
std::vector<File> filesOf(const std::string& directory) {
  std::vector<File> files;
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(directory, error); !error && at != std::filesystem::end(at);
       at.increment(error)) {
    File file{at->path().filename().string()};
    if (lstat(at->path().c_str(), &file.info) == 0 && S_ISREG(file.info.st_mode))
      files.push_back(std::move(file));
  }
  return files;
}

template <typename Use> void withFile(const std::string& path, Use use) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0)
    return;
  use(file);
  close(file);
}

}  // namespace

std::vector<CacheEntryInfo> listEntries(const std::string& directory) {
  std::vector<CacheEntryInfo> entries;
  for (const File& file : filesOf(directory))
    if (!isTemporary(file.name))
      withFile(directory + "/" + file.name, [&](int descriptor) {
        if (auto head = readEntryHead(descriptor))
          entries.push_back({file.name, CacheKey::parse(head->key), head->note, uint64_t(file.info.st_size),
                             head->created, file.info.st_mtim.tv_sec});
      });
  std::sort(entries.begin(), entries.end(), [](const CacheEntryInfo& a, const CacheEntryInfo& b) {
    return std::tie(b.created, a.file) < std::tie(a.created, b.file);
  });
  return entries;
}

void evict(const std::string& directory, uint64_t limit) {
  const int guard = open((directory + "/locks/evict").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (guard >= 0 && flock(guard, LOCK_EX | LOCK_NB) != 0) {
    close(guard);
    return;
  }
  std::vector<File> files = filesOf(directory);
  uint64_t total = 0;
  for (const File& file : files) {
    if (isTemporary(file.name) && file.info.st_mtim.tv_sec + abandoned_after < time(nullptr))
      unlink((directory + "/" + file.name).c_str());
    else
      total += uint64_t(file.info.st_size);
  }
  if (total > limit) {
    std::sort(files.begin(), files.end(),
              [](const File& a, const File& b) { return a.info.st_mtim.tv_sec < b.info.st_mtim.tv_sec; });
    for (const File& file : files) {
      if (total <= limit / 10 * 9)
        break;
      if (!isTemporary(file.name) && unlink((directory + "/" + file.name).c_str()) == 0)
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
    bool entry = isTemporary(file.name);
    withFile(path, [&](int descriptor) { entry = entry || readEntryHead(descriptor); });
    if (!entry && !file.name.ends_with(".native") && !file.name.ends_with(".plan"))
      continue;  // not ours: a folder given by mistake loses nothing
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
      return Status{Code::not_found, "cannot remove " + path + ": " + std::strerror(errno)};
    ++removed;
  }
  return removed;
}

Result<uint64_t> exportCache(const std::string& directory, const std::string& path) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(export_magic, sizeof export_magic);
  uint64_t count = 0;
  for (const CacheEntryInfo& info : listEntries(directory))
    withFile(directory + "/" + info.file, [&](int descriptor) {
      auto entry = readEntry(descriptor);
      if (!entry)
        return;
      const auto packed = packEntry(entry->key, entry->note, entry->created, entry->body);
      const uint64_t size = packed.size();
      out.write(reinterpret_cast<const char*>(&size), sizeof size);
      out.write(reinterpret_cast<const char*>(packed.data()), std::streamsize(size));
      ++count;
    });
  out.close();
  if (!out)
    return Status{Code::not_found, "cannot write " + path + ": " + std::strerror(errno)};
  return count;
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
  char magic[sizeof export_magic];
  if (!in.read(magic, sizeof magic) || std::memcmp(magic, export_magic, sizeof magic) != 0)
    return damaged("not an exported cache");
  std::filesystem::create_directories(directory, error);
  uint64_t count = 0;
  for (uint64_t size; in.read(reinterpret_cast<char*>(&size), sizeof size); ++count) {
    if (size > file_bytes)
      return damaged("entry " + std::to_string(count) + " is cut short");
    std::vector<std::byte> packed(size);
    if (!in.read(reinterpret_cast<char*>(packed.data()), std::streamsize(size)))
      return damaged("entry " + std::to_string(count) + " is cut short");
    const auto entry = unpackEntry(packed);
    if (!entry)
      return damaged("entry " + std::to_string(count) + " fails its check");
    const std::string target = directory + "/" + CacheKey::fileNameOf(entry->key);
    if (std::filesystem::exists(target, error))
      continue;
    if (const std::string why = writeEntryFile(target, packed); !why.empty())
      return Status{Code::not_found, "cannot write " + target + ": " + why};
  }
  return count;
}

}  // namespace zefuse
