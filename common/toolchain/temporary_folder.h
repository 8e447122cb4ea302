// A folder for the files that a tool reads and writes.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "common/base/status.h"

namespace zefuse {

// This user's alone (mkdtemp), in the system's temporary folder; removed with all in it, unless kept.
class TemporaryFolder {
public:
  explicit TemporaryFolder(const std::string& name) {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    std::string path = (parent / (name + "-XXXXXX")).string();
    if (error || !mkdtemp(path.data()))
      status_ = {Code::internal, name + ": no temporary directory in " + parent.string() + "; set TMPDIR"};
    else
      path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty())
      std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const Status& status() const { return status_; }
  const std::filesystem::path& path() const { return path_; }
  void keep() { path_.clear(); }

private:
  std::filesystem::path path_;
  Status status_;
};

}  // namespace zefuse
