// The cache when a writer is killed or the disk is full.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "common/base/atomic_file.h"
#include "runtime/cache/file_cache.h"
#include "runtime/cache/maintenance.h"
#include "tests/unit/cache/entries.h"
#include "tests/unit/cache/killed_at.h"
#include "tests/unit/cache/temporary_folder.h"

namespace zefuse {
namespace {

using test::bytesOf;
using test::keyOf;
using test::killEverywhere;
using test::TemporaryFolder;
using test::writeFile;

// What may be found under keys 0 to 3: nothing or what was stored.
void expectSound(const std::string& folder, const std::vector<std::byte>& code, int point) {
  for (int i = 0; i < 4; ++i)
    if (const auto found = FileCache(folder).load(keyOf(i))) {
      EXPECT_EQ(*found, code) << "key " << i << ", killed at " << point;
    }
}

TEST(Killed, WhileStoring) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> code(50000, std::byte(5));
  ASSERT_TRUE(cache.store(keyOf(0), code).ok());
  const int points = killEverywhere(
      [&] {
        (void)cache.store(keyOf(0), code);  // in the place of an old one
        (void)cache.store(keyOf(1), code);
      },
      [&](int point) {
        ASSERT_EQ(cache.load(keyOf(0)), code) << "killed at " << point;
        expectSound(folder.path, code, point);
        std::filesystem::remove(cache.entryPath(keyOf(1)));
      });
  if (points == 0)
    GTEST_SKIP() << "no ptrace here";
  EXPECT_GT(points, 10);
  ASSERT_TRUE(cache.store(keyOf(1), code).ok());
  EXPECT_EQ(cache.load(keyOf(1)), code);
}

TEST(Killed, WhileEvicting) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> code(5000, std::byte(5));
  auto fill = [&] {
    for (int i = 0; i < 4; ++i)
      ASSERT_TRUE(cache.store(keyOf(i), code).ok());
  };
  fill();
  const uint64_t two = listEntries(folder.path)[0].bytes * 5 / 2;
  (void)cache.lock(keyOf(0), std::chrono::seconds(1));  // makes the folder of locks
  const int points = killEverywhere([&] { evict(folder.path, two); },
                                    [&](int point) {
                                      EXPECT_GE(listEntries(folder.path).size(), 2u) << "killed at " << point;
                                      expectSound(folder.path, code, point);
                                      evict(folder.path, two);  // nobody's lock is in the way
                                      EXPECT_EQ(listEntries(folder.path).size(), 2u) << "killed at " << point;
                                      fill();
                                    });
  if (points == 0)
    GTEST_SKIP() << "no ptrace here";
  EXPECT_GT(points, 10);
}

TEST(Killed, WhileExportingAndImporting) {
  TemporaryFolder here, there;
  const FileCache cache(here.path);
  const std::vector<std::byte> code(5000, std::byte(5));
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(cache.store(keyOf(i), code).ok());
  const std::string file = there.path + "/moved";
  ASSERT_TRUE(exportCache(here.path, file).ok());
  int points = killEverywhere([&] { (void)exportCache(here.path, file); },
                              [&](int point) {
                                TemporaryFolder target;
                                auto taken = importCache(target.path, file);
                                ASSERT_TRUE(taken.ok()) << taken.status().message() << ", killed at " << point;
                                EXPECT_EQ(*taken, 4u);
                                ASSERT_TRUE(exportCache(here.path, file).ok());
                                for (const auto& entry : std::filesystem::directory_iterator(there.path))
                                  EXPECT_EQ(entry.path(), file) << "killed at " << point;
                              });
  if (points == 0)
    GTEST_SKIP() << "no ptrace here";
  EXPECT_GT(points, 10);
  const std::string target = there.path + "/target";
  points = killEverywhere([&] { (void)importCache(target, file); },
                          [&](int point) {
                            expectSound(target, code, point);
                            ASSERT_TRUE(importCache(target, file).ok()) << "killed at " << point;
                            EXPECT_EQ(listEntries(target).size(), 4u);
                            std::filesystem::remove_all(target);
                          });
  EXPECT_GT(points, 10);
}

// In containers process numbers repeat: what a killed one left under a name is not in the way of the next.
TEST(Killed, WhatIsLeftIsInNobodysWay) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  uint64_t next = 0;
  std::string writer;
  {
    const AtomicFile probe(folder.path + "/probe", 0600);
    const std::string name = std::filesystem::directory_iterator(folder.path)->path().stem();  // probe.WRITER.NUMBER
    writer = name.substr(5, name.rfind('.') - 5);
    next = std::stoull(name.substr(name.rfind('.') + 1)) + 1;
  }
  for (uint64_t number = next; number < next + 200; ++number)
    writeFile(cache.entryPath(keyOf(1)) + writer + "." + std::to_string(number) + ".tmp", {'x'});
  const Status status = cache.store(keyOf(1), bytesOf("code"));
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(cache.load(keyOf(1)), bytesOf("code"));
}

TEST(Killed, AHolderFreesTheLock) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FileCache::Lock lock = cache.lock(keyOf(1), std::chrono::seconds(5));
    (void)!write(ready[1], "x", 1);
    pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(cache.lock(keyOf(1), std::chrono::milliseconds(20)).held());
  int asked = 0;
  EXPECT_FALSE(cache.lock(keyOf(1), std::chrono::minutes(10), [&] { return ++asked == 3; }).held());
  EXPECT_EQ(asked, 3);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(cache.lock(keyOf(1), std::chrono::seconds(5)).held());
  close(ready[0]);
  close(ready[1]);
}

TEST(Killed, AtAnyTimeWhileStoring) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> code(300000, std::byte(5));
  ASSERT_TRUE(cache.store(keyOf(0), code).ok());
  for (int round = 0; round < 25; ++round) {
    const pid_t child = fork();
    if (child == 0)
      for (int i = 0;; ++i)
        (void)cache.store(keyOf(i % 4), code);
    usleep(1000 + round * 777);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_EQ(cache.load(keyOf(0)), code);
    for (int i = 1; i < 4; ++i)
      if (auto found = cache.load(keyOf(i)))
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

TEST(FullDisk, CostsOnlyTheReuse) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> large(300000, std::byte(5));
  ASSERT_TRUE(cache.store(keyOf(0), bytesOf("code")).ok());
  EXPECT_TRUE(holdsOnAFullDisk(5000, [&] {
    const Status status = cache.store(keyOf(1), large);
    const bool named = status.message().find(folder.path) != std::string::npos;
    return !status.ok() && named && !cache.load(keyOf(1)) && cache.load(keyOf(0)) &&
           cache.store(keyOf(2), bytesOf("x")).ok();
  }));
  EXPECT_EQ(cache.load(keyOf(0)), bytesOf("code"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    EXPECT_NE(entry.path().extension(), ".tmp") << "what could not be finished is left";
}

TEST(FullDisk, AnExportLeavesTheOldFile) {
  TemporaryFolder here, there;
  ASSERT_TRUE(FileCache(here.path).store(keyOf(0), bytesOf("code")).ok());
  const std::string file = there.path + "/moved", target = there.path + "/target";
  ASSERT_TRUE(exportCache(here.path, file).ok());
  const std::vector<char> before = test::readFile(file);
  ASSERT_TRUE(FileCache(here.path).store(keyOf(1), std::vector<std::byte>(300000)).ok());
  EXPECT_TRUE(holdsOnAFullDisk(5000, [&] {
    const Status status = exportCache(here.path, file).status();
    return !status.ok() && status.message().find(file) != std::string::npos;
  }));
  EXPECT_EQ(test::readFile(file), before);
  ASSERT_TRUE(exportCache(here.path, file).ok());
  EXPECT_TRUE(holdsOnAFullDisk(5000, [&] {
    const Status status = importCache(target, file).status();
    return !status.ok() && status.message().find(target) != std::string::npos;
  }));
  EXPECT_LE(listEntries(target).size(), 1u);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(there.path))
    EXPECT_NE(entry.path().extension(), ".tmp") << "what could not be finished is left";
}

// The real thing: a file system of 256 KiB in a name space of the child's own.
TEST(FullDisk, NoSpaceIsLeft) {
  TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    if ((geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) || unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=256k") != 0)
      _exit(77);
    const FileCache cache(folder.path);
    const std::vector<std::byte> code(20000, std::byte(5));
    int kept = 0;
    while (kept < 100 && cache.store(keyOf(kept), code).ok())
      ++kept;
    (void)cache.lock(keyOf(0), std::chrono::milliseconds(10));
    bool good =
        kept > 5 && kept < 20 && cache.store(keyOf(99), code).message().find("No space left") != std::string::npos;
    for (int i = 0; i < kept; ++i)
      good = good && cache.load(keyOf(i)) == code;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
      good = good && entry.path().extension() != ".tmp";
    evict(folder.path, 100000);  // the limit makes room on a full disk too
    good = good && cache.store(keyOf(99), code).ok() && cache.load(keyOf(99)) == code;
    _exit(good ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace zefuse
