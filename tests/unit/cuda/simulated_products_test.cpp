// Products on NVIDIA's matrix engine as they become PTX: lowered for sm_90, and the LLVM IR for NVPTX run on the host
// (simulated_harness.cpp), whose asynchronous copies come as late as they may.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <new>

#include <sys/mman.h>

#include "drivers/cuda/codegen/codegen.h"
#include "tests/unit/codegen/harness.h"
#include "tests/unit/lowering/kernel_text.h"
#include "tests/unit/lowering/matmul_text.h"
#include "tests/unit/lowering/numerics.h"

#include "mlir/IR/AffineExpr.h"

namespace zefuse::test {
namespace {

uint16_t bitsOf(float value, bool half) {
  return half ? std::bit_cast<uint16_t>(static_cast<_Float16>(value)) : uint16_t(std::bit_cast<uint32_t>(value) >> 16);
}

// Elements that begin where the executor's buffers do, and end where no memory is: what reads behind them ends the
// test.
template <typename T> class Buffer {
public:
  explicit Buffer(size_t count) : pages_((count * sizeof(T) + page - 1) / page * page) {
    void* all = mmap(nullptr, pages_ + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all, pages_, PROT_READ | PROT_WRITE) != 0)
      throw std::bad_alloc();
    memory_.reset(static_cast<std::byte*>(all));
    memory_.get_deleter().bytes = pages_ + page;
    first_ = reinterpret_cast<T*>(memory_.get() + (pages_ - count * sizeof(T)) / line * line);
  }
  T* data() { return first_; }
  T& operator[](size_t i) { return first_[i]; }

private:
  static constexpr size_t page = 4096, line = 64;
  struct Unmap {
    size_t bytes = 0;
    void operator()(std::byte* all) const { munmap(all, bytes); }
  };
  size_t pages_;
  std::unique_ptr<std::byte, Unmap> memory_;
  T* first_;
};

// Runs a kernel of static sizes whose arguments are all pointers.
void runSimulated(const Program& lowered, const std::vector<void*>& pointers) {
  const LoweredKernel& kernel = lowered.lowered();
  cpu::testing::Program simulated(kernel.spirv);
  ASSERT_TRUE(simulated.ok());
  std::vector<cpu::testing::Arg> arguments;
  for (void* pointer : pointers)
    arguments.push_back(cpu::testing::Arg::of(pointer));
  const int64_t units = mlir::cast<mlir::AffineConstantExpr>(kernel.extent).getValue();
  const auto groups = uint64_t((units + kernel.grain - 1) / kernel.grain);
  simulated.run(simulated.module()->kernels()[0].name, {groups, 1, 1},
                {kernel.group_size[0], kernel.group_size[1], kernel.group_size[2]}, arguments);
}

// What the driver makes of it for sm_90. Empty, with a failure that says why: nothing.
std::string ptxOf(const Program& program) {
  cuda::CompileOptions options;
  options.architecture = 90;
  const cuda::CompileResult compiled = cuda::compileSpirv(program.lowered().spirv, options);
  EXPECT_FALSE(compiled.program.image.empty()) << compiled.log;
  return compiled.program.image.empty() ? "" : reinterpret_cast<const char*>(compiled.program.image.data());
}

TEST(SimulatedProducts, Matmul) {
  struct Case {
    const char* element;
    bool a_turned, b_turned;
    int64_t engines;  // few: large tiles
    int m, n, k;
  };
  for (Case c : {Case{"bf16", false, false, 132, 64, 64, 128}, Case{"f16", false, true, 1, 136, 130, 200},
                 Case{"bf16", true, false, 132, 40, 24, 72}, Case{"f16", true, true, 132, 17, 33, 40},
                 Case{"bf16", false, false, 132, 5, 7, 3}}) {
    auto [element, a_turned, b_turned, engines, m, n, k] = c;
    SCOPED_TRACE(std::string(element) + " " + std::to_string(m) + " x " + std::to_string(n) + " x " +
                 std::to_string(k));
    const bool half = element[0] == 'f';
    auto shape = [&](int rows, int columns) {
      return type(std::to_string(rows) + "x" + std::to_string(columns), element);
    };
    MatmulText text(shape(m, k), shape(k, n), type(m, n));
    if (a_turned)
      text.layouts[0] = "(d0, d1) -> (d1 * " + std::to_string(m) + " + d0)";
    if (b_turned)
      text.layouts[1] = "(d0, d1) -> (d1 * " + std::to_string(k) + " + d0)";
    TargetDescription target = *TargetDescription::named("sm_90");
    target.engines = engines;
    Program program(text.module(), target, /*aligned=*/true);
    ASSERT_TRUE(program.ok());
    EXPECT_TRUE(program.lowered().schedule.onMatrixEngine());
    Buffer<uint16_t> a(size_t(m) * size_t(k)), b(size_t(k) * size_t(n));
    Buffer<float> result(size_t(m) * size_t(n));
    auto aOf = [&](int i, int l) { return (i * 7 + l * 3) % 13 - 6; };
    auto bOf = [&](int l, int j) { return (l * 5 + j) % 31 - 15; };
    for (int l = 0; l < k; ++l) {
      for (int i = 0; i < m; ++i)
        a[a_turned ? l * m + i : i * k + l] = bitsOf(float(aOf(i, l)), half);
      for (int j = 0; j < n; ++j)
        b[b_turned ? j * k + l : l * n + j] = bitsOf(float(bOf(l, j)), half);
    }
    runSimulated(program, {a.data(), b.data(), result.data()});
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        int sum = 0;
        for (int l = 0; l < k; ++l)
          sum += aOf(i, l) * bOf(l, j);
        ASSERT_EQ(result[i * n + j], float(sum)) << i << ", " << j;
      }
  }
}

template <typename Element>
void checkAttentionOf(const AttentionCase& c, const char* target, int64_t engines, const Tuning& tuning) {
  SCOPED_TRACE(std::string(target) + ", " + std::to_string(c.rows) + " rows, " + std::to_string(c.keys) + " keys of " +
               std::to_string(c.depth) + (c.causal ? ", causal" : ""));
  TargetDescription description = *TargetDescription::named(target);
  description.engines = engines;
  Program program(moduleOf(c), description, /*aligned=*/true, tuning);
  ASSERT_TRUE(program.ok());
  EXPECT_TRUE(program.lowered().schedule.onMatrixEngine());
  const auto* chosen = program.lowered().schedule.find<choice::Attention>();
  ASSERT_TRUE(chosen);
  constexpr bool wide = std::is_same_v<Element, float>;
  EXPECT_EQ(chosen->together, !wide && std::string(target) == "sm_90" && c.rows >= 64 && c.keys >= 64);
  const std::vector<uint32_t>& words = program.lowered().spirv;
  const std::string text(reinterpret_cast<const char*>(words.data()), 4 * words.size());
  if (tuning.contains("turns of warpgroups"))
    EXPECT_NE(text.find("warpgroup_take_turn"), std::string::npos);
  const bool half = c.element == "f16";
  auto filled = [&](int count, int seed) {
    Buffer<Element> buffer{size_t(count)};
    for (int i = 0; i < count; ++i) {
      const float value = float((i * seed) % 29 - 14) / 8;
      if constexpr (wide)
        buffer[size_t(i)] = value * 1.0007f;  // all of f32's bits count
      else
        buffer[size_t(i)] = bitsOf(value, half);
    }
    return buffer;
  };
  auto valueOf = [&](Element bits) {
    if constexpr (wide)
      return double(bits);
    else
      return half ? double(std::bit_cast<_Float16>(bits)) : double(std::bit_cast<float>(uint32_t(bits) << 16));
  };
  Buffer<Element> q = filled(c.heads * c.rows * c.depth, 7), k = filled(c.key_heads * c.keys * c.depth, 11),
                  v = filled(c.key_heads * c.keys * c.columns, 5);
  if constexpr (wide)  // long sums of one sign, where cutting them off would show
    for (int i = 0; i < c.key_heads * c.keys * c.columns; ++i)
      v[size_t(i)] += 2;
  Buffer<float> result(size_t(c.heads * c.rows * c.columns)), log_sums(size_t(c.heads * c.rows));
  std::vector<void*> pointers{q.data(), k.data(), v.data()};
  Buffer<float> addend(size_t(c.heads * c.rows * c.columns));
  for (int i = 0; i < c.heads * c.rows * c.columns; ++i)
    addend[size_t(i)] = float(i % 7);
  if (c.around)
    pointers.push_back(addend.data());
  pointers.push_back(result.data());
  if (c.log_sums)
    pointers.push_back(log_sums.data());
  runSimulated(program, pointers);
  const double tolerance = wide ? 4e-6 : half ? 2e-3 : 1.5e-2;
  for (int h = 0; h < c.heads; ++h)
    for (int i = 0; i < c.rows; ++i) {
      const int of_keys = h / (c.heads / c.key_heads) * c.keys;
      std::vector<double> probabilities(size_t(c.causal ? std::min(i + 1, c.keys) : c.keys));
      double top = -INFINITY, sum = 0;
      for (size_t j = 0; j < probabilities.size(); ++j) {
        for (int d = 0; d < c.depth; ++d)
          probabilities[j] += valueOf(q[size_t(h * c.rows + i) * size_t(c.depth) + size_t(d)]) *
                              valueOf(k[(size_t(of_keys) + j) * size_t(c.depth) + size_t(d)]);
        top = std::max(top, probabilities[j] *= c.around ? -0.5 * c.scale : c.scale);
      }
      for (double& probability : probabilities)
        sum += probability = std::exp(probability - top);
      if (c.log_sums)
        ASSERT_NEAR(log_sums[size_t(h * c.rows + i)], (c.around ? -1 : 1) * (top + std::log(sum)), wide ? 2e-5 : 1e-4)
            << i;
      for (int e = 0; e < c.columns; ++e) {
        double expected = 0;
        for (size_t j = 0; j < probabilities.size(); ++j)
          expected += probabilities[j] / sum * valueOf(v[(size_t(of_keys) + j) * size_t(c.columns) + size_t(e)]);
        const size_t place = size_t(h * c.rows + i) * size_t(c.columns) + size_t(e);
        if (c.around)
          expected = std::abs(expected) + addend[place];
        ASSERT_NEAR(result[place], expected, tolerance) << i << ", " << e;
      }
    }
}

// f32 by three products of tf32 (fragment_product.cpp): all of its bits count, long sums of one sign are not cut off,
// and what is not finite meets nothing that it would not meet in f32.
TEST(SimulatedProducts, WideMatmul) {
  struct Case {
    bool a_turned, b_turned;
    int m, n, k;
  };
  for (Case c : {Case{false, false, 64, 64, 128}, Case{false, true, 136, 130, 200}, Case{true, false, 40, 24, 1000},
                 Case{true, true, 17, 33, 40}}) {
    auto [a_turned, b_turned, m, n, k] = c;
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
    MatmulText text(type(m, k), type(k, n), type(m, n));
    if (a_turned)
      text.layouts[0] = "(d0, d1) -> (d1 * " + std::to_string(m) + " + d0)";
    if (b_turned)
      text.layouts[1] = "(d0, d1) -> (d1 * " + std::to_string(k) + " + d0)";
    TargetDescription target = *TargetDescription::named("sm_89");
    target.engines = m > 128 ? 1 : 132;  // few: large tiles
    Program program(text.module(), target, /*aligned=*/true);
    ASSERT_TRUE(program.ok());
    EXPECT_TRUE(program.lowered().schedule.onMatrixEngine());
    Buffer<float> a(size_t(m) * size_t(k)), b(size_t(k) * size_t(n)), result(size_t(m) * size_t(n));
    auto at = [&](int i, int p) { return size_t(a_turned ? p * m + i : i * k + p); };
    auto other = [&](int p, int j) { return size_t(b_turned ? j * k + p : p * n + j); };
    for (int i = 0; i < m; ++i)
      for (int p = 0; p < k; ++p)
        a[at(i, p)] = float((i * 7 + p * 11) % 29 + 1) / 8 * 1.0007f;
    for (int p = 0; p < k; ++p)
      for (int j = 0; j < n; ++j)
        b[other(p, j)] = float((p * 5 + j * 3) % 23 + 1) / 16 * 1.0003f;
    const float infinite = std::numeric_limits<float>::infinity();
    a[at(2, 3)] = infinite;
    a[at(3, 1)] = -infinite;
    a[at(4, 0)] = std::numeric_limits<float>::quiet_NaN();
    a[at(5, 2)] = infinite;
    b[other(2, 6)] = 0;
    b[other(3, 7)] = -0.5f;  // its rest is zero
    b[other(1, 8)] = infinite;
    runSimulated(program, {a.data(), b.data(), result.data()});
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double expected = 0;
        for (int p = 0; p < k; ++p)
          expected += double(a[at(i, p)]) * double(b[other(p, j)]);
        const float got = result[size_t(i) * size_t(n) + size_t(j)];
        if (std::isfinite(expected))
          ASSERT_NEAR(got, expected, 1e-6 * expected) << i << ", " << j;
        else
          ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : double(got) == expected)
              << i << ", " << j << ": " << got;
      }
  }
}

// Without the exact division's branch (lowering/rounded_math.h), and as exact as f32 is.
TEST(SimulatedProducts, SigmoidAndTanh) {
  const std::string full = type("8x64");
  KernelText text;
  text.input({"%x", full, flat(64)});
  text.empty("%e", full);
  text.generic("%r", "pp", {{"%x", full, both}}, {"%e", full, both},
               "%one = arith.constant 1.0 : f32\n %n = arith.negf %0 : f32\n %p = math.exp %n : f32\n"
               "%d = arith.addf %one, %p : f32\n %s = arith.divf %one, %d : f32\n %t = math.tanh %0 : f32\n"
               "%u = arith.addf %s, %t : f32\n yield %u : f32");
  text.output({"%r", full, flat(64)});
  const Program program(text.module(), *TargetDescription::named("sm_90"), /*aligned=*/true);
  ASSERT_TRUE(program.ok());
  const std::string ptx = ptxOf(program);
  ASSERT_FALSE(ptx.empty());
  for (const char* slow : {"div.rn", "rcp.rn"})
    EXPECT_EQ(ptx.find(slow), std::string::npos) << slow;
  EXPECT_NE(ptx.find("rcp.approx.ftz"), std::string::npos);
  Buffer<float> x(512), result(512);
  for (int i = 0; i < 512; ++i)
    x[size_t(i)] = float(i - 256) / 2.5F;
  runSimulated(program, {x.data(), result.data()});
  for (int i = 0; i < 512; ++i) {
    const double exact = 1 / (1 + std::exp(-double(x[size_t(i)]))) + std::tanh(double(x[size_t(i)]));
    ASSERT_NEAR(result[size_t(i)], exact, 2.5e-7) << x[size_t(i)];
  }
}

// Sums across rows of which few lie side by side: lanes of a sub-group share a row, and begin several rounds' loads.
TEST(SimulatedProducts, SharedRows) {
  constexpr int blocks = 5, length = 1100, side = 16;
  const std::string full = type("5x1100x16"), sums = type("5x16");
  KernelText text;
  text.input({"%x", full, "(d0, d1, d2) -> (d0 * 17600 + d1 * 16 + d2)"});
  text.fill("%i", sums, "0.0");
  text.generic("%r", "prp", {{"%x", full, "(d0, d1, d2) -> (d0, d1, d2)"}}, {"%i", sums, "(d0, d1, d2) -> (d0, d2)"},
               "%s = arith.addf %0, %o : f32\n yield %s : f32");
  text.output({"%r", sums, flat(side)});
  const Program program(
      text.module(), *TargetDescription::named("sm_90"), /*aligned=*/true,
      {{"rows of a work-item", 4}, {"lanes that share a reduction", 8}, {"rounds of a loop together", 4}});
  ASSERT_TRUE(program.ok());
  const auto* rows = program.lowered().schedule.find<choice::RowVectors>();
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->sharing_lanes, 8);
  Buffer<float> x(size_t(blocks) * length * side), result(size_t(blocks) * side);
  for (int i = 0; i < blocks * length * side; ++i)
    x[size_t(i)] = float(i * 7 % 61 - 30);
  runSimulated(program, {x.data(), result.data()});
  for (int block = 0; block < blocks; ++block)
    for (int row = 0; row < side; ++row) {
      float sum = 0;
      for (int at = 0; at < length; ++at)
        sum += x[(size_t(block) * size_t(length) + size_t(at)) * size_t(side) + size_t(row)];
      ASSERT_EQ(result[size_t(block) * size_t(side) + size_t(row)], sum) << block << ", " << row;
    }
}

// What only one sum reads passes by the first cache; what several rows share does not, nor what is read again.
TEST(SimulatedProducts, SumsPastTheFirstCache) {
  const std::string full = type("512x4096"), sums = type("512"), row = type("4096");
  for (bool again : {false, true}) {
    KernelText text;
    text.input({"%x", full, flat(4096)});
    text.input({"%w", row, "(d0) -> (d0)"});
    text.fill("%i", sums, "0.0");
    text.generic("%r", "pr", {{"%x", full, both}, {"%w", row, "(d0, d1) -> (d1)"}}, {"%i", sums, "(d0, d1) -> (d0)"},
                 "%p = arith.mulf %0, %1 : f32\n %s = arith.addf %p, %o : f32\n yield %s : f32");
    if (again) {
      text.empty("%e", full);
      text.generic("%d", "pp", {{"%x", full, both}, {"%r", sums, "(d0, d1) -> (d0)"}}, {"%e", full, both},
                   "%s = arith.subf %0, %1 : f32\n yield %s : f32");
      text.output({"%d", full, flat(4096)});
    } else {
      text.output({"%r", sums, "(d0) -> (d0)"});
    }
    const Program program(text.module(), *TargetDescription::named("sm_90"), /*aligned=*/true);
    ASSERT_TRUE(program.ok());
    const std::string ptx = ptxOf(program);
    EXPECT_EQ(ptx.find("L1::no_allocate.v4") != std::string::npos, !again) << ptx;
    EXPECT_NE(ptx.find("ld.global.nc.v4"), std::string::npos) << ptx;
  }
}

// Quotients that are rounded to bf16 at once have no exact division, whatever the divisor's size.
TEST(SimulatedProducts, RoundedQuotients) {
  const std::vector<float> numbers{0, 1, -3, 0x1p-140F, 0x1.8p-126F, 0x1.4p-70F, -0x1.cp70F, 0x1.fp126F, INFINITY, NAN};
  const auto count = int(numbers.size());
  const std::string size = std::to_string(count), full = type(size + "x" + size),
                    rounded = type(size + "x" + size, "bf16");
  KernelText text;
  text.input({"%x", full, flat(count)});
  text.input({"%d", full, flat(count)});
  text.empty("%e", rounded);
  text.generic("%r", "pp", {{"%x", full, both}, {"%d", full, both}}, {"%e", rounded, both},
               "%q = arith.divf %0, %1 : f32\n %r = arith.truncf %q : f32 to bf16\n yield %r : bf16");
  text.output({"%r", rounded, flat(count)});
  const Program program(text.module(), *TargetDescription::named("sm_90"), /*aligned=*/true);
  ASSERT_TRUE(program.ok());
  const std::string ptx = ptxOf(program);
  ASSERT_FALSE(ptx.empty());
  EXPECT_EQ(ptx.find("div.rn"), std::string::npos);
  const auto square = numbers.size() * numbers.size();
  Buffer<float> x(square), d(square);
  Buffer<uint16_t> result(square);
  for (size_t i = 0; i < square; ++i) {
    x[i] = numbers[i / numbers.size()];
    d[i] = numbers[i % numbers.size()];
  }
  runSimulated(program, {x.data(), d.data(), result.data()});
  for (size_t i = 0; i < square; ++i) {
    const float exact = x[i] / d[i], found = std::bit_cast<float>(uint32_t(result[i]) << 16);
    SCOPED_TRACE(std::to_string(x[i]) + " / " + std::to_string(d[i]));
    if (std::isnan(exact))
      EXPECT_TRUE(std::isnan(found));
    else if (std::isinf(exact))
      EXPECT_EQ(found, exact);
    else
      EXPECT_NEAR(found, exact, std::max(double(std::abs(exact)) / 256, 0x1p-120));
  }
}

template <typename Element> void checkTransposed(const Tuning& tuning) {
  constexpr int rows = 100, columns = 130;
  constexpr bool wide = std::is_same_v<Element, float>;
  const std::string element = wide ? "f32" : "bf16", turned = type("130x100", element), full = type("100x130", element);
  KernelText text;
  text.input({"%a", turned, flat(rows)});
  text.input({"%y", full, flat(columns)});
  text.line("%at = zefuse.view %a affine_map<(d0, d1) -> (d1, d0)> : " + turned + " -> " + full);
  text.empty("%e", full);
  text.generic("%r", "pp", {{"%at", full, both}, {"%y", full, both}}, {"%e", full, both},
               wide ? "%r = arith.addf %0, %1 : f32\n yield %r : f32"
                    : "%v = arith.extf %0 : bf16 to f32\n %w = arith.extf %1 : bf16 to f32\n"
                      "%s = arith.addf %v, %w : f32\n %r = arith.truncf %s : f32 to bf16\n yield %r : bf16");
  text.output({"%r", full, flat(columns)});
  Program program(text.module(), *TargetDescription::named("sm_90"), /*aligned=*/true, tuning);
  ASSERT_TRUE(program.ok());
  const auto* tiles = program.lowered().schedule.find<choice::LocalTiles>();
  ASSERT_TRUE(tiles);
  EXPECT_EQ(tiles->side, 64);
  auto made = [](float value) {
    if constexpr (wide)
      return value;
    else
      return bitsOf(value, /*half=*/false);
  };
  Buffer<Element> a(rows * columns), y(rows * columns), result(rows * columns);
  for (int i = 0; i < rows * columns; ++i) {
    a[size_t(i)] = made(float(i % 101));
    y[size_t(i)] = made(float(i % 7 - 3));
  }
  runSimulated(program, {a.data(), y.data(), result.data()});
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      ASSERT_EQ(result[size_t(i * columns + j)], made(float((j * rows + i) % 101 + (i * columns + j) % 7 - 3)))
          << i << ", " << j;
}

// A transposed load through local memory, two elements of a lane; neither side is whole tiles.
TEST(SimulatedProducts, TransposedTile) {
  checkTransposed<uint16_t>({});
  checkTransposed<float>({});
}

// `engines`: few have larger groups.
void checkAttention(const AttentionCase& c, const char* target, int64_t engines = 132, const Tuning& tuning = {}) {
  if (c.element == "f32")
    checkAttentionOf<float>(c, target, engines, tuning);
  else
    checkAttentionOf<uint16_t>(c, target, engines, tuning);
}

// f32 by three products of tf32 (fragment_attention.cpp).
TEST(SimulatedProducts, WideAttention) {
  AttentionCase cases[] = {
      // Two steps, the second in part, shared keys; a wide head; elements that no access of 16 bytes takes; many keys;
      // computed operands.
      {.heads = 2, .key_heads = 1, .rows = 20, .keys = 70, .depth = 64, .columns = 64, .log_sums = true},
      {.heads = 1, .key_heads = 1, .rows = 40, .keys = 40, .depth = 128, .columns = 128, .causal = true},
      {.heads = 1, .key_heads = 1, .rows = 20, .keys = 33, .depth = 37, .columns = 13},
      {.heads = 1, .key_heads = 1, .rows = 16, .keys = 1000, .depth = 16, .columns = 16},
      {.heads = 1, .key_heads = 1, .rows = 20, .keys = 80, .depth = 24, .columns = 40, .causal = true, .around = true}};
  for (AttentionCase& c : cases) {
    c.scale = 0.125;
    checkAttention(c, "sm_89", c.columns == 13 ? 1 : 132);
  }
}

TEST(SimulatedProducts, Attention) {
  for (AttentionCase c :
       {AttentionCase{.heads = 2, .key_heads = 1, .rows = 40, .keys = 150, .depth = 32, .columns = 32},
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 100, .keys = 100, .depth = 64, .columns = 48, .causal = true},
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 3, .keys = 7, .depth = 5, .columns = 3}}) {
    c.element = "f16";
    checkAttention(c, "sm_89");
  }
}

// By products of four sub-groups (simulated_warpgroups.cpp).
TEST(SimulatedProducts, AttentionTogether) {
  for (AttentionCase c :
       {// Several steps of whole tiles; then of a part of one, for keys and for rows; one step alone.
        AttentionCase{.heads = 2, .key_heads = 1, .rows = 128, .keys = 384, .depth = 64, .columns = 64},
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 150, .keys = 300, .depth = 128, .columns = 128},
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 64, .keys = 70, .depth = 64, .columns = 64},
        // The last tile's second warpgroup has no rows, and they are a multiple of a warpgroup's.
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 192, .keys = 128, .depth = 64, .columns = 64},
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 192, .keys = 256, .depth = 128, .columns = 128},
        // Few rows of the first group see more than a step; more rows than keys.
        AttentionCase{
            .heads = 1, .key_heads = 1, .rows = 300, .keys = 300, .depth = 64, .columns = 128, .causal = true},
        AttentionCase{
            .heads = 1, .key_heads = 1, .rows = 200, .keys = 130, .depth = 128, .columns = 64, .causal = true},
        // Parts of panels, and elements that no access of 16 bytes takes.
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 70, .keys = 140, .depth = 80, .columns = 96},
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 65, .keys = 129, .depth = 37, .columns = 13}}) {
    c.element = c.depth == 64 ? "f16" : "bf16";
    c.log_sums = c.causal;
    checkAttention(c, "sm_90", /*engines=*/c.rows == 64 || c.depth == 80 ? 132 : 1);
  }
  // Operands that are computed where they are loaded.
  checkAttention({.heads = 1,
                  .key_heads = 1,
                  .rows = 70,
                  .keys = 150,
                  .depth = 64,
                  .columns = 64,
                  .causal = true,
                  .element = "f16",
                  .log_sums = true,
                  .around = true},
                 "sm_90");
  checkAttention({.heads = 1, .key_heads = 1, .rows = 40, .keys = 150, .depth = 32, .columns = 32, .element = "f16"},
                 "sm_90");  // too few rows
}

// The same where two groups of four take turns, one of them with few keys.
TEST(SimulatedProducts, AttentionInTurns) {
  for (AttentionCase c :
       {AttentionCase{.heads = 1, .key_heads = 1, .rows = 128, .keys = 384, .depth = 64, .columns = 64},
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 128, .keys = 500, .depth = 128, .columns = 128},
        AttentionCase{.heads = 1, .key_heads = 1, .rows = 70, .keys = 90, .depth = 64, .columns = 64},
        AttentionCase{
            .heads = 1, .key_heads = 1, .rows = 300, .keys = 300, .depth = 64, .columns = 64, .causal = true}}) {
    c.element = c.causal ? "f16" : "bf16";
    checkAttention(
        c, "sm_90", /*engines=*/1,
        {{"keys of a step", c.depth == 128 ? 96 : 64}, {"copying sub-groups", 0}, {"turns of warpgroups", 1}});
  }
}

// Three groups of four that all copy: their work-items do not divide a step's keys, nor their rows the queries.
TEST(SimulatedProducts, AttentionOfThreeWarpgroups) {
  for (auto [keys_of_step, keys, depth] : {std::tuple(64, 320, 64), std::tuple(128, 256, 64), std::tuple(64, 200, 128)})
    checkAttention(
        {.heads = 1, .key_heads = 1, .rows = 256, .keys = keys, .depth = depth, .columns = depth, .element = "bf16"},
        "sm_90", /*engines=*/1, {{"warpgroups", 3}, {"keys of a step", keys_of_step}, {"copying sub-groups", 0}});
}

// The same where sub-groups beside them copy keys and values, in two stages and more, for three groups of four, and
// where a group takes several tiles (`engines` that there are then).
TEST(SimulatedProducts, AttentionWithCopiers) {
  struct Case {
    AttentionCase attention;
    int64_t warpgroups, keys, turns, engines;
  };
  const AttentionCase whole{.heads = 1, .key_heads = 1, .rows = 128, .keys = 512, .depth = 128, .columns = 128};
  const AttentionCase part{.heads = 2, .key_heads = 1, .rows = 70, .keys = 200, .depth = 64, .columns = 80};
  AttentionCase causal{.heads = 1, .key_heads = 1, .rows = 260, .keys = 200, .depth = 64, .columns = 64};
  causal.causal = causal.log_sums = true;
  for (auto [c, warpgroups, keys, turns, engines] :
       {Case{whole, 2, 128, 1, 0}, Case{part, 2, 64, 0, 0}, Case{part, 2, 128, 1, 2}, Case{causal, 3, 64, 1, 0},
        Case{causal, 2, 64, 1, 1}, Case{part, 1, 64, 0, 1}}) {
    c.element = c.causal ? "f16" : "bf16";
    Tuning tuning{{"warpgroups", warpgroups}, {"keys of a step", keys}, {"copying sub-groups", 4}};
    if (turns)
      tuning["turns of warpgroups"] = 1;
    if (engines)
      tuning["one group on each engine"] = 1;
    checkAttention(c, "sm_90", std::max<int64_t>(1, engines), tuning);
  }
}

// ptxas would wait for the values' product before the powers that run beside it (warpgroup.cpp, "computed"): a branch,
// which ends a block, is between them.
TEST(SimulatedProducts, PowersBesideTheValues) {
  AttentionCase c{.heads = 1, .key_heads = 1, .rows = 128, .keys = 512, .depth = 64, .columns = 64, .element = "bf16"};
  const Program program(moduleOf(c), *TargetDescription::named("sm_90"), /*aligned=*/true);
  ASSERT_TRUE(program.ok());
  const std::string ptx = ptxOf(program);
  ASSERT_FALSE(ptx.empty());
  const size_t scores = ptx.find("wgmma.wait_group.sync.aligned 1");
  const size_t values = ptx.find("wgmma.wait_group.sync.aligned 0", scores);
  ASSERT_NE(values, std::string::npos);
  const std::string between = ptx.substr(scores, values - scores);
  const size_t branch = between.find("@never");
  ASSERT_NE(branch, std::string::npos);
  EXPECT_NE(between.find("ex2.approx"), std::string::npos);
  EXPECT_EQ(between.find("ex2.approx", branch), std::string::npos);
}

// Code for one architecture alone is made where a kernel needs it.
TEST(SimulatedProducts, ArchitectureOfItsOwn) {
  AttentionCase c{.heads = 1, .key_heads = 1, .rows = 128, .keys = 128, .depth = 64, .columns = 64, .element = "f16"};
  for (auto [target, architecture, expected] :
       {std::tuple("sm_89", 90u, "sm_90"), std::tuple("sm_90", 90u, "sm_90a"), std::tuple("sm_90", 100u, "")}) {
    const Program program(moduleOf(c), *TargetDescription::named(target), /*aligned=*/true);
    cuda::CompileOptions options;
    options.architecture = architecture;
    const cuda::CompileResult result = cuda::compileSpirv(program.lowered().spirv, options);
    EXPECT_EQ(cuda::ptxTarget(result.program.image), expected) << target << ": " << result.log;
    EXPECT_EQ(result.log.find("9.0 alone") != std::string::npos, architecture == 100) << result.log;
  }
}

}  // namespace
}  // namespace zefuse::test
