// Writes stages of one compilation into a folder, for people. An empty folder name writes nothing.
#pragma once

#include "common/base/api.h"
#include <string>
#include <string_view>

namespace zefuse {

// Files are <dir>/graph_<n>/<name>; the constructor picks the first n that does not exist. Failures to write are
// reported once on stderr and change nothing else. write is thread-safe for different names.
class ZEFUSE_API Dump {
public:
  explicit Dump(const std::string& dir);
  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  void write(std::string_view name, std::string_view text) const;
  void remove(std::string_view name) const;
  // The same for a folder that an earlier Dump made.
  static void writeInto(const std::string& folder, std::string_view name, std::string_view text);

private:
  std::string folder_;
};

}  // namespace zefuse
