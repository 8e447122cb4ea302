// The folder of a cache: which of its files are ours, and whom to believe.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

namespace zefuse {

// An entry may hold machine code: only what this user or root wrote, and nobody else can write, is used.
bool trusted(const struct stat& info);

// With permissions for this user alone; folders above it as usual. Fails quietly: what comes next says why.
void makeFolder(const std::string& path);

// By its name. A folder may be given by mistake, or be shared with other programs: what is foreign is never touched.
enum class FileKind {
  entry,       // CacheKey::fileName()
  unfinished,  // of a writer (AtomicFile) that still writes or was killed
  foreign
};
FileKind kindOf(std::string_view name);

}  // namespace zefuse
