// A GPU of another vendor is a row of data: kernels for a target that no table has, with sub-groups of another size and
// without a matrix engine.
#include <set>
#include <sstream>

#include "lowering/lower.h"
#include "lowering/spirv/validate.h"
#include "tests/unit/lowering/gpu_kernels.h"
#include "tests/unit/lowering/matmul_text.h"
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

// NVIDIA's H100, as its specification has it.
TargetDescription sm90() {
  static constexpr uint16_t ids[] = {0x2330, 0x2331};
  static constexpr GpuTarget row{.product = "sm_90",
                                 .family = "Hopper",
                                 .marketing = "H100",
                                 .vendor = 0x10de,
                                 .device_ids = ids,
                                 .engines = 132 * 4,
                                 .threads_per_engine = 16,
                                 .max_group_size = 1024,
                                 .subgroup_sizes = 32,
                                 .subgroup_size = 32,
                                 .register_bytes = 32 << 10,
                                 .accumulator_bytes = 8 << 10,
                                 .local_memory_kib = 48,
                                 .native = {.f64 = true, .f16 = true, .shuffles = true}};
  return TargetDescription::of(row);
}

std::set<std::string> linesOf(const std::vector<uint32_t>& words, const std::string& start) {
  std::set<std::string> found;
  std::istringstream lines(disassemble(words));
  for (std::string line; std::getline(lines, line);)
    if (size_t at = line.find(start); at != std::string::npos)
      found.insert(line.substr(at));
  return found;
}

// Lowering validates what it returns (spirv-val), so here: in its sub-groups, and nothing that it lacks.
TEST(Vendor, EveryFamilyLowers) {
  for (const NamedKernel& kernel : kernelFamilies()) {
    SCOPED_TRACE(kernel.name);
    std::vector<uint32_t> words = wordsOf(kernel.module, sm90());
    ASSERT_FALSE(words.empty());
    EXPECT_EQ(whyInvalid(words), std::nullopt);
    EXPECT_EQ(importedFunctions(words), std::vector<std::string>());
    for (const std::string& mode : linesOf(words, " SubgroupSize "))
      EXPECT_EQ(mode, " SubgroupSize 32");
  }
}

TEST(Vendor, RowsOfAnyLength) {
  for (auto [n, m] : {std::pair<size_t, size_t>{40, 8}, {40, 100}, {3, 3000}}) {
    SCOPED_TRACE(m);
    KernelText text;
    RowOps ops{text, type(n, m), type(std::to_string(n))};
    text.input({"%x", ops.full, flat(m)});
    text.output({ops.softmax("%x"), ops.full, flat(m)});
    Program program(text.module(), sm90());
    ASSERT_TRUE(program.ok());
    Floats x = randomFloats(n * m);
    Guarded out(n * m);
    program.run({x.data(), out.data()});
    expectNear(out, softmaxOf({x.begin(), x.end()}, n, m));
  }
}

TEST(Vendor, Products) {
  for (auto [m, n, k] : {std::tuple{70, 130, 40}, std::tuple{1, 100, 50}, std::tuple{128, 128, 64}}) {
    SCOPED_TRACE(m);
    Program program(MatmulText(type(m, k), type(k, n), type(m, n)).module(), sm90());
    ASSERT_TRUE(program.ok());
    Floats a = randomFloats(m * k, 1, 1), b = randomFloats(k * n, 2, 1);
    Guarded out(m * n);
    program.run({a.data(), b.data(), out.data()});
    expectNear(out, productOf(a, b, m, n, k), 1e-5);
  }
}

TEST(Vendor, SumsAcrossRows) {
  constexpr size_t n = 300, m = 70;
  KernelText text;
  text.input({"%x", type(n, m), flat(m)});
  text.fill("%i", type("70"), "0.0");
  text.generic("%s", "rp", {{"%x", type(n, m), both}}, {"%i", type("70"), columns},
               "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.output({"%s", type("70"), "(d0) -> (d0)"});
  Program program(text.module(), sm90());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(n * m);
  Guarded out(m);
  program.run({x.data(), out.data()});
  std::vector<double> expected(m);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < m; ++j)
      expected[j] += x[i * m + j];
  expectNear(out, expected, 1e-5);
}

// What a target lacks is refused, whatever asks for it.
TEST(Vendor, WhatIsNotNativeIsRefused) {
  const std::string matrix = type("64x64", "f16");
  const MatmulText product(matrix, matrix, matrix);
  std::vector<uint32_t> engine = wordsOf(product.module(), *TargetDescription::named("dg2-g11"));
  EXPECT_EQ(whyNotOn(*TargetDescription::named("dg2-g11"), engine), "");
  EXPECT_NE(whyNotOn(sm90(), engine).find("matrix_mad"), std::string::npos) << whyNotOn(sm90(), engine);
  const MatmulText wide(type("64x64", "f64"), type("64x64", "f64"), type("64x64", "f64"));
  std::vector<uint32_t> doubles = wordsOf(wide.module(), sm90());
  EXPECT_EQ(whyNotOn(sm90(), doubles), "");
  EXPECT_NE(whyNotOn(*TargetDescription::named("tgllp"), doubles).find("f64"), std::string::npos);
}

TEST(Vendor, IdsCarryTheirVendor) {
  const GpuTarget* found = findGpuTarget(PciId{intel_pci, 0x56a5});
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->product, "dg2-g11");
  EXPECT_EQ(findGpuTarget(PciId{0x10de, 0x56a5}), nullptr);
}

}  // namespace
}  // namespace zefuse::test
