// Entries of a cache: their keys, their age.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <string>

#include "runtime/cache/key.h"

namespace zefuse::test {

inline CacheKey keyOf(int number) {
  return CacheKey("native").add("driver", "one").add("number", std::to_string(number));
}

inline void makeOlder(const std::string& path, time_t seconds) {
  const timespec times[2] = {{time(nullptr) - seconds, 0}, {time(nullptr) - seconds, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
}

}  // namespace zefuse::test
