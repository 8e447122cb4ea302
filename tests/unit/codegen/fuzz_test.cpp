// Damaged SPIR-V: any answer but a crash. A seed that fails is printed; ZEFUSE_FUZZ_CASES and ZEFUSE_FUZZ_SEED rerun
// it.
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

namespace zefuse::cpu::testing {
namespace {

// Offsets of the instructions, by word counts.
std::vector<size_t> instructions(const std::vector<uint32_t>& words) {
  std::vector<size_t> out;
  for (size_t at = 5; at < words.size() && (words[at] >> 16) != 0; at += words[at] >> 16)
    out.push_back(at);
  return out;
}

std::vector<uint32_t> mutate(std::vector<uint32_t> w, std::mt19937_64& random) {
  auto insts = instructions(w);
  auto pick = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  int count = 1 + static_cast<int>(pick(3));
  for (int i = 0; i < count; ++i) {
    size_t inst = insts[pick(insts.size())];
    size_t length = std::clamp<size_t>(w[inst] >> 16, 1, w.size() - inst);  // the word count may be damaged already
    size_t at = inst + pick(length);
    switch (pick(9)) {
    case 0: w[at] = static_cast<uint32_t>(random()); break;
    case 1: w[at] ^= 1u << pick(32); break;
    case 2:
    case 3:  // another id in an operand's place: wrong types, wrong kinds
      w[inst + (length > 1 ? 1 + pick(length - 1) : 0)] = 1 + static_cast<uint32_t>(pick(w[3]));
      break;
    case 4: w[inst] = (w[inst] & 0xffff0000) | static_cast<uint32_t>(pick(400)); break;  // another opcode
    case 5: w[at] = static_cast<uint32_t>(pick(20)); break;
    case 6: w[at] = 0xffffffff - static_cast<uint32_t>(pick(3)); break;
    case 7: {  // an instruction copied over or next to another place
      size_t to = insts[pick(insts.size())];
      std::vector<uint32_t> copy(w.begin() + inst, w.begin() + inst + length);
      w.insert(w.begin() + to, copy.begin(), copy.end());
      return w;
    }
    case 8: w.erase(w.begin() + inst, w.begin() + inst + length); return w;
    }
  }
  if (pick(50) == 0)
    w.resize(pick(w.size()));
  return w;
}

class Fuzz : public ::testing::TestWithParam<const char*> {};

TEST_P(Fuzz, DamagedModulesNeverCrash) {
  auto words = loadSpirv(GetParam());
  ASSERT_FALSE(words.empty());
  const char* cases = std::getenv("ZEFUSE_FUZZ_CASES");
  const char* seed_text = std::getenv("ZEFUSE_FUZZ_SEED");
  int n = cases ? std::atoi(cases) : 150;
  uint64_t first = seed_text ? std::strtoull(seed_text, nullptr, 10) : 1;
  int built = 0;
  for (int i = 0; i < n; ++i) {
    std::mt19937_64 random(first + i);
    auto damaged = mutate(words, random);
    if (seed_text) {
      fprintf(stderr, "%s seed %llu\n", GetParam(),
              static_cast<unsigned long long>(first) + static_cast<unsigned long long>(i));
      if (FILE* f = fopen("/tmp/zefuse-fuzz.spv", "wb")) {
        fwrite(damaged.data(), 4, damaged.size(), f);
        fclose(f);
      }
    }
    CompileResult r = compileSpirv(damaged, {.isa = IsaLevel::x86_64_v3, .opt_level = (first + i) % 4 == 0 ? 2 : 0});
    if (r.ok)
      ++built;
    else
      EXPECT_FALSE(r.log.empty());
  }
  // Few survive such damage; were it none, only the reader's first checks would be tested. mutation_test.cpp goes
  // deeper.
  if (n >= 100)
    EXPECT_GE(built, n / 50) << "of " << n;
  RecordProperty("built", built);
}

TEST(FuzzBytes, NoiseIsRefused) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<uint32_t> w(random() % 64);
    for (uint32_t& x : w)
      x = static_cast<uint32_t>(random());
    if (w.size() > 5 && i % 2) {
      w[0] = 0x07230203;
      w[1] = 0x10000;
    }
    CompileResult r = compileSpirv(w, {});
    EXPECT_FALSE(r.ok);
    EXPECT_FALSE(r.log.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Modules, Fuzz,
                         ::testing::Values("basic", "block_order", "control", "barrier", "function_pointer", "images",
                                           "spec_constants", "translated"),
                         [](auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace zefuse::cpu::testing
