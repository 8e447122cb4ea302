#include "runtime/cache/file_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/cache/sha256.h"
#include "tests/unit/cache/temporary_folder.h"

namespace zefuse {
namespace {

using test::bytesOf;
using test::readFile;
using test::TemporaryFolder;
using test::writeFile;

CacheKey key(const std::string& what) { return CacheKey("native").add("what", what); }

TEST(Sha256, KnowsTheStandardsExamples) {
  auto of = [](std::string_view text) { return hex(Sha256().update(text).finish()); };
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveWhatTheWholeGives) {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text += char(i * 7);
  const Digest whole = Sha256().update(text).finish();
  for (size_t piece : {1, 3, 63, 64, 65, 130}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece)
      hash.update(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hash.finish(), whole) << piece;
  }
}

TEST(FileCache, GivesBackWhatWasStored) {
  TemporaryFolder folder;
  const FileCache cache(folder.path + "/made/when/needed");
  EXPECT_FALSE(cache.load(key("key")));
  ASSERT_TRUE(cache.store(key("key"), bytesOf("some code")).ok());
  EXPECT_EQ(cache.load(key("key")), bytesOf("some code"));
  EXPECT_FALSE(cache.load(key("other key")));
  ASSERT_TRUE(cache.store(key("key"), {}).ok());
  EXPECT_EQ(cache.load(key("key")), std::vector<std::byte>());
}

TEST(FileCache, NoByteMayChangeUnnoticed) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  ASSERT_TRUE(cache.store(key("key"), bytesOf("some native code")).ok());
  const std::string path = cache.entryPath(key("key"));
  const std::vector<char> good = readFile(path);
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<char> bad = good;
    bad[i] ^= 1 << i % 8;
    writeFile(path, bad);
    ASSERT_FALSE(cache.load(key("key"))) << "byte " << i;
    EXPECT_FALSE(std::filesystem::exists(path));  // so that it is made again
  }
  for (size_t size = 0; size < good.size(); ++size) {
    writeFile(path, {good.begin(), good.begin() + ptrdiff_t(size)});
    ASSERT_FALSE(cache.load(key("key"))) << "cut to " << size;
  }
  std::vector<char> longer = good;
  longer.push_back('x');
  writeFile(path, longer);
  EXPECT_FALSE(cache.load(key("key")));
  writeFile(path, good);
  EXPECT_TRUE(cache.load(key("key")));
  writeFile(cache.entryPath(key("other")), good);  // a right entry under a wrong name
  EXPECT_FALSE(cache.load(key("other")));
}

TEST(FileCache, SurvivesADirectoryItCannotUse) {
  TemporaryFolder folder;
  writeFile(folder.path + "/file", {'x'});
  const FileCache in_a_file(folder.path + "/file/below");
  EXPECT_FALSE(in_a_file.store(key("key"), bytesOf("code")).ok());
  EXPECT_FALSE(in_a_file.load(key("key")));
  const FileCache proc("/proc/zefuse-cannot-be-here");
  EXPECT_FALSE(proc.store(key("key"), bytesOf("code")).ok());
  const FileCache off("");
  EXPECT_TRUE(off.store(key("key"), bytesOf("code")).ok());
  EXPECT_FALSE(off.load(key("key")));
}

TEST(FileCache, WritersAndReadersMayMeet) {
  TemporaryFolder folder;
  const FileCache cache(folder.path);
  const std::vector<std::byte> code(10000, std::byte(7));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        wrong += !cache.store(key("key"), code).ok();
        wrong += cache.load(key("key")) != code;
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path))
    ++files;
  EXPECT_EQ(files, 1u);  // no temporary file is left
}

}  // namespace
}  // namespace zefuse
