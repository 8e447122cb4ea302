#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/cache/file_cache.h"
#include "runtime/cache/maintenance.h"
#include "tests/unit/cache/entries.h"
#include "tests/unit/cache/temporary_folder.h"

namespace zefuse {
namespace {

using test::makeOlder;
using test::TemporaryFolder;
using test::writeFile;

std::vector<std::string> namesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// A process that has begun to write `path` and is killed by the destructor, or by end().
class LiveWriter {
public:
  explicit LiveWriter(const std::string& path) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    child_ = fork();
    if (child_ == 0) {
      AtomicFile file(path, 0600);
      (void)!write(ready[1], file.descriptor() >= 0 ? "y" : "n", 1);
      pause();
    }
    char answer = 'n';
    EXPECT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    close(ready[0]);
    close(ready[1]);
  }
  ~LiveWriter() { end(); }
  void end() {
    if (child_ <= 0)
      return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

private:
  pid_t child_ = -1;
};

TEST(AtomicFile, IsThereAfterCommitAndNothingIsWithout) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/file";
  {
    AtomicFile file(path, 0640);
    ASSERT_EQ(write(file.descriptor(), "old", 3), 3);
    EXPECT_TRUE(file.commit());
  }
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  {
    AtomicFile file(path, 0640);
    ASSERT_EQ(write(file.descriptor(), "new", 3), 3);
    EXPECT_EQ(namesIn(folder.path).size(), 2u);
  }
  EXPECT_EQ(namesIn(folder.path), std::vector<std::string>{"file"});
  EXPECT_EQ(test::readFile(path), (std::vector<char>{'o', 'l', 'd'}));
  AtomicFile nowhere(folder.path + "/no/such/file", 0600);
  EXPECT_LT(nowhere.descriptor(), 0);
  EXPECT_EQ(errno, ENOENT);
}

TEST(AtomicFile, WhatADeadWriterLeftGoesAndALivingOnesStays) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/file";
  LiveWriter living(path), dead(path);
  dead.end();
  ASSERT_EQ(namesIn(folder.path).size(), 2u);
  for (const std::string& name : namesIn(folder.path))  // however long ago it wrote
    makeOlder(folder.path + "/" + name, 100000);
  removeAbandoned(path);
  ASSERT_EQ(namesIn(folder.path).size(), 1u);
  removeAbandoned(path);
  EXPECT_EQ(namesIn(folder.path).size(), 1u);
  AtomicFile own(path, 0600);  // of this process
  removeAbandoned(path);
  EXPECT_EQ(namesIn(folder.path).size(), 2u);
  EXPECT_TRUE(own.commit());
  living.end();
  removeAbandoned(path);
  EXPECT_EQ(namesIn(folder.path), std::vector<std::string>{"file"});
}

TEST(AtomicFile, WhoseMachineIsAnotherIsGivenTime) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/file", young = path + ".4294967373.0.tmp", old = path + ".78.1.tmp";
  writeFile(young, {'x'});
  writeFile(old, {'x'});
  makeOlder(old, abandoned_after.count() + 10);
  removeAbandoned(path);
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_FALSE(std::filesystem::exists(old));
}

TEST(AtomicFile, WhatIsNotOursStays) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  const std::vector<std::string> others = {
      "model.zefuse",          "model.zefuse.tmp",         "model.zefuse.1.tmp",     "model.zefuse.1.2",
      "model.zefuse.a.2.tmp",  "model.zefuse.1.2.tmp.bak", "model.zefuse..2.tmp",    "model.zefuse.-1.2.tmp",
      "model.zefuse2.1.2.tmp", "model.zefuse.1.2.3.tmp",   "a.model.zefuse.1.2.tmp", "thesis.1.2.tmp"};
  for (const std::string& name : others) {
    writeFile(folder.path + "/" + name, {'x'});
    makeOlder(folder.path + "/" + name, 100000);
  }
  std::filesystem::create_directory(path + ".1.2.tmp");
  std::filesystem::create_symlink(path, path + ".1.3.tmp");
  ASSERT_EQ(mkfifo((path + ".1.4.tmp").c_str(), 0600), 0);
  for (const char* name : {".1.2.tmp", ".1.3.tmp", ".1.4.tmp"})
    makeOlder(path + name, 100000);
  if (geteuid() == 0) {
    writeFile(path + ".1.5.tmp", {'x'});
    makeOlder(path + ".1.5.tmp", 100000);
    ASSERT_EQ(chown((path + ".1.5.tmp").c_str(), 12345, 12345), 0);
  }
  const std::vector<std::string> before = namesIn(folder.path);
  removeAbandoned(path);
  EXPECT_EQ(namesIn(folder.path), before);
}

// Between its creation and its lock a file looks abandoned.
TEST(AtomicFile, WritersAndRemoversOfOnePathDisturbNobody) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/file";
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      bool good = true;
      for (int round = 0; round < 500; ++round) {
        removeAbandoned(path);
        AtomicFile file(path, 0600);
        good = good && file.descriptor() >= 0 && write(file.descriptor(), "x", 1) == 1 && file.commit();
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(namesIn(folder.path), std::vector<std::string>{"file"});
}

TEST(AtomicFile, ACacheLeavesLivingWritersAlone) {
  TemporaryFolder folder;
  const CacheKey key = CacheKey("native").add("number", "1");
  const std::string entry = FileCache(folder.path).entryPath(key);
  LiveWriter living(entry), dead(entry);
  dead.end();
  evict(folder.path, 1 << 20);
  EXPECT_EQ(namesIn(folder.path).size(), 1u);
  EXPECT_EQ(*clearCache(folder.path), 0u);
  EXPECT_EQ(namesIn(folder.path).size(), 1u);
  living.end();
  EXPECT_EQ(*clearCache(folder.path), 1u);
  EXPECT_TRUE(namesIn(folder.path).empty());
}

}  // namespace
}  // namespace zefuse
