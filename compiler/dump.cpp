#include "compiler/dump.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace zefuse {

Dump::Dump(const std::string& dir) {
  if (dir.empty())
    return;
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  for (int n = 0; !error; ++n) {
    std::string folder = dir + "/graph_" + std::to_string(n);
    // create_directory says whether it was there already, so two processes never share a folder.
    if (std::filesystem::create_directory(folder, error)) {
      folder_ = folder;
      return;
    }
  }
  std::fprintf(stderr, "zefuse: cannot write dumps to %s: %s\n", dir.c_str(), error.message().c_str());
}

void Dump::write(std::string_view name, std::string_view text) const {
  if (enabled())
    writeInto(folder_, name, text);
}

void Dump::remove(std::string_view name) const {
  std::error_code ignored;
  if (enabled())
    std::filesystem::remove(std::filesystem::path(folder_) / name, ignored);
}

void Dump::writeInto(const std::string& folder, std::string_view name, std::string_view text) {
  std::filesystem::path path = std::filesystem::path(folder) / name;
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file)
    std::fprintf(stderr, "zefuse: cannot write %s\n", path.c_str());
}

}  // namespace zefuse
