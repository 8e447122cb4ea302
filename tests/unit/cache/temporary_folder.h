#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace zefuse::test {

// A folder that goes away with the object.
struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    path = (std::filesystem::temp_directory_path() / "zefuse-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
};

inline std::vector<char> readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void writeFile(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

inline std::vector<std::byte> bytesOf(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

}  // namespace zefuse::test
