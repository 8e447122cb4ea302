// A file that appears whole or not at all.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace zefuse {

// Written under a name of its own beside `path` ("path.WRITER.NUMBER.tmp", locked) and renamed by commit(), so a reader
// of `path` sees the old file or the new one, whenever the writer is killed; what it leaves then, removeAbandoned
// finds. (Not an unnamed file, O_TMPFILE: linkat cannot put it in the place of another, and network file systems have
// none.) One object, one thread; any number of processes and threads may write the same path, and the last commit wins.
// Follows no symbolic link.
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

// How long a file must not have been written before its writer counts as dead where nobody can know: it ran on another
// machine, which may share no locks with this one, or before this one was started again.
constexpr std::chrono::seconds abandoned_after{600};

// Removes what killed writers of `path` left beside it: regular files of this user's under such names that nobody has
// locked. A writer's lock goes with its process, so none that lives loses its file. Best effort; thread- and
// process-safe. Reads the whole folder: not for each entry of a large one.
void removeAbandoned(const std::string& path);

// The same for one file under such a name; false: it stays.
bool removeIfAbandoned(const std::string& temporary, std::chrono::seconds after = abandoned_after);

}  // namespace zefuse
