// Looking after the cache folder: keys, listings, a limit, moves to another machine.
#include "runtime/cache/maintenance.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <filesystem>
#include <fstream>

#include "runtime/cache/entry.h"
#include "runtime/cache/file_cache.h"
#include "tests/unit/cache/entries.h"
#include "tests/unit/cache/temporary_folder.h"

namespace zefuse {
namespace {

using test::bytesOf;
using test::keyOf;
using test::makeOlder;
using test::readFile;
using test::TemporaryFolder;
using test::writeFile;

TEST(CacheKey, SaysItsFields) {
  EXPECT_EQ(keyOf(7).text(), "kind=native\ndriver=one\nnumber=7\n");
  EXPECT_EQ(CacheKey("plan").add("a", "x\ny").text(), "kind=plan\na=x y\n");
  const auto fields = CacheKey::parse("kind=plan\nempty=\nlast=a=b\n");
  ASSERT_EQ(fields.size(), 3u);
  EXPECT_EQ(fields[1].second, "");
  EXPECT_EQ(fields[2].second, "a=b");
  EXPECT_TRUE(keyOf(1).fileName().ends_with(".native"));
  EXPECT_EQ(keyOf(1).fileName(), CacheKey::fileNameOf(keyOf(1).text()));
  EXPECT_NE(keyOf(1).fileName(), keyOf(2).fileName());
  EXPECT_TRUE(CacheKey::fileNameOf("kind=../../evil\n").ends_with(".entry"));
}

TEST(Maintenance, ListsWhatIsThere) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  ASSERT_TRUE(cache.store(keyOf(1), bytesOf("code"), "k0_gelu").ok());
  writeFile(folder.path + "/notes.txt", {'h', 'i'});
  const auto entries = listEntries(folder.path);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].note, "k0_gelu");
  ASSERT_EQ(entries[0].key.size(), 3u);
  EXPECT_EQ(entries[0].key[2], std::pair(std::string("number"), std::string("1")));
  EXPECT_TRUE(listEntries(folder.path + "/nowhere").empty());
}

TEST(Maintenance, ListsThoseOfAKindThatWereUsedLast) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> code(1000);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(cache.store(keyOf(i), code, "k" + std::to_string(i)).ok());
    makeOlder(cache.entryPath(keyOf(i)), 1000 * (4 - i));
  }
  ASSERT_TRUE(cache.store(CacheKey("plan"), code).ok());
  std::fstream(cache.entryPath(keyOf(3)), std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('x');
  EXPECT_EQ(listEntries(folder.path).size(), 4u);             // the damaged one is none
  const auto entries = listRecent(folder.path, "native", 2);  // bodies are not read
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].note, "k3");
  EXPECT_EQ(entries[1].note, "k2");
  EXPECT_EQ(entries[1].key, CacheKey::parse(keyOf(2).text()));
  EXPECT_EQ(listRecent(folder.path, "native", 10).size(), 4u);
  std::filesystem::rename(cache.entryPath(keyOf(2)), cache.entryPath(keyOf(9)));  // no key of this name
  EXPECT_EQ(listRecent(folder.path, "native", 10).size(), 3u);
}

TEST(Maintenance, TheLeastRecentlyUsedGo) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> code(1000);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(cache.store(keyOf(i), code).ok());
    makeOlder(cache.entryPath(keyOf(i)), 100000 - i);
  }
  ASSERT_TRUE(cache.load(keyOf(0)));  // the oldest is used again
  const uint64_t total = 10 * listEntries(folder.path)[0].bytes;
  evict(folder.path, total);
  EXPECT_EQ(listEntries(folder.path).size(), 10u);
  evict(folder.path, total - 1);
  EXPECT_EQ(listEntries(folder.path).size(), 8u);  // down to nine tenths of a limit that is a byte too small
  EXPECT_TRUE(cache.load(keyOf(0)));
  EXPECT_FALSE(cache.load(keyOf(1)));
  EXPECT_FALSE(cache.load(keyOf(2)));
  EXPECT_TRUE(cache.load(keyOf(3)));
}

TEST(Maintenance, WhatKilledWritersLeftGoes) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  ASSERT_TRUE(cache.store(keyOf(1), bytesOf("code")).ok());
  const std::string abandoned = cache.entryPath(keyOf(2)) + ".77.0.tmp", live = cache.entryPath(keyOf(3)) + ".78.0.tmp";
  writeFile(abandoned, {'x'});
  writeFile(live, {'x'});
  makeOlder(abandoned, 3600);
  evict(folder.path, 1 << 20);
  EXPECT_FALSE(std::filesystem::exists(abandoned));
  EXPECT_TRUE(std::filesystem::exists(live));
  EXPECT_TRUE(cache.load(keyOf(1)));
}

// The folder may be one that holds other things: given by mistake, or /tmp.
TEST(Maintenance, WhatIsNotOursStays) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::string hash = CacheKey::fileNameOf("kind=native\n").substr(0, 64);
  const std::vector<std::string> others = {"thesis.tex",
                                           "an.editor.tmp",
                                           "libm.native",
                                           hash,
                                           hash + ".native.bak",
                                           hash + ".native.1.tmp",
                                           hash + ".7.8.tmp",
                                           hash + ".native.1.2.3",
                                           hash.substr(1) + ".native"};
  for (const std::string& name : others) {
    writeFile(folder.path + "/" + name, std::vector<char>(1000));
    makeOlder(folder.path + "/" + name, 100000);
  }
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(cache.store(keyOf(i), bytesOf("code")).ok());
  evict(folder.path, 3000);  // enough for ours
  EXPECT_EQ(listEntries(folder.path).size(), 3u);
  evict(folder.path, 1);
  EXPECT_TRUE(listEntries(folder.path).empty());
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(cache.store(keyOf(i), bytesOf("code")).ok());
  auto removed = clearCache(folder.path);
  ASSERT_TRUE(removed.ok()) << removed.status().message();
  EXPECT_EQ(*removed, 3u);
  for (const std::string& name : others)
    EXPECT_TRUE(std::filesystem::exists(folder.path + "/" + name)) << name;
}

TEST(Maintenance, MovesToAnotherFolder) {
  TemporaryFolder here, there;
  const FileCache cache(here.path), other(there.path);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(cache.store(keyOf(i), bytesOf("code " + std::to_string(i)), "note").ok());
  const std::string file = here.path + "/moved";
  auto written = exportCache(here.path, file);
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(*written, 3u);
  auto taken = importCache(there.path, file);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_EQ(*taken, 3u);
  EXPECT_EQ(other.load(keyOf(2)), bytesOf("code 2"));
  EXPECT_EQ(importCache(there.path, here.path + "/nothing").status().code(), Code::not_found);

  ASSERT_EQ(exportCache(here.path, file + "2").ok(), true);
  EXPECT_EQ(readFile(file), readFile(file + "2"));  // equal bytes

  const std::vector<char> good = readFile(file);
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<char> bad = good;
    bad[i] ^= 1 << i % 8;
    writeFile(file, bad);
    TemporaryFolder target;
    EXPECT_EQ(importCache(target.path, file).status().code(), Code::damaged) << "byte " << i;
    for (int number = 0; number < 3; ++number)
      if (auto code = FileCache(target.path).load(keyOf(number))) {
        EXPECT_EQ(*code, bytesOf("code " + std::to_string(number))) << "byte " << i;
      }
  }
  for (size_t size = 0; size < good.size(); ++size) {
    writeFile(file, {good.begin(), good.begin() + ptrdiff_t(size)});
    EXPECT_EQ(importCache(there.path, file).status().code(), Code::damaged) << "cut to " << size;
  }
}

TEST(Maintenance, MovesReplaceWhatCannotBeUsed) {
  TemporaryFolder here, there;
  const FileCache cache(here.path), other(there.path);
  ASSERT_TRUE(cache.store(keyOf(1), bytesOf("code")).ok());
  const std::string file = here.path + "/moved";
  ASSERT_TRUE(exportCache(here.path, file).ok());
  writeFile(other.entryPath(keyOf(1)), {'d', 'a', 'm', 'a', 'g', 'e', 'd'});
  ASSERT_TRUE(importCache(there.path, file).ok());
  EXPECT_EQ(other.load(keyOf(1)), bytesOf("code"));
  ASSERT_EQ(chmod(other.entryPath(keyOf(1)).c_str(), 0666), 0);  // whoever wrote it
  ASSERT_TRUE(importCache(there.path, file).ok());
  EXPECT_EQ(other.load(keyOf(1)), bytesOf("code"));

  struct stat info{};
  ASSERT_TRUE(importCache(there.path + "/new", file).ok());
  ASSERT_EQ(stat((there.path + "/new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);  // as a folder that the cache makes for itself

  // What this user may not use is nothing to hand on under this user's name.
  ASSERT_EQ(chmod(cache.entryPath(keyOf(1)).c_str(), 0622), 0);
  auto written = exportCache(here.path, file);
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(*written, 0u);
}

}  // namespace
}  // namespace zefuse
