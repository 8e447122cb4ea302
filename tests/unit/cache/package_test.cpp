#include "runtime/package/package.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "runtime/package/json.h"
#include "tests/unit/cache/killed_at.h"
#include "tests/unit/cache/temporary_folder.h"

namespace zefuse::package {
namespace {

using test::bytesOf;
using test::readFile;
using test::TemporaryFolder;
using test::writeFile;

std::vector<char> sample(const std::string& path) {
  const auto plan = bytesOf("a plan"), manifest = bytesOf("{\"format\": 1}");
  const auto native = bytesOf(std::string(70, 'n'));
  const auto weights = bytesOf(std::string(100, 'w'));
  Writer writer;
  writer.add(std::string(plan_section), plan);
  writer.add(nativeSection("abc", "cpu"), native);
  writer.add("empty", {});
  writer.add(std::string(weights_section), weights);
  writer.add(std::string(manifest_section), manifest);
  EXPECT_TRUE(writer.write(path).ok());
  return readFile(path);
}

TEST(Package, GivesBackItsSectionsAligned) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  sample(path);
  auto reader = Reader::open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().toString();
  ASSERT_EQ((*reader)->sections().size(), 5u);
  for (const Reader::Section& section : (*reader)->sections())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(section.bytes.data()) % 64, 0u) << section.name;
  auto plan = (*reader)->section(plan_section);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(std::ranges::equal(*plan, bytesOf("a plan")));
  EXPECT_EQ((*reader)->native("abc", "cpu").size(), 70u);
  EXPECT_TRUE((*reader)->native("abc", "dg2-g11").empty());
  EXPECT_EQ((*reader)->section("nothing").status().code(), Code::damaged);
}

TEST(Package, EqualContentsGiveEqualBytes) {
  TemporaryFolder folder;
  const auto first = sample(folder.path + "/a");
  EXPECT_EQ(first, sample(folder.path + "/b"));
  const auto x = bytesOf("x"), y = bytesOf("y");
  Writer one, other;
  one.add("x", x), one.add("y", y);
  other.add("y", y), other.add("x", x);
  ASSERT_TRUE(one.write(folder.path + "/c").ok() && other.write(folder.path + "/d").ok());
  EXPECT_EQ(readFile(folder.path + "/c"), readFile(folder.path + "/d"));
}

TEST(Package, NoByteMayChangeUnnoticed) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  const std::vector<char> good = sample(path);
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<char> bad = good;
    bad[i] ^= 1 << i % 8;
    writeFile(path, bad);
    const auto reader = Reader::open(path, WeightsCheck::at_open);
    ASSERT_FALSE(reader.ok()) << "byte " << i;
    const bool in_version = i >= 10 && i < 12;  // the format that a reader must know
    EXPECT_EQ(reader.status().code(), in_version ? Code::unsupported : Code::damaged) << "byte " << i;
    EXPECT_NE(reader.status().message().find(path), std::string::npos);
  }
  for (size_t size = 0; size < good.size(); ++size) {
    writeFile(path, {good.begin(), good.begin() + ptrdiff_t(size)});
    ASSERT_EQ(Reader::open(path).status().code(), Code::damaged) << "cut to " << size;
  }
  std::vector<char> longer = good;
  longer.push_back(0);
  writeFile(path, longer);
  EXPECT_EQ(Reader::open(path).status().code(), Code::damaged);
}

TEST(Package, WeightsAreCheckedWhenAsked) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  std::vector<char> bytes = sample(path);
  auto good = Reader::open(path);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE((*good)->checkWeights().ok());
  bytes[bytes.size() - 1] ^= 1;  // the last section is the weights
  writeFile(path, bytes);
  EXPECT_EQ(Reader::open(path, WeightsCheck::at_open).status().code(), Code::damaged);
  auto later = Reader::open(path, WeightsCheck::at_first_use);
  ASSERT_TRUE(later.ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((*later)->checkWeights().code(), Code::damaged);
    EXPECT_NE((*later)->checkWeights().message().find("'weights'"), std::string::npos);
  }
  auto never = Reader::open(path, WeightsCheck::never);
  ASSERT_TRUE(never.ok());
  EXPECT_TRUE((*never)->checkWeights().ok());
}

TEST(Package, ANewerFormatIsRefusedByName) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  std::vector<char> bytes = sample(path);
  bytes[8] = bytes[10] = char(format_version + 1);
  writeFile(path, bytes);
  const Status status = Reader::open(path).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("needs a runtime that reads format " + std::to_string(format_version + 1)),
            std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("newer zefuse"), std::string::npos);
}

// The hash of header and table (package.cpp) made right again after a change.
void seal(std::vector<char>& bytes) {
  uint64_t table = 0;
  std::memcpy(&table, bytes.data() + 16, sizeof table);
  std::fill_n(bytes.begin() + 32, sizeof(Digest), 0);
  const Digest digest = sha256(std::as_bytes(std::span(bytes)).first(64 + table));
  std::memcpy(bytes.data() + 32, &digest, sizeof digest);
}

// A newer version that old readers may read says so: what counts is the format that a reader must know.
TEST(Package, SaysWhichRuntimesReadIt) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  std::vector<char> bytes = sample(path);
  EXPECT_EQ((*Reader::open(path))->readBy(), format_version);
  bytes[8] = char(format_version + 5);
  seal(bytes);
  writeFile(path, bytes);
  auto newer = Reader::open(path);
  ASSERT_TRUE(newer.ok()) << newer.status().message();
  EXPECT_EQ((*newer)->format(), format_version + 5);
  EXPECT_EQ((*newer)->readBy(), format_version);
  bytes[10] = char(format_version + 1);
  seal(bytes);
  writeFile(path, bytes);
  const Status status = Reader::open(path).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("is of format " + std::to_string(format_version + 5) +
                                  " and needs a runtime that reads format " + std::to_string(format_version + 1) +
                                  "; this one reads " + std::to_string(oldest_format) + " to " +
                                  std::to_string(format_version)),
            std::string::npos)
      << status.message();
  bytes[8] = bytes[10] = 0;
  seal(bytes);
  writeFile(path, bytes);
  EXPECT_EQ(Reader::open(path).status().code(), Code::damaged);
}

// Headers and tables whose hash is right and whose numbers are not: errors, nothing outside the file is read.
TEST(Package, ATableThatLiesIsRefused) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  const std::vector<char> good = sample(path);
  auto refused = [&](size_t at, uint64_t value, size_t bytes) {
    std::vector<char> bad = good;
    std::memcpy(bad.data() + at, &value, bytes);
    seal(bad);
    writeFile(path, bad);
    EXPECT_EQ(Reader::open(path).status().code(), Code::damaged) << "at " << at << ": " << value;
  };
  for (uint64_t value : {uint64_t(0), uint64_t(1), uint64_t(3), uint64_t(1) << 40, ~uint64_t(0)}) {
    refused(12, value, 4);            // how many sections
    refused(24, value, 8);            // the file's bytes
    for (size_t i = 0; i < 5; ++i) {  // entries: offset, bytes, name's bytes
      refused(64 + 56 * i, value, 8);
      refused(64 + 56 * i + 16, value, 4);
      if (i != 0 || value != 0)  // the first is empty
        refused(64 + 56 * i + 8, value, 8);
    }
  }
}

TEST(Package, FromABuffer) {
  TemporaryFolder folder;
  const std::vector<char> bytes = sample(folder.path + "/model.zefuse");
  alignas(64) static char memory[1 << 14];
  ASSERT_LE(bytes.size() + 1, sizeof memory);
  std::ranges::copy(bytes, memory);
  auto reader = Reader::fromBuffer(std::as_bytes(std::span(memory, bytes.size())));
  ASSERT_TRUE(reader.ok()) << reader.status().toString();
  EXPECT_EQ((*reader)->native("abc", "cpu").size(), 70u);
  std::ranges::copy(bytes, memory + 1);
  EXPECT_EQ(Reader::fromBuffer(std::as_bytes(std::span(memory + 1, bytes.size()))).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(Reader::fromBuffer({}).status().code(), Code::damaged);
}

TEST(Json, ReadsAndRefuses) {
  auto json = Json::parse(R"({"a": [1, -2, 2.5e1, true, null, "x\u00e4\ud83d\ude00\n"], "b": {"c": "d"}, "": 1})");
  ASSERT_TRUE(json.ok());
  const auto& list = json->find("a")->array();
  EXPECT_EQ(list[1].integer(), -2);
  EXPECT_FALSE(list[2].integer());
  EXPECT_EQ(list[5].text(), "x\u00e4\U0001F600\n");
  EXPECT_EQ(json->find("b")->textOr("c"), "d");
  EXPECT_EQ(json->find("nothing"), nullptr);
  for (const char* bad :
       {"", "{", "[1,]", "{\"a\" 1}", "{\"a\":1,}", "nul", "01x", "\"\\ud800\"", "\"a", "[1] 2", "--1", "{1:2}"})
    EXPECT_FALSE(Json::parse(bad).ok()) << bad;
  EXPECT_FALSE(Json::parse(std::string(100000, '[')).ok());
  for (const char* good : {"\xc3\xa4", "\xe2\x82\xac", "\xed\x9f\xbf", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(Json::parse('"' + std::string(good) + '"').ok()) << good;
  for (const char* bad : {"\x80", "\xc3", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xff", "\xe2\x82"})
    EXPECT_FALSE(Json::parse('"' + std::string(bad) + '"').ok());
}

TEST(Package, BadNamesAndPathsAreErrors) {
  TemporaryFolder folder;
  Writer twice;
  twice.add("x", {}), twice.add("x", {});
  EXPECT_EQ(twice.write(folder.path + "/p").code(), Code::invalid_argument);
  Writer nameless;
  nameless.add("", {});
  EXPECT_EQ(nameless.write(folder.path + "/p").code(), Code::invalid_argument);
  Writer fine;
  EXPECT_EQ(fine.write(folder.path + "/no/such/folder").code(), Code::not_found);
  EXPECT_EQ(Reader::open(folder.path + "/nothing").status().code(), Code::not_found);
  EXPECT_EQ(Reader::open(folder.path).status().code(), Code::damaged);  // a folder
}

// Whoever is killed while writing leaves the old package or the new one.
TEST(Package, KilledWritersLoseNothing) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  const std::vector<std::byte> large(3'000'000, std::byte(3)), other(3'000'000, std::byte(4));
  auto write = [&](const std::vector<std::byte>& bytes) {
    Writer writer;
    writer.add("weights", bytes);
    return writer.write(path);
  };
  ASSERT_TRUE(write(large).ok());
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0)
      for (int i = 0;; ++i)
        (void)write(i % 2 ? large : other);
    usleep(2000 + round * 1777);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto reader = Reader::open(path, WeightsCheck::at_open);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    const auto section = (*reader)->section("weights");
    ASSERT_TRUE(section.ok());
    ASSERT_TRUE(section->front() == section->back() && section->size() == large.size());
  }
}

TEST(Package, KilledAtAnySystemCallLeavesTheOldOrTheNewOneAndTheNextWriterTidies) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse", other = folder.path + "/other";
  const std::vector<char> old = sample(path);
  const auto plan = bytesOf("another plan");
  Writer writer;
  writer.add("plan", plan);
  writer.add("empty", {});
  ASSERT_TRUE(writer.write(other).ok());
  const std::vector<char> made = readFile(other);
  int as_before = 0;
  const int points = test::killEverywhere([&] { (void)writer.write(path); },
                                          [&](int point) {
                                            const std::vector<char> found = readFile(path);
                                            ASSERT_TRUE(found == old || found == made) << "killed at " << point;
                                            as_before += found == old;
                                            ASSERT_TRUE(writer.write(path).ok());
                                            for (const auto& file : std::filesystem::directory_iterator(folder.path))
                                              EXPECT_TRUE(file.path() == path || file.path() == other)
                                                  << file << " is left, killed at " << point;
                                            writeFile(path, old);
                                          });
  if (points == 0)
    GTEST_SKIP() << "no ptrace here";
  EXPECT_GT(as_before, 5);
  EXPECT_LT(as_before, points);
}

TEST(Package, AFullDiskLeavesTheOldOne) {
  TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  const std::vector<char> good = sample(path);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{5000, 5000};
    const std::vector<std::byte> large(3'000'000);
    Writer writer;
    writer.add("weights", large);
    setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = writer.write(path);
    _exit(!status.ok() && status.message().find(path) != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(readFile(path), good);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path))
    ++files;
  EXPECT_EQ(files, 1u) << "what could not be finished is left";
}

}  // namespace
}  // namespace zefuse::package
