#include "runtime/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace zefuse {

AtomicFile::AtomicFile(std::string path, mode_t mode) : path_(std::move(path)) {
  static std::atomic<unsigned> counter{0};
  // A name may be taken by what a killed process of the same number left (in containers numbers repeat), or by another
  // machine that shares the folder.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    temporary_ = path_ + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".tmp";
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file_ >= 0 || errno != EEXIST)
      return;
  }
}

AtomicFile::~AtomicFile() {
  if (file_ < 0)
    return;
  close(file_);
  unlink(temporary_.c_str());
}

bool AtomicFile::commit() {
  const int closed = close(file_);
  file_ = -1;
  if (closed == 0 && rename(temporary_.c_str(), path_.c_str()) == 0)
    return true;
  const int error = errno;
  unlink(temporary_.c_str());
  errno = error;
  return false;
}

}  // namespace zefuse
