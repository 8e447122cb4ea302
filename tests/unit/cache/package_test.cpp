#include "runtime/package/package.h"

#include <gtest/gtest.h>

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
  Writer writer;
  writer.add(std::string(plan_section), plan);
  writer.add(nativeSection("abc", "cpu"), native);
  writer.add("empty", {});
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
  ASSERT_EQ((*reader)->sections().size(), 4u);
  for (const Reader::Section& section : (*reader)->sections())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(section.bytes.data()) % 64, 0u) << section.name;
  auto plan = (*reader)->section(plan_section);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(std::ranges::equal(*plan, bytesOf("a plan")));
  EXPECT_EQ((*reader)->native("abc", "cpu").size(), 70u);
  EXPECT_TRUE((*reader)->native("abc", "dg2-g11").empty());
  EXPECT_EQ((*reader)->section(weights_section).status().code(), Code::damaged);
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
    const auto reader = Reader::open(path);
    ASSERT_FALSE(reader.ok()) << "byte " << i;
    EXPECT_EQ(reader.status().code(), Code::damaged);
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

}  // namespace
}  // namespace zefuse::package
