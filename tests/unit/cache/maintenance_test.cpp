// The cache folder in other hands: other processes, killed writers, other users, a limit, moves to another machine.
#include "runtime/cache/maintenance.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <functional>
#include <thread>

#include "runtime/cache/entry.h"
#include "runtime/cache/file_cache.h"
#include "tests/unit/cache/temporary_folder.h"

namespace zefuse {
namespace {

using test::bytesOf;
using test::readFile;
using test::TemporaryFolder;
using test::writeFile;

CacheKey key(int number) { return CacheKey("native").add("driver", "one").add("number", std::to_string(number)); }

void makeOlder(const std::string& path, time_t seconds) {
  const utimbuf times{time(nullptr) - seconds, time(nullptr) - seconds};
  ASSERT_EQ(utime(path.c_str(), &times), 0);
}

TEST(CacheKey, SaysItsFields) {
  EXPECT_EQ(key(7).text(), "kind=native\ndriver=one\nnumber=7\n");
  EXPECT_EQ(CacheKey("plan").add("a", "x\ny").text(), "kind=plan\na=x y\n");
  const auto fields = CacheKey::parse("kind=plan\nempty=\nlast=a=b\n");
  ASSERT_EQ(fields.size(), 3u);
  EXPECT_EQ(fields[1].second, "");
  EXPECT_EQ(fields[2].second, "a=b");
  EXPECT_TRUE(key(1).fileName().ends_with(".native"));
  EXPECT_EQ(key(1).fileName(), CacheKey::fileNameOf(key(1).text()));
  EXPECT_NE(key(1).fileName(), key(2).fileName());
  EXPECT_TRUE(CacheKey::fileNameOf("kind=../../evil\n").ends_with(".entry"));
}

TEST(Maintenance, ListsWhatIsThere) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  ASSERT_TRUE(cache.store(key(1), bytesOf("code"), "k0_gelu").ok());
  writeFile(folder.path + "/notes.txt", {'h', 'i'});
  const auto entries = listEntries(folder.path);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].note, "k0_gelu");
  ASSERT_EQ(entries[0].key.size(), 3u);
  EXPECT_EQ(entries[0].key[2], std::pair(std::string("number"), std::string("1")));
  EXPECT_TRUE(listEntries(folder.path + "/nowhere").empty());
}

TEST(Maintenance, TheLeastRecentlyUsedGo) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> code(1000);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(cache.store(key(i), code).ok());
    makeOlder(cache.entryPath(key(i)), 100000 - i);
  }
  ASSERT_TRUE(cache.load(key(0)));  // the oldest is used again
  const uint64_t total = 10 * listEntries(folder.path)[0].bytes;
  evict(folder.path, total);
  EXPECT_EQ(listEntries(folder.path).size(), 10u);
  evict(folder.path, total - 1);
  EXPECT_EQ(listEntries(folder.path).size(), 8u);  // down to nine tenths of a limit that is a byte too small
  EXPECT_TRUE(cache.load(key(0)));
  EXPECT_FALSE(cache.load(key(1)));
  EXPECT_FALSE(cache.load(key(2)));
  EXPECT_TRUE(cache.load(key(3)));
}

TEST(Maintenance, WhatKilledWritersLeftGoes) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  ASSERT_TRUE(cache.store(key(1), bytesOf("code")).ok());
  const std::string abandoned = cache.entryPath(key(2)) + ".77.0.tmp", live = cache.entryPath(key(3)) + ".78.0.tmp";
  writeFile(abandoned, {'x'});
  writeFile(live, {'x'});
  makeOlder(abandoned, 3600);
  evict(folder.path, 1 << 20);
  EXPECT_FALSE(std::filesystem::exists(abandoned));
  EXPECT_TRUE(std::filesystem::exists(live));
  EXPECT_TRUE(cache.load(key(1)));
}

TEST(Maintenance, ClearTakesOnlyOurs) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(cache.store(key(i), bytesOf("code")).ok());
  writeFile(folder.path + "/thesis.tex", {'x'});
  auto removed = clearCache(folder.path);
  ASSERT_TRUE(removed.ok()) << removed.status().message();
  EXPECT_EQ(*removed, 3u);
  EXPECT_TRUE(std::filesystem::exists(folder.path + "/thesis.tex"));
}

TEST(Maintenance, MovesToAnotherFolder) {
  TemporaryFolder here, there;
  const FileCache cache(here.path), other(there.path);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(cache.store(key(i), bytesOf("code " + std::to_string(i)), "note").ok());
  const std::string file = here.path + "/moved";
  auto written = exportCache(here.path, file);
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(*written, 3u);
  auto taken = importCache(there.path, file);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_EQ(*taken, 3u);
  EXPECT_EQ(other.load(key(2)), bytesOf("code 2"));
  EXPECT_EQ(importCache(there.path, here.path + "/nothing").status().code(), Code::not_found);

  const std::vector<char> good = readFile(file);
  for (size_t i = 0; i < good.size(); ++i) {  // an error or the right entries, whatever is damaged
    std::vector<char> bad = good;
    bad[i] ^= 1 << i % 8;
    writeFile(file, bad);
    TemporaryFolder target;
    if (importCache(target.path, file).ok())
      for (int number = 0; number < 3; ++number)
        if (auto code = FileCache(target.path).load(key(number))) {
          EXPECT_EQ(*code, bytesOf("code " + std::to_string(number))) << "byte " << i;
        }
  }
}

TEST(FileCache, TakesNoCodeThatAnotherUserCouldHaveWritten) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  ASSERT_TRUE(cache.store(key(1), bytesOf("code")).ok());
  const std::string path = cache.entryPath(key(1));
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(cache.load(key(1)));
  EXPECT_TRUE(std::filesystem::exists(path));  // not ours to remove
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(cache.load(key(1)));
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    EXPECT_FALSE(cache.load(key(1)));
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  }
  std::filesystem::rename(path, folder.path + "/elsewhere");
  std::filesystem::create_symlink(folder.path + "/elsewhere", path);
  EXPECT_FALSE(cache.load(key(1)));
}

TEST(FileCache, OneOfManyProcessesMakesAnEntry) {
  TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const FileCache cache(folder.path);
      const FileCache::Lock lock = cache.lock(key(1), std::chrono::seconds(30));
      if (cache.load(key(1)))
        _exit(0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the work
      _exit(lock.held() && cache.store(key(1), bytesOf("code")).ok() ? 1 : 2);
    }
    children.push_back(child);
  }
  int made = 0;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_NE(WEXITSTATUS(status), 2);
    made += WEXITSTATUS(status);
  }
  EXPECT_EQ(made, 1);
}

TEST(FileCache, AKilledHolderFreesTheLock) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FileCache::Lock lock = cache.lock(key(1), std::chrono::seconds(5));
    (void)!write(ready[1], "x", 1);
    pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(cache.lock(key(1), std::chrono::milliseconds(20)).held());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(cache.lock(key(1), std::chrono::seconds(5)).held());
  close(ready[0]);
  close(ready[1]);
}

TEST(FileCache, KilledWritersLoseNothing) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> code(300000, std::byte(5));
  ASSERT_TRUE(cache.store(key(0), code).ok());
  for (int round = 0; round < 25; ++round) {
    const pid_t child = fork();
    if (child == 0)
      for (int i = 0;; ++i)
        (void)cache.store(key(i % 4), code);
    usleep(1000 + round * 777);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_EQ(cache.load(key(0)), code);
    for (int i = 1; i < 4; ++i)
      if (auto found = cache.load(key(i)))
        ASSERT_EQ(*found, code);
  }
}

// In a child process, which says by its exit code whether all held: as a disk that is full after so many bytes.
bool holdsOnAFullDisk(rlim_t bytes, const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    _exit(setrlimit(RLIMIT_FSIZE, &limit) == 0 && work() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(FileCache, AFullDiskCostsOnlyTheReuse) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> large(300000, std::byte(5));
  ASSERT_TRUE(cache.store(key(0), bytesOf("code")).ok());
  EXPECT_TRUE(holdsOnAFullDisk(5000, [&] {
    const Status status = cache.store(key(1), large);
    const bool named = status.message().find(folder.path) != std::string::npos;
    return !status.ok() && named && !cache.load(key(1)) && cache.load(key(0)) && cache.store(key(2), bytesOf("x")).ok();
  }));
  EXPECT_EQ(cache.load(key(0)), bytesOf("code"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    EXPECT_NE(entry.path().extension(), ".tmp") << "what could not be finished is left";
}

TEST(FileCache, AFolderThatCannotBeWrittenIsRead) {
  TemporaryFolder folder;
  ASSERT_TRUE(FileCache(folder.path).store(key(0), bytesOf("code")).ok());
  std::filesystem::permissions(folder.path, std::filesystem::perms(0555));
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0) {  // may write anywhere: as somebody who may not
      for (const auto& entry : std::filesystem::directory_iterator(folder.path))
        std::filesystem::permissions(entry.path(), std::filesystem::perms(0644));
      if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(2);
    }
    const FileCache cache(folder.path);
    const bool refused = !cache.store(key(1), bytesOf("more")).ok() && !cache.load(key(1));
    const auto found = cache.load(key(0));
    (void)cache.lock(key(1), std::chrono::milliseconds(10));
    _exit(refused && found && *found == bytesOf("code") ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::permissions(folder.path, std::filesystem::perms(0755));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace zefuse
