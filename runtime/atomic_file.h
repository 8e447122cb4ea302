// A file that appears whole or not at all.
#pragma once

#include <sys/types.h>

#include <string>

namespace zefuse {

// Written under a name of its own beside `path` and renamed by commit(), so a reader of `path` sees the old file or the
// new one, whenever the writer is killed (its ".tmp" is left then). One object, one thread; any number of processes and
// threads may write the same path, and the last commit wins. Follows no symbolic link.
class AtomicFile {
public:
  // `mode`: permissions of the new file, less the umask. On failure descriptor() is negative and errno says why.
  AtomicFile(std::string path, mode_t mode);
  ~AtomicFile();  // without commit() nothing is left
  AtomicFile(const AtomicFile&) = delete;

  int descriptor() const { return file_; }
  // False: errno says why, and nothing is left.
  bool commit();

private:
  std::string path_, temporary_;
  int file_ = -1;
};

}  // namespace zefuse
