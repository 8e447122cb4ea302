// The cache folder in several hands: threads, processes, other users.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "runtime/cache/file_cache.h"
#include "runtime/cache/maintenance.h"
#include "tests/unit/cache/entries.h"
#include "tests/unit/cache/temporary_folder.h"

namespace zefuse {
namespace {

using test::bytesOf;
using test::keyOf;
using test::TemporaryFolder;
using test::writeFile;

TEST(FileCache, TakesNoCodeThatAnotherUserCouldHaveWritten) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  ASSERT_TRUE(cache.store(keyOf(1), bytesOf("code")).ok());
  const std::string path = cache.entryPath(keyOf(1));
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(cache.load(keyOf(1)));
  EXPECT_TRUE(std::filesystem::exists(path));  // not ours to remove
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(cache.load(keyOf(1)));
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    EXPECT_FALSE(cache.load(keyOf(1)));
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  }
  std::filesystem::rename(path, folder.path + "/elsewhere");
  std::filesystem::create_symlink(folder.path + "/elsewhere", path);
  EXPECT_FALSE(cache.load(keyOf(1)));
}

TEST(FileCache, OneOfManyProcessesMakesAnEntry) {
  TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const FileCache cache(folder.path);
      const FileCache::Lock lock = cache.lock(keyOf(1), std::chrono::seconds(120));
      if (cache.load(keyOf(1)))
        _exit(0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the work
      _exit(lock.held() && cache.store(keyOf(1), bytesOf("code")).ok() ? 1 : 2);
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

TEST(FileCache, OneOfManyThreadsMakesAnEntry) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  std::atomic<int> made{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        const CacheKey which = keyOf((t + i) % 4);
        const FileCache::Lock lock = cache.lock(which, std::chrono::seconds(60));
        if (cache.load(which))
          continue;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the work
        made += 1;
        wrong += !lock.held() || !cache.store(which, bytesOf("code")).ok();
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(made, 4);
}

// One process stores beyond the limit again and again, the others read: each finds all of an entry or none of it.
TEST(FileCache, WhatIsReadMayBeEvictedMeanwhile) {
  TemporaryFolder folder;
  const std::vector<std::byte> code(20000, std::byte(7));
  const FileCache cache(folder.path, 100000);
  std::vector<pid_t> readers;
  int met[2];  // a byte of each reader's first entry
  ASSERT_EQ(pipe(met), 0);
  ASSERT_EQ(fcntl(met[0], F_SETFL, O_NONBLOCK), 0);
  for (int reader = 0; reader < 3; ++reader) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(300);  // a reader must not outlive the test
      for (int round = 0, found = 0;; ++round)
        if (const auto entry = cache.load(keyOf(round % 20))) {
          if (*entry != code)
            _exit(1);
          if (++found == 1 && write(met[1], "x", 1) != 1)
            _exit(2);
        }
    }
    readers.push_back(child);
  }
  // 400 times, and on until every reader has been seen to read: who is late on a busy machine is waited for.
  char byte = 0;
  int reading = 0;
  uint64_t most = 0;
  bool stored = true;
  for (int round = 0; stored && (round < 400 || (reading < 3 && round < 20000)); ++round) {
    stored = cache.store(keyOf(round % 20), code).ok();
    uint64_t total = 0;
    for (const CacheEntryInfo& entry : listEntries(folder.path))
      total += entry.bytes;
    most = std::max(most, total);
    while (read(met[0], &byte, 1) == 1)
      ++reading;
  }
  EXPECT_TRUE(stored);
  EXPECT_LE(most, 100000u + 100000 / 16 + 21000);  // looked at after each sixteenth of the limit
  EXPECT_EQ(reading, 3);
  for (pid_t child : readers) {
    kill(child, SIGTERM);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << "a reader found something else than was stored";
  }
  close(met[0]);
  close(met[1]);
}

// Whoever else can open a lock could hold it for ever, and a link could point anywhere.
TEST(FileCache, SomebodyElsesLockIsNotWaitedFor) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::string path = folder.path + "/locks/" + keyOf(1).fileName().substr(0, 2);
  ASSERT_TRUE(cache.lock(keyOf(1), std::chrono::seconds(1)).held());
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(cache.lock(keyOf(1), std::chrono::hours(1)).held());
  std::filesystem::remove(path);
  std::filesystem::create_symlink(folder.path + "/made-by-a-link", path);
  EXPECT_FALSE(cache.lock(keyOf(1), std::chrono::hours(1)).held());
  EXPECT_FALSE(std::filesystem::exists(folder.path + "/made-by-a-link"));
  // And what lies in an entry's place is not waited for.
  ASSERT_EQ(mkfifo(cache.entryPath(keyOf(2)).c_str(), 0600), 0);
  EXPECT_FALSE(cache.load(keyOf(2)));
  EXPECT_EQ(listEntries(folder.path).size(), 0u);
}

// /tmp and the like: anybody may make files there, and nobody may remove another's.
TEST(FileCache, AWorldWritableFolderIsSafe) {
  TemporaryFolder folder;
  ASSERT_EQ(chmod(folder.path.c_str(), 01777), 0);
  const FileCache cache(folder.path);
  ASSERT_TRUE(cache.store(keyOf(0), bytesOf("code")).ok());
  if (geteuid() != 0)
    GTEST_SKIP() << "needs another user";
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(12345) != 0 || setuid(12345) != 0)
      _exit(2);
    const FileCache theirs(folder.path);
    const bool hidden = !theirs.load(keyOf(0));  // root's, but for root alone
    (void)theirs.store(keyOf(1), bytesOf("evil"));
    evict(folder.path, 0);
    (void)clearCache(folder.path);
    const bool stored = theirs.store(keyOf(1), bytesOf("evil")).ok();
    _exit(hidden && stored ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(cache.load(keyOf(0)), bytesOf("code"));
  EXPECT_FALSE(cache.load(keyOf(1)));
  EXPECT_EQ(*exportCache(folder.path, folder.path + "/moved"), 1u);
  ASSERT_TRUE(cache.store(keyOf(1), bytesOf("ours")).ok());  // in its place
  EXPECT_EQ(cache.load(keyOf(1)), bytesOf("ours"));
}

TEST(FileCache, AFolderThatCannotBeWrittenIsRead) {
  TemporaryFolder folder;
  ASSERT_TRUE(FileCache(folder.path).store(keyOf(0), bytesOf("code")).ok());
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
    const bool refused = !cache.store(keyOf(1), bytesOf("more")).ok() && !cache.load(keyOf(1));
    const auto found = cache.load(keyOf(0));
    (void)cache.lock(keyOf(1), std::chrono::milliseconds(10));
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
