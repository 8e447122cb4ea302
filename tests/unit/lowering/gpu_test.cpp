// The Intel GPU schedules: what they choose, and what Intel's compiler makes of them.
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "common/toolchain/ocloc.h"
#include "common/toolchain/subprocess.h"
#include "lowering/schedule/products/product_splits.h"
#include "lowering/spirv/validate.h"
#include "tests/unit/lowering/gpu_kernels.h"
#include "tests/unit/lowering/kept_binary.h"
#include "tests/unit/lowering/matmul_text.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

TEST(GpuTargets, NamesAreKnownAndClosed) {
  EXPECT_FALSE(TargetDescription::named("dg2"));
  EXPECT_FALSE(TargetDescription::named(""));
  for (const GpuTarget& gpu : gpuTargets()) {
    EXPECT_EQ(findGpuTarget(gpu.product), &gpu) << gpu.product << " is listed twice";
    auto target = TargetDescription::named(gpu.product);
    ASSERT_TRUE(target);
    EXPECT_TRUE(gpu.subgroup_sizes & target->subgroup_size) << gpu.product;
    EXPECT_TRUE(gpu.matrix.lanes == 0 || (gpu.subgroup_sizes & gpu.matrix.lanes)) << gpu.product;
  }
}

TEST(GpuSchedule, TeamsByRowLength) {
  auto teamOf = [](size_t n, size_t m) {
    KernelText text;
    RowOps ops{text, type(n, m), type(std::to_string(n))};
    text.input({"%x", ops.full, flat(m)});
    text.output({ops.softmax("%x"), ops.full, flat(m)});
    Program program(text.module(), *TargetDescription::named("dg2-g11"));
    const auto* team = program.lowered().schedule.find<choice::RowTeam>();
    EXPECT_TRUE(team && team->rows == int64_t(n) && team->elements == int64_t(m)) << n << " x " << m;
    return team ? std::pair(team->of, team->size) : std::pair(choice::RowTeam::Of::item, int64_t(0));
  };
  using Of = choice::RowTeam::Of;
  EXPECT_EQ(teamOf(100000, 8), std::pair(Of::item, int64_t(1)));
  EXPECT_EQ(teamOf(100000, 128), std::pair(Of::subgroup, int64_t(16)));
  EXPECT_EQ(teamOf(100000, 4096), std::pair(Of::group, int64_t(512)));
  EXPECT_EQ(teamOf(10, 768), std::pair(Of::group, int64_t(64)));
}

// Sums, extrema, products and logic, in each way that a team of work-items meets.
TEST_P(Lowering, EveryCombinerMeets) {
  struct Case {
    const char *element, *combiner, *start;
  };
  for (Case c :
       {Case{"f32", "arith.mulf", "1.0"}, Case{"f32", "arith.minimumf", "0x7F800000"},
        Case{"f32", "arith.maxnumf", "0xFF800000"}, Case{"i64", "arith.addi", "3"}, Case{"i32", "arith.muli", "1"},
        Case{"i32", "arith.maxsi", "-2147483648"}, Case{"i8", "arith.minsi", "127"}, Case{"i16", "arith.xori", "0"},
        Case{"i1", "arith.andi", "1"}, Case{"i1", "arith.ori", "0"}})
    for (int m : {8, 100, 3000}) {
      SCOPED_TRACE(std::string(c.combiner) + " of " + c.element + ", " + std::to_string(m));
      int n = 5;
      KernelText text;
      std::string element = c.element, full = type(std::to_string(n) + "x" + std::to_string(m), element),
                  row = type("5", element);
      text.input({"%x", full, flat(m)});
      text.fill("%i", row, c.start);
      text.generic("%r", "pr", {{"%x", full, both}}, {"%i", row, rows},
                   std::string("%s = ") + c.combiner + " %0, %o : " + element + "\n yield %s : " + element);
      text.output({"%r", row, "(d0) -> (d0)"});
      Program program(text.module(), GetParam());
      ASSERT_TRUE(program.ok());
      auto check = [&]<typename T>(T, auto&& value, auto&& combine, T start, double tolerance = 0) {
        std::vector<T> x(n * m), out(n, T(77));
        std::mt19937 random(5);
        for (T& item : x)
          item = value(random());
        program.run({x.data(), out.data()});
        for (int i = 0; i < n; ++i) {
          T expected = start;
          for (int j = 0; j < m; ++j)
            expected = combine(expected, x[i * m + j]);
          EXPECT_NEAR(double(out[i]), double(expected), tolerance * (1 + std::abs(double(expected)))) << i;
        }
      };
      std::string name = c.combiner;
      if (name == "arith.mulf")
        check(
            0.0f, [&](unsigned r) { return 1.0f + (float(r % 1000) - 500) / 500000; },
            [](float a, float b) { return a * b; }, 1.0f, 1e-4);
      else if (name == "arith.minimumf")
        check(
            0.0f, [](unsigned r) { return float(r % 100000); }, [](float a, float b) { return std::min(a, b); },
            std::numeric_limits<float>::infinity());
      else if (name == "arith.maxnumf")
        check(
            0.0f, [](unsigned r) { return float(r % 100000); }, [](float a, float b) { return std::max(a, b); },
            -std::numeric_limits<float>::infinity());
      else if (name == "arith.addi")
        check(
            int64_t(0), [](unsigned r) { return int64_t(r) << 8; }, [](int64_t a, int64_t b) { return a + b; },
            int64_t(3));
      else if (name == "arith.muli")
        check(
            int32_t(0), [](unsigned r) { return int32_t(r | 1); },
            [](int32_t a, int32_t b) { return int32_t(uint32_t(a) * uint32_t(b)); }, int32_t(1));
      else if (name == "arith.maxsi")
        check(
            int32_t(0), [](unsigned r) { return int32_t(r); }, [](int32_t a, int32_t b) { return std::max(a, b); },
            std::numeric_limits<int32_t>::min());
      else if (name == "arith.minsi")
        check(
            int8_t(0), [](unsigned r) { return int8_t(r % 200 - 90); },
            [](int8_t a, int8_t b) { return std::min(a, b); }, int8_t(127));
      else if (name == "arith.xori")
        check(
            int16_t(0), [](unsigned r) { return int16_t(r); }, [](int16_t a, int16_t b) { return int16_t(a ^ b); },
            int16_t(0));
      else if (name == "arith.andi")
        check(
            uint8_t(0), [&](unsigned r) { return uint8_t(r % unsigned(2 * m) != 0); },
            [](uint8_t a, uint8_t b) { return uint8_t(a & b); }, uint8_t(1));
      else
        check(
            uint8_t(0), [&](unsigned r) { return uint8_t(r % unsigned(2 * m) == 0); },
            [](uint8_t a, uint8_t b) { return uint8_t(a | b); }, uint8_t(0));
    }
}

// Few tiles and a long k: slices, as many as there is room for, whole ones. Else none.
TEST(GpuSchedule, ProductsAreSplitAlongK) {
  const TargetDescription small = *TargetDescription::named("dg2-g11"), large = *TargetDescription::named("dg2-g10");
  EXPECT_EQ(chooseSplits(4096, 4096, 1, 4096, 4, small, false), 1);  // many tiles
  EXPECT_EQ(chooseSplits(1, 3072, 1, 768, 4, small, false), 1);      // a launch costs more
  EXPECT_EQ(chooseSplits(64, 64, 1, 50177, 4, small, false), 1);     // no whole slices
  EXPECT_EQ(chooseSplits(64, 64, 1, 3 * 8192, 4, small, false), 128);
  EXPECT_EQ(chooseSplits(64, 64, 1, 1 << 20, 4, small, false), 128);
  EXPECT_GT(chooseSplits(64, 64, 1, 1 << 20, 4, large, false), 128);
  EXPECT_EQ(chooseSplits(64, 64, 512, 8192, 4, small, false), 1);  // a batch has tiles enough
  EXPECT_GT(chooseSplits(64, 64, 1, 1 << 20, 4, small, true), 1);
}

// What a schedule is worth shows in the instructions: vectors of 16 bytes from and to memory, combination inside a
// sub-group without local memory or a barrier, one meeting in local memory for longer rows, a tile of local memory for
// a transpose.
TEST(GpuSchedule, InstructionsOfEachFamily) {
  struct Counts {
    int vector_loads, vector_stores, scalar_loads, scalar_stores;  // of f32
    int subgroup_operations, barriers, local_arrays;
  };
  auto countsOf = [](const std::string& name) {
    Counts counts{};
    std::string text;
    for (const NamedKernel& kernel : kernelFamilies())
      if (kernel.name == name)
        text = disassemble(wordsOf(kernel.module, *TargetDescription::named("dg2-g11")));
    EXPECT_FALSE(text.empty()) << name;
    std::set<std::string> vectors;  // ids of f32 vectors, for stores
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
      const bool defines = word.size() > 3 && word[1] == "=";
      const std::string op = word.empty() ? "" : defines ? word[2] : word[0];
      if (defines && word[3] == "%v4float")
        vectors.insert(word[0]);
      counts.vector_loads += op == "OpLoad" && word[3] == "%v4float";
      counts.scalar_loads += op == "OpLoad" && word[3] == "%float";
      counts.vector_stores += op == "OpStore" && vectors.contains(word[2]);
      counts.scalar_stores += op == "OpStore" && !vectors.contains(word[2]);
      counts.subgroup_operations += op.starts_with("OpGroup") && op != "OpGroupDecorate";
      counts.barriers += op == "OpControlBarrier";
      counts.local_arrays += op == "OpVariable" && word[4] == "Workgroup";
    }
    return counts;
  };
  struct Expected {
    const char* name;
    bool scalars;  // single elements of f32 are read or written: what is left over of a row, or in local memory
    bool subgroups;
    int barriers, local_arrays;
  };
  for (Expected expected : {Expected{"pointwise_large", false, false, 0, 0}, Expected{"softmax_8", false, false, 0, 0},
                            Expected{"softmax_128", false, true, 0, 0}, Expected{"norm_softmax_768", false, true, 0, 0},
                            Expected{"softmax_2000", true, true, 2, 2}, Expected{"full_sum", true, true, 1, 1},
                            Expected{"column_sums", false, false, 1, 1}, Expected{"sum_of_slices", false, false, 1, 1},
                            Expected{"transpose", true, false, 1, 1}, Expected{"matmul_512", true, false, 2, 2}}) {
    SCOPED_TRACE(expected.name);
    Counts counts = countsOf(expected.name);
    EXPECT_EQ(counts.scalar_loads + counts.scalar_stores > 0, expected.scalars)
        << counts.scalar_loads << ", " << counts.scalar_stores;
    EXPECT_EQ(counts.subgroup_operations > 0, expected.subgroups);
    EXPECT_EQ(counts.barriers, expected.barriers);
    EXPECT_EQ(counts.local_arrays, expected.local_arrays);
    // The lanes of a transposed tile are neighbours on both sides, one element each.
    EXPECT_EQ(counts.vector_loads > 0, std::string_view(expected.name) != "transpose");
  }
  EXPECT_EQ(countsOf("pointwise_large").vector_loads, 3);
  EXPECT_EQ(countsOf("pointwise_large").vector_stores, 1);
  // A row of two vectors for each work-item: each is loaded once, for three stages.
  EXPECT_EQ(countsOf("softmax_128").vector_loads, 2);
  EXPECT_EQ(countsOf("softmax_128").vector_stores, 2);
}

// A kernel that spills gets smaller tiles, and says so.
TEST(GpuSchedule, SpillingKernelsAreRescheduled) {
  auto lowered = [](std::vector<int64_t> answers) {
    std::string matrix = type(4096, 4096);
    size_t asked = 0;
    SpillCheck check = [&](std::span<const uint32_t> words) -> std::optional<int64_t> {
      EXPECT_FALSE(words.empty());
      return answers[asked++];
    };
    auto kernel = loweredOf(MatmulText(matrix, matrix, matrix).module(), *TargetDescription::named("dg2-g11"), check);
    EXPECT_EQ(asked, answers.size());
    return kernel ? kernel->schedule : ScheduleRecord();
  };
  ScheduleRecord first = lowered({0}), second = lowered({12, 0}), third = lowered({12, 7, 3});
  auto accumulators = [](const Choices& choices) { return find<choice::Product>(choices)->registers.accumulators; };
  EXPECT_TRUE(first.given_up.empty() && first.spilled == 0) << describe(first);
  ASSERT_EQ(second.given_up.size(), 1u) << describe(second);
  EXPECT_EQ(second.given_up[0].second, 12);
  EXPECT_EQ(second.spilled, 0);
  EXPECT_EQ(accumulators(second.given_up[0].first[0]), accumulators(first.parts[0]));
  EXPECT_LT(accumulators(second.parts[0]), accumulators(first.parts[0]));
  ASSERT_EQ(third.given_up.size(), 2u) << describe(third);
  EXPECT_EQ(third.given_up[1].second, 7);
  EXPECT_EQ(third.spilled, 3);
  EXPECT_EQ(third.spilled_on, "dg2-g11");
}

//===-- what Intel's compiler makes of them ----------------------------------------------------===//

class Ocloc : public testing::TestWithParam<std::string> {};

// The installed compilers that know the product: the distribution's, then newer ones.
std::vector<std::string> compilersFor(const std::string& product) {
  std::vector<std::string> compilers = installedOclocs();
  std::erase_if(compilers, [&](const std::string& compiler) {
    return !runTool({compiler, "ids", product}, {std::chrono::seconds(30)}).ok();
  });
  return compilers;
}

struct FamilyKernel {
  std::string name;
  ScheduleRecord schedule;
  std::vector<uint32_t> words;
};

// One kernel of each family; `check` is asked for spills of those that have tiles, as a plan does.
std::vector<FamilyKernel> everyFamily(const TargetDescription& target, const SpillCheck& check) {
  std::vector<FamilyKernel> kernels;
  auto add = [&](const std::string& name, const auto& source) {
    const bool tiles = name.find("matmul") == 0 || name.find("linear") == 0 || name.find("convolution") == 0 ||
                       name.find("attention") == 0;
    auto lowered = loweredOf(source, target, tiles ? check : SpillCheck());
    if (!lowered) {
      ADD_FAILURE() << name << " is not lowered";
      return;
    }
    kernels.push_back({name, lowered->schedule, lowered->spirv});
  };
  for (const NamedKernel& kernel : kernelFamilies())
    add(kernel.name, kernel.module);
  for (std::string element : {"f32", "f16", "bf16"}) {
    AttentionCase attention{.heads = 12, .key_heads = 12, .rows = 512, .keys = 512, .depth = 64, .columns = 64};
    attention.element = element;
    add("attention_64_" + element, moduleOf(attention));
    attention.log_sums = true;
    add("attention_training_" + element, moduleOf(attention));
    attention.around = true;
    add("attention_training_around_" + element, moduleOf(attention));
    attention.around = false;
    attention.log_sums = false;
    attention.causal = attention.symbolic = true;
    add("attention_causal_" + element, moduleOf(attention));
    attention.depth = attention.columns = 128;
    attention.mask = "f32";
    add("attention_128_mask_" + element, moduleOf(attention));
    attention.around = true;
    add("attention_128_mask_around_" + element, moduleOf(attention));
    attention.around = false;
    attention.symbolic = false;
    for (const char* gradient : {"queries", "keys"}) {
      attention.gradient = gradient;
      attention.depth = attention.columns = 128;
      attention.causal = true;
      attention.mask = "f32";
      add("attention_128_mask_by_" + attention.gradient + "_" + element, attention);
      attention.depth = attention.columns = 64;
      attention.mask = "";
      add("attention_causal_by_" + attention.gradient + "_" + element, attention);
      attention.causal = false;
      add("attention_64_by_" + attention.gradient + "_" + element, attention);
    }
    if (element != "f32" && target.matrix.form == MatrixForm::fragments) {
      attention.gradient = "all";
      add("attention_64_by_all_" + element, attention);
      attention.causal = true;
      add("attention_causal_by_all_" + element, attention);
    }
  }
  return kernels;
}

// No spills, no private memory, no function left to be found at the launch, and what goes to the matrix engine is on
// it. `make gpu-kernels` takes the table from the lines that begin with '|'.
void checkEveryFamily(const std::string& product, const std::string& compiler) {
  OclocOptions options;
  options.compiler = compiler;
  options.assembly = true;
  auto version = oclocVersion(options);
  SCOPED_TRACE("ocloc " + (version.ok() ? *version : "?"));
  TargetDescription target = *TargetDescription::named(product);
  std::map<std::vector<uint32_t>, Result<DeviceBinary>> compiled;
  auto compile = [&](std::span<const uint32_t> words) -> const Result<DeviceBinary>& {
    std::vector<uint32_t> key(words.begin(), words.end());
    auto known = compiled.find(key);
    if (known == compiled.end())
      known = compiled.emplace(std::move(key), keptBinary(words, product, options)).first;
    return known->second;
  };
  // As a plan does.
  auto check = [&](std::span<const uint32_t> words) -> std::optional<int64_t> {
    const auto& binary = compile(words);
    return binary.ok() ? std::optional(oclocReport(*binary).spilled_registers) : std::nullopt;
  };
  for (const FamilyKernel& kernel : everyFamily(target, check)) {
    SCOPED_TRACE(kernel.name + ": " + describe(kernel.schedule));
    const auto& binary = compile(kernel.words);
    ASSERT_TRUE(binary.ok()) << binary.status().toString();
    DeviceReport report = oclocReport(*binary);
    EXPECT_EQ(report.spilled_registers, 0) << binary->text;
    EXPECT_EQ(report.private_bytes, 0);
    EXPECT_EQ(report.unresolved, std::vector<std::string>());
    EXPECT_EQ(report.matrix_operations > 0, kernel.schedule.onMatrixEngine()) << "dpas: " << report.matrix_operations;
    std::printf("| %s | %s | %s | %d | %d | %d | %d | %d | %zu | %s |\n", kernel.name.c_str(), product.c_str(),
                version.ok() ? version->c_str() : "?", report.simd, report.registers, int(report.spilled_registers),
                report.matrix_operations, int(report.local_bytes), binary->bytes.size(),
                kernel.schedule.given_up.empty() ? "" : "smaller tile");
  }
}

TEST_P(Ocloc, EveryFamily) {
  const std::vector<std::string> compilers = compilersFor(GetParam());
  if (compilers.empty())
    GTEST_SKIP() << "no installed ocloc knows " << GetParam();
  for (const std::string& compiler : compilers)
    checkEveryFamily(GetParam(), compiler);
}

// The same by our own compiler and NVIDIA's assembler, where that is installed (ZEFUSE_PTXAS, docs/cuda_driver.md).
// Arrays that did not fit into registers are a stack frame. `make gpu-kernels` takes this table too.
OclocOptions ptxasOptions() {
  OclocOptions options;
  options.compiler = ZEFUSE_PTX_PROGRAM;
  return options;
}

// What a kernel becomes on a product, compiled once in the process; null where it was not compiled yet and is not to
// be.
const Result<DeviceBinary>* ptxasBinary(const std::string& product, std::span<const uint32_t> words,
                                        bool compile = true) {
  static std::map<std::pair<std::string, std::vector<uint32_t>>, Result<DeviceBinary>> compiled;
  std::pair key(product, std::vector<uint32_t>(words.begin(), words.end()));
  auto known = compiled.find(key);
  if (known == compiled.end() && compile)
    known = compiled.emplace(std::move(key), keptBinary(words, product, ptxasOptions())).first;
  return known == compiled.end() ? nullptr : &known->second;
}

// Bytes that ptxas may spill of a kernel, and why.
int64_t spillsKnown(std::string_view kernel, std::string_view product) {
  struct Known {
    std::string_view kernel, product;
    int64_t bytes;
  };
  static constexpr Known known[] = {
      {"softmax_1024", "sm_100", 8},  // ptxas 13.0 stops at 48 registers there and spills one; it takes 64 on sm_90
  };
  for (const Known& each : known)
    if (each.kernel == kernel && each.product == product)
      return each.bytes;
  return 0;
}

// `roomy`: kernels that need not be compiled for this product.
void checkFamiliesWithPtxas(const std::string& product, const std::function<bool(std::span<const uint32_t>)>& roomy) {
  auto version = oclocVersion(ptxasOptions());
  ASSERT_TRUE(version.ok()) << version.status().toString();
  if (version->find("ptxas") == std::string::npos)
    GTEST_SKIP() << "no ptxas is installed";
  auto check = [&](std::span<const uint32_t> words) -> std::optional<int64_t> {
    if (roomy(words))
      return 0;
    const auto& binary = *ptxasBinary(product, words);
    return binary.ok() ? std::optional(oclocReport(*binary).spilled_registers) : std::nullopt;
  };
  int looked_at = 0;
  for (const FamilyKernel& kernel : everyFamily(*TargetDescription::named(product), check)) {
    if (roomy(kernel.words))
      continue;
    ++looked_at;
    SCOPED_TRACE(kernel.name + ": " + describe(kernel.schedule));
    const auto& binary = *ptxasBinary(product, kernel.words);
    ASSERT_TRUE(binary.ok()) << binary.status().toString();
    const DeviceReport report = oclocReport(*binary);
    EXPECT_LE(report.spilled_registers, spillsKnown(kernel.name, product)) << binary->text;
    EXPECT_LE(report.private_bytes, spillsKnown(kernel.name, product)) << binary->text;
    EXPECT_EQ(report.unresolved, std::vector<std::string>());
    EXPECT_EQ(report.matrix_operations > 0, kernel.schedule.onMatrixEngine()) << "mma: " << report.matrix_operations;
    std::printf("| %s | %s | %s | %d | %d | %d | %d | %d | %zu | %s |\n", kernel.name.c_str(), product.c_str(),
                version->c_str(), report.simd, report.registers, int(report.spilled_registers),
                report.matrix_operations, int(report.local_bytes), binary->bytes.size(),
                kernel.schedule.given_up.empty() ? "" : "smaller tile");
  }
  EXPECT_GT(looked_at, 0);
}

class Ptxas : public testing::TestWithParam<std::string> {};

TEST_P(Ptxas, EveryFamily) {
  checkFamiliesWithPtxas(GetParam(), [](std::span<const uint32_t>) { return false; });
}

// ctest leaves out those that PtxasLike looks at.
INSTANTIATE_TEST_SUITE_P(Products, Ptxas, testing::Values("sm_80", "sm_86", "sm_89", "sm_90", "sm_100"),
                         [](const auto& instance) { return instance.param; });

// A product that is nearly another one: only kernels that are not the other's are compiled again, and those with at
// least half of a work-item's registers there, which are near to spilling. All of them where the other one's test did
// not run before.
struct Likeness {
  std::string product, other;
};
class PtxasLike : public testing::TestWithParam<Likeness> {};

TEST_P(PtxasLike, WhatDiffersOrIsTight) {
  checkFamiliesWithPtxas(GetParam().product, [&](std::span<const uint32_t> words) {
    const auto* there = ptxasBinary(GetParam().other, words, false);
    return there && there->ok() && oclocReport(**there).registers < 128;
  });
}

INSTANTIATE_TEST_SUITE_P(Products, PtxasLike,
                         testing::Values(Likeness{"sm_86", "sm_80"}, Likeness{"sm_89", "sm_80"},
                                         Likeness{"sm_100", "sm_80"}),
                         [](const auto& instance) { return instance.param.product; });

// What the tuner may choose of attention by products of four sub-groups: no spills, and no products that wait for each
// other (zefuse-ptx counts that as a spill).
TEST(PtxasChoices, AttentionTogether) {
  auto version = oclocVersion(ptxasOptions());
  ASSERT_TRUE(version.ok()) << version.status().toString();
  if (version->find("ptxas") == std::string::npos)
    GTEST_SKIP() << "no ptxas is installed";
  const TargetDescription target = *TargetDescription::named("sm_90");
  for (int depth : {64, 128})
    for (bool ragged : {false, true}) {
      const int length = ragged ? 2001 : 2048;
      AttentionCase c{.heads = 16, .key_heads = 4, .rows = length, .keys = length, .depth = depth, .columns = depth};
      c.causal = ragged;
      c.log_sums = ragged;
      c.element = "bf16";
      struct Choice {
        int warpgroups, turns, copying, persistent;
      };
      for (auto [warpgroups, turns, copying, persistent] :
           {Choice{1, 0, 0, 0}, {2, 0, 0, 0}, {2, 1, 0, 0}, {3, 0, 0, 0}, {2, 1, 4, 0}, {2, 0, 4, 1}, {3, 1, 4, 1}})
        for (int keys : {64, 96, 128}) {
          auto lowered = loweredOf(moduleOf(c), target, nullptr,
                                   {{"warpgroups", warpgroups},
                                    {"keys of a step", keys},
                                    {"copying sub-groups", copying},
                                    {"one group on each engine", persistent},
                                    {"turns of warpgroups", turns}});
          ASSERT_TRUE(lowered);
          const auto* chosen = lowered->schedule.find<choice::Attention>();
          ASSERT_TRUE(chosen && chosen->together);
          if (chosen->rows != warpgroups * 64 || chosen->keys != keys)
            continue;  // too large
          const auto& binary = *ptxasBinary(target.name, lowered->spirv);
          ASSERT_TRUE(binary.ok()) << binary.status().toString();
          EXPECT_EQ(oclocReport(*binary).spilled_registers, 0) << describe(lowered->schedule) << binary->text;
        }
    }
}

// A description that promises twice the registers that there are.
TEST(OclocSpills, AreFoundAndRescheduled) {
  const std::vector<std::string> compilers = compilersFor("dg2-g11");
  if (compilers.empty())
    GTEST_SKIP() << "no installed ocloc knows dg2-g11";
  OclocOptions options;
  options.compiler = compilers.back();
  TargetDescription target = *TargetDescription::named("dg2-g11");
  target.engine_accumulator_bytes *= 2;
  int64_t last = -1;
  auto check = [&](std::span<const uint32_t> words) -> std::optional<int64_t> {
    auto binary = keptBinary(words, target.name, options);
    EXPECT_TRUE(binary.ok()) << binary.status().toString();
    last = binary.ok() ? oclocReport(*binary).spilled_registers : 0;
    return last;
  };
  AttentionCase attention{.heads = 12, .key_heads = 12, .rows = 512, .keys = 512, .depth = 64, .columns = 64};
  attention.element = "f16";
  auto lowered = loweredOf(moduleOf(attention), target, check);
  ASSERT_TRUE(lowered);
  EXPECT_FALSE(lowered->schedule.given_up.empty()) << describe(lowered->schedule);
  EXPECT_EQ(last, 0) << describe(lowered->schedule);
}

INSTANTIATE_TEST_SUITE_P(Products, Ocloc,
                         testing::Values("tgllp", "adl-p", "dg2-g11", "mtl-h", "bmg-g21", "lnl-m", "pvc"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace zefuse::test
