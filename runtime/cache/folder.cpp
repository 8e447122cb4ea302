#include "runtime/cache/folder.h"

#include <unistd.h>

#include <filesystem>

#include "runtime/cache/sha256.h"

namespace zefuse {

bool trusted(const struct stat& info) {
  return (info.st_uid == geteuid() || info.st_uid == 0) && !(info.st_mode & (S_IWGRP | S_IWOTH));
}

void makeFolder(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error))
    return;
  if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty())
    std::filesystem::create_directories(parent, error);
  mkdir(path.c_str(), 0700);
}

FileKind kindOf(std::string_view name) {
  // Cuts off the longest beginning of these letters; its length.
  auto take = [&](std::string_view letters) {
    const size_t end = std::min(name.find_first_not_of(letters), name.size());
    name.remove_prefix(end);
    return end;
  };
  auto dot = [&] { return name.starts_with('.') && (name.remove_prefix(1), true); };
  constexpr std::string_view digits = "0123456789";
  if (take("0123456789abcdef") != 2 * sizeof(Digest) || !dot() || !take("abcdefghijklmnopqrstuvwxyz"))
    return FileKind::foreign;
  if (name.empty())
    return FileKind::entry;
  return dot() && take(digits) && dot() && take(digits) && name == ".tmp" ? FileKind::unfinished : FileKind::foreign;
}

}  // namespace zefuse
