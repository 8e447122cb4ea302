#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

namespace zefuse {
namespace {

constexpr std::string_view ending = ".tmp";

// The kernel that runs: the same in all its containers, another after each start of the machine.
uint32_t bootNumber() {
  static const uint32_t number = [] {
    std::string id;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
    uint32_t hash = 2166136261;  // FNV-1a
    for (const char c : id)
      hash = (hash ^ uint8_t(c)) * 16777619;
    return id.empty() ? 0 : hash;
  }();
  return number;
}

// Of this process; above the process' number, which repeats in containers, where it runs.
uint64_t writerNumber() { return uint64_t(bootNumber()) << 32 | uint32_t(getpid()); }

// "PATH.WRITER.NUMBER.tmp"
struct Temporary {
  std::string_view path;
  uint64_t writer = 0;
};

std::optional<Temporary> parse(std::string_view name) {
  Temporary parsed;
  if (!name.ends_with(ending))
    return std::nullopt;
  name.remove_suffix(ending.size());
  for (int part = 0; part < 2; ++part) {  // NUMBER, then WRITER
    const size_t dot = name.rfind('.');
    if (dot == name.npos || dot == 0)
      return std::nullopt;
    const char *digits = name.data() + dot + 1, *end = name.data() + name.size();
    const auto [read, error] = std::from_chars(digits, end, parsed.writer);
    if (error != std::errc() || read != end)
      return std::nullopt;
    name = name.substr(0, dot);
  }
  parsed.path = name;
  return parsed;
}

}  // namespace

AtomicFile::AtomicFile(std::string path, mode_t mode) : path_(std::move(path)) {
  static std::atomic<unsigned> counter{0};
  // A name may be taken by what a killed process of the same number left, or by another machine that shares the folder.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    temporary_ = path_ + "." + std::to_string(writerNumber()) + "." + std::to_string(counter++) + std::string(ending);
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file_ < 0 && errno == EEXIST)
      continue;
    // Between the two calls it looks abandoned: whoever took it for that has the lock, or has removed it already. Where
    // there are no locks, nobody removes anything.
    struct stat info{};
    if (file_ < 0 || ((flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && fstat(file_, &info) == 0 &&
                      info.st_nlink > 0))
      return;
    close(std::exchange(file_, -1));
    unlink(temporary_.c_str());
  }
}

AtomicFile::~AtomicFile() {
  if (file_ < 0)
    return;
  unlink(temporary_.c_str());
  close(file_);
}

bool AtomicFile::commit() {
  // Closing a copy says what writing left unsaid, as on network file systems; the lock stays until it is renamed.
  const int copy = dup(file_);
  const bool written = copy >= 0 && close(copy) == 0 && rename(temporary_.c_str(), path_.c_str()) == 0;
  const int error = errno;
  if (!written)
    unlink(temporary_.c_str());
  close(std::exchange(file_, -1));
  errno = error;
  return written;
}

bool removeIfAbandoned(const std::string& temporary, std::chrono::seconds after) {
  const auto name = parse(temporary);
  if (!name)
    return false;
  const bool here = bootNumber() != 0 && name->writer >> 32 == bootNumber();
  const int file = open(temporary.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0)
    return false;
  struct stat info{}, there{};
  const bool removed = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                       (here || info.st_mtim.tv_sec + after.count() <= time(nullptr)) &&
                       flock(file, LOCK_EX | LOCK_NB) == 0 &&
                       // Not what was renamed meanwhile and made anew by another.
                       lstat(temporary.c_str(), &there) == 0 && there.st_ino == info.st_ino &&
                       there.st_dev == info.st_dev && unlink(temporary.c_str()) == 0;
  close(file);
  return removed;
}

void removeAbandoned(const std::string& path) {
  const std::filesystem::path place(path);
  const std::filesystem::path folder = place.has_parent_path() ? place.parent_path() : ".";
  const std::string base = place.filename().string();
  std::error_code error;
  std::vector<std::string> found;
  for (auto at = std::filesystem::directory_iterator(folder, error); !error && at != std::filesystem::end(at);
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (const auto parsed = parse(name); parsed && parsed->path == base)
      found.push_back(at->path().string());
  }
  for (const std::string& temporary : found)
    removeIfAbandoned(temporary);
}

}  // namespace zefuse
