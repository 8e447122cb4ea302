// The Intel GPU schedules: what they choose, and what Intel's compiler makes of them.
#include "lowering/native/ocloc.h"
#include "lowering/native/subprocess.h"
#include "tests/unit/lowering/gpu_kernels.h"
#include "tests/unit/lowering/matmul_text.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

TEST(GpuTargets, NamesAreKnownAndClosed) {
  EXPECT_FALSE(TargetDescription::intelGpu("dg2"));
  EXPECT_FALSE(TargetDescription::intelGpu(""));
  for (const GpuTarget& gpu : gpuTargets()) {
    EXPECT_EQ(findGpuTarget(gpu.product), &gpu) << gpu.product << " is listed twice";
    auto target = TargetDescription::intelGpu(gpu.product);
    ASSERT_TRUE(target);
    EXPECT_TRUE(gpu.subgroup_sizes & target->subgroup_size) << gpu.product;
    EXPECT_TRUE(gpu.matrix.n == 0 || (gpu.subgroup_sizes & gpu.matrix.n)) << gpu.product;
  }
}

TEST(GpuSchedule, TeamsByRowLength) {
  auto scheduleOf = [](size_t n, size_t m) {
    KernelText text;
    RowOps ops{text, type(n, m), type(std::to_string(n))};
    text.input({"%x", ops.full, flat(m)});
    text.output({ops.softmax("%x"), ops.full, flat(m)});
    return Program(text.module(), *TargetDescription::intelGpu("dg2-g11")).lowered().schedule;
  };
  EXPECT_NE(scheduleOf(100000, 8).find("a row per work-item"), std::string::npos) << scheduleOf(100000, 8);
  EXPECT_NE(scheduleOf(100000, 128).find("a row per sub-group"), std::string::npos) << scheduleOf(100000, 128);
  EXPECT_NE(scheduleOf(100000, 4096).find("a row per group of 512"), std::string::npos) << scheduleOf(100000, 4096);
  EXPECT_NE(scheduleOf(10, 768).find("a row per group of 64"), std::string::npos) << scheduleOf(10, 768);
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

// A kernel that spills gets smaller tiles, and says so.
TEST(GpuSchedule, SpillingKernelsAreRescheduled) {
  auto lowered = [](std::vector<int64_t> answers) {
    std::string result;
    std::string matrix = type(4096, 4096);
    size_t asked = 0;
    SpillCheck check = [&](std::span<const uint32_t> words) -> std::optional<int64_t> {
      EXPECT_FALSE(words.empty());
      return answers[asked++];
    };
    auto kernel =
        loweredOf(MatmulText(matrix, matrix, matrix).module(), *TargetDescription::intelGpu("dg2-g11"), check);
    EXPECT_EQ(asked, answers.size());
    return kernel ? kernel->schedule : std::string();
  };
  std::string first = lowered({0}), second = lowered({12, 0}), third = lowered({12, 7, 3});
  EXPECT_EQ(first.find("spill"), std::string::npos) << first;
  EXPECT_NE(second.find("; rescheduled, since this spilled 12 on dg2-g11: " + first), std::string::npos) << second;
  EXPECT_NE(second.substr(0, second.find(';')), first);
  EXPECT_NE(third.find("; spills 3 on dg2-g11"), std::string::npos) << third;
}

//===-- what Intel's compiler makes of them ----------------------------------------------------===//

class Ocloc : public testing::TestWithParam<std::string> {};

// The newest installed compiler that knows the product; empty: none.
std::string compilerFor(const std::string& product) {
  std::vector<std::string> compilers = installedOclocs();
  for (auto compiler = compilers.rbegin(); compiler != compilers.rend(); ++compiler)
    if (runTool({*compiler, "ids", product}, {std::chrono::seconds(30)}).ok())
      return *compiler;
  return {};
}

// No spills, no private memory, no function left to be found at the launch, and what goes to the matrix engine is on
// it. `make gpu-kernels` takes the table from the lines that begin with '|'.
TEST_P(Ocloc, EveryFamily) {
  OclocOptions options;
  options.compiler = compilerFor(GetParam());
  options.assembly = true;
  if (options.compiler.empty())
    GTEST_SKIP() << "no installed ocloc knows " << GetParam();
  auto version = oclocVersion(options);
  TargetDescription target = *TargetDescription::intelGpu(GetParam());
  struct Kernel {
    std::string name, schedule;
    std::vector<uint32_t> words;
  };
  std::vector<Kernel> kernels;
  // As a package's plan does.
  auto check = [&](std::span<const uint32_t> words) -> std::optional<int64_t> {
    auto binary = compileWithOcloc(words, GetParam(), options);
    return binary.ok() ? std::optional(deviceReport(*binary).spilled_registers) : std::nullopt;
  };
  auto add = [&](const std::string& name, const auto& source) {
    const bool tiles = name.find("matmul") == 0 || name.find("linear") == 0 || name.find("convolution") == 0 ||
                       name.find("attention") == 0;
    auto lowered = loweredOf(source, target, tiles ? SpillCheck(check) : SpillCheck());
    ASSERT_TRUE(lowered) << name;
    kernels.push_back({name, lowered->schedule, lowered->spirv});
  };
  for (const NamedKernel& kernel : kernelFamilies())
    add(kernel.name, kernel.module);
  for (std::string element : {"f32", "f16", "bf16"}) {
    AttentionCase attention{.heads = 12, .key_heads = 12, .rows = 512, .keys = 512, .depth = 64, .columns = 64};
    attention.element = element;
    add("attention_64_" + element, attention);
    attention.causal = attention.symbolic = true;
    add("attention_causal_" + element, attention);
    attention.depth = attention.columns = 128;
    attention.mask = "f32";
    add("attention_128_mask_" + element, attention);
  }
  for (const Kernel& kernel : kernels) {
    SCOPED_TRACE(kernel.name + ": " + kernel.schedule);
    auto binary = compileWithOcloc(kernel.words, GetParam(), options);
    ASSERT_TRUE(binary.ok()) << binary.status().toString();
    DeviceReport report = deviceReport(*binary);
    EXPECT_EQ(report.spilled_registers, 0) << binary->text;
    EXPECT_EQ(report.private_bytes, 0);
    EXPECT_EQ(report.unresolved, std::vector<std::string>());
    const bool engine = kernel.schedule.substr(0, kernel.schedule.find(';')).find("matrix engine") != std::string::npos;
    EXPECT_EQ(report.matrix_operations > 0, engine) << "dpas: " << report.matrix_operations;
    std::printf("| %s | %s | %s | %d | %d | %d | %d | %d | %zu | %s |\n", kernel.name.c_str(), GetParam().c_str(),
                version.ok() ? version->c_str() : "?", report.simd, report.registers, int(report.spilled_registers),
                report.matrix_operations, int(report.local_bytes), binary->bytes.size(),
                kernel.schedule.find("rescheduled") == std::string::npos ? "" : "smaller tile");
  }
}

// A description that promises twice the registers that there are.
TEST(OclocSpills, AreFoundAndRescheduled) {
  OclocOptions options;
  options.compiler = compilerFor("dg2-g11");
  if (options.compiler.empty())
    GTEST_SKIP() << "no installed ocloc knows dg2-g11";
  TargetDescription target = *TargetDescription::intelGpu("dg2-g11");
  target.engine_accumulator_bytes *= 2;
  int64_t last = -1;
  auto check = [&](std::span<const uint32_t> words) -> std::optional<int64_t> {
    auto binary = compileWithOcloc(words, target.name, options);
    EXPECT_TRUE(binary.ok()) << binary.status().toString();
    last = binary.ok() ? deviceReport(*binary).spilled_registers : 0;
    return last;
  };
  AttentionCase attention{.heads = 12, .key_heads = 12, .rows = 512, .keys = 512, .depth = 64, .columns = 64};
  attention.element = "f16";
  auto lowered = loweredOf(attention, target, check);
  ASSERT_TRUE(lowered);
  EXPECT_NE(lowered->schedule.find("; rescheduled, since this spilled "), std::string::npos) << lowered->schedule;
  EXPECT_EQ(last, 0) << lowered->schedule;
}

INSTANTIATE_TEST_SUITE_P(Products, Ocloc, testing::Values("dg2-g11", "mtl-h", "bmg-g21", "lnl-m", "pvc"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace zefuse::test
