// Sorts: lowered for each target, run on the host, compared with std::stable_sort.
#include <numeric>

#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

std::string sortKernel(int64_t rows, int64_t n, int64_t k, const std::string& element, bool descending) {
  KernelText text;
  std::string shape = std::to_string(rows) + "x" + std::to_string(n),
              kept = std::to_string(rows) + "x" + std::to_string(k);
  text.input({"%x", type(shape, element), flat(n)});
  text.line("%v, %p = zefuse.sort %x dim 1 " + std::string(descending ? "descending" : "") + " : (" +
            type(shape, element) + ") -> (" + type(kept, element) + ", " + type(kept, "i64") + ")");
  text.output({"%v", type(kept, element), flat(k)});
  text.output({"%p", type(kept, "i64"), flat(k)});
  return text.module();
}

template <typename T> bool before(T a, T b, bool descending) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b))
      return std::isnan(a) != std::isnan(b) && std::isnan(b) != descending;
  }
  return descending ? b < a : a < b;
}

template <typename T>
void expectSorted(const std::vector<T>& x, const std::vector<T>& values, const std::vector<int64_t>& positions,
                  int64_t rows, int64_t n, int64_t k, bool descending) {
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return before(x[row * n + a], x[row * n + b], descending); });
    for (int64_t i = 0; i < k; ++i) {
      ASSERT_EQ(positions[row * k + i], order[i]) << "row " << row << ", place " << i;
      T expected = x[row * n + order[i]], actual = values[row * k + i];
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(actual));
          continue;
        }
        ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << "of zero";
      }
      ASSERT_EQ(actual, expected) << "row " << row << ", place " << i;
    }
  }
}

// Many equal elements, and for floats zeros of both signs, infinities and NaN.
template <typename T> std::vector<T> elements(int64_t count) {
  std::mt19937 random(7);
  std::vector<T> x(count);
  for (T& value : x) {
    unsigned r = random();
    value = T(int(r % 41) - 20);
    if constexpr (std::is_floating_point_v<T>) {
      constexpr T special[] = {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::quiet_NaN(),
                               std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), T(-0.0)};
      if (r >> 8 & 1)
        value = special[(r >> 10) % 5];
    } else if (r >> 8 & 1) {
      value = r >> 9 & 1 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
    }
  }
  return x;
}

template <typename T> void checkSort(const TargetDescription& target, const std::string& element) {
  constexpr int64_t rows = 3;
  // In one vector, with a cut one, several levels, the best of many, one of one.
  for (auto [n, k] : {std::pair{5, 5}, std::pair{16, 3}, std::pair{33, 33}, std::pair{100, 60}, std::pair{1000, 1000},
                      std::pair{700, 20}, std::pair{1, 1}, std::pair{4, 0}, std::pair{9000, 9000}})
    for (bool descending : {false, true}) {
      SCOPED_TRACE(element + " " + std::to_string(n) + " " + std::to_string(k) + (descending ? " descending" : ""));
      Program program(sortKernel(rows, n, k, element, descending), target);
      ASSERT_TRUE(program.ok());
      auto x = elements<T>(rows * n);
      std::vector<T> values(rows * k + 1, T(77));
      std::vector<int64_t> positions(rows * k + 1, 77);
      program.run({x.data(), values.data(), positions.data()});
      expectSorted(x, values, positions, rows, n, k, descending);
      EXPECT_EQ(positions.back(), 77) << "written behind the results";
    }
}

TEST_P(Lowering, SortOfFloats) { checkSort<float>(GetParam(), "f32"); }
TEST_P(Lowering, SortOfLongIntegers) { checkSort<int64_t>(GetParam(), "i64"); }
TEST_P(Lowering, SortOfBytes) { checkSort<int8_t>(GetParam(), "i8"); }
TEST_P(Lowering, SortOfDoubles) {
  if (GetParam().native.f64)
    checkSort<double>(GetParam(), "f64");
}

TEST_P(Lowering, SymbolicSort) {
  std::string full = "tensor<?x?xf32, affine_map<()[s0, s1] -> (s0, s1)>>";
  std::string places = "tensor<?x?xi64, affine_map<()[s0, s1] -> (s0, s1)>>";
  const char* layout = "(d0, d1)[s0, s1] -> (d0 * s1 + d1)";
  KernelText text;
  text.input({"%x", full, layout});
  text.line("%v, %p = zefuse.sort %x dim 1 : (" + full + ") -> (" + full + ", " + places + ")");
  text.output({"%v", full, layout});
  text.output({"%p", places, layout});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  EXPECT_TRUE(program.lowered().scratch_bytes) << "a row of unknown length";
  for (auto [rows, n] : {std::pair{3, 40}, std::pair{1, 1}, std::pair{5, 16}, std::pair{2, 15}, std::pair{0, 4},
                         std::pair{4, 0}, std::pair{4, 200}, std::pair{7, 3000}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(n));
    auto x = elements<float>(rows * n);
    std::vector<float> values(rows * n);
    std::vector<int64_t> positions(rows * n);
    program.run({x.data(), values.data(), positions.data()}, {rows, n});
    expectSorted(x, values, positions, rows, n, n, false);
  }
}

// What is computed from the input joins the sort; along an outer dimension a row's elements are far apart.
TEST_P(Lowering, SortAlongColumnsOfAComputedTensor) {
  KernelText text;
  text.input({"%x", type("70x9"), flat(9)});
  text.empty("%e", type("70x9"));
  text.generic("%n", "pp", {{"%x", type("70x9"), both}}, {"%e", type("70x9"), both},
               "%m = arith.mulf %0, %0 : f32\n yield %m : f32");
  text.line("%v, %p = zefuse.sort %n dim 0 : (tensor<70x9xf32>) -> (tensor<70x9xf32>, tensor<70x9xi64>)");
  text.output({"%p", type("70x9", "i64"), flat(9)});
  Program program(text.module(), GetParam());
  ASSERT_TRUE(program.ok());
  Floats x = randomFloats(630);
  std::vector<int64_t> positions(630);
  program.run({x.data(), positions.data()});
  for (int column = 0; column < 9; ++column)
    for (int i = 1; i < 70; ++i) {
      float last = x[positions[(i - 1) * 9 + column] * 9 + column], value = x[positions[i * 9 + column] * 9 + column];
      ASSERT_LE(last * last, value * value) << i;
    }
}

TEST(Sort, IsItsKernelsOnlyOutput) {
  KernelText text;
  text.input({"%x", type("4x9"), flat(9)});
  text.line("%v, %p = zefuse.sort %x dim 1 : (tensor<4x9xf32>) -> (tensor<4x9xf32>, tensor<4x9xi64>)");
  text.empty("%e", type("4x9"));
  text.generic("%r", "pp", {{"%v", type("4x9"), both}}, {"%e", type("4x9"), both},
               "%m = arith.mulf %0, %0 : f32\n yield %m : f32");
  text.output({"%r", type("4x9"), flat(9)});
  EXPECT_NE(refusalOf(text.module()).find("a row of them is complete"), std::string::npos) << refusalOf(text.module());
}

}  // namespace
}  // namespace zefuse::test
