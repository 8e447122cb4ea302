// Products of groups of rows, of numbers that are not those a product is made for, against the formula.
#include "runtime/primitives/matmul/grouped_matmul.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/unit/primitives/reference.h"

namespace zefuse::primitives {
namespace {

using testing::dense;
using testing::Tensor;

TEST(GroupedMatmul, NumbersOfRows) {
  int64_t numbers = 0;
  for (int64_t rows = 1; rows <= 4096; ++rows) {
    const int64_t above = groupRowsAbove(rows), below = groupRowsBelow(rows);
    ASSERT_LE(below, rows);
    ASSERT_GE(below, 1);
    ASSERT_GE(above, rows);
    ASSERT_EQ(groupRowsAbove(above), above) << rows;
    ASSERT_EQ(groupRowsBelow(below), below) << rows;
    ASSERT_LE(above - rows, std::max<int64_t>(3, rows / 8)) << rows;
    numbers += above == rows;
  }
  EXPECT_LT(numbers, 70);
  EXPECT_EQ(groupRowsAbove(0), 0);
  EXPECT_EQ(groupRowsBelow(0), 0);
}

// Each group's matrix is the first one's, of another beginning.
void expectGroups(plan::DType dtype, const std::vector<int64_t>& groups, int64_t depth, int64_t width) {
  int64_t rows = 0;
  for (int64_t group : groups)
    rows += group;
  const auto count = int64_t(groups.size());
  Tensor a = testing::randomTensor(dense(dtype, {rows, depth}), 1);
  Tensor b = testing::randomTensor(dense(dtype, {count, width, depth}), 2);
  Tensor out = testing::randomTensor({dtype, {rows, width}, {width + 8, 1}}, 3);
  auto made = GroupedMatmul::get({a.desc, {dtype, {depth, width}, {1, depth}}, out.desc});
  ASSERT_TRUE(made.ok()) << made.status().message();
  testing::AlignedBuffer scratch((*made)->scratchBytes());
  const size_t element = dtype == plan::DType::f32 ? 4 : 2;
  int64_t first = 0;
  for (int64_t group = 0; group < count; first += groups[size_t(group++)]) {
    Primitive::Arguments arguments{};
    arguments.a = a.data();
    arguments.b = static_cast<const std::byte*>(b.data()) + size_t(group * width * depth) * element;
    arguments.out = out.data();
    arguments.scratch = scratch.data;
    const Status status = (*made)->runGroup(arguments, first, groups[size_t(group)]);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  const double tolerance = dtype == plan::DType::f32 ? 1e-5 : 1e-2;
  int64_t row = 0;
  for (int64_t group = 0; group < count; ++group)
    for (const int64_t end = row + groups[size_t(group)]; row < end; ++row)
      for (int64_t column = 0; column < width; ++column) {
        double wanted = 0;
        for (int64_t k = 0; k < depth; ++k)
          wanted += a.at({row, k}) * b.at({group, column, k});
        ASSERT_NEAR(out.at({row, column}), wanted, tolerance * (1 + std::abs(wanted)))
            << "group " << group << " of " << groups[size_t(group)] << " rows, row " << row;
      }
}

TEST(GroupedMatmul, IsTheFormula) {
  for (plan::DType dtype : {plan::DType::f32, plan::DType::bf16})
    for (const std::vector<int64_t>& groups : std::vector<std::vector<int64_t>>{{1},
                                                                                {3},
                                                                                {0, 5, 0},
                                                                                {33, 1, 2, 3},
                                                                                {3, 0, 77, 70},
                                                                                {2, 131},
                                                                                {1, 1, 1, 1, 1, 1, 1},
                                                                                {15},
                                                                                {63, 9},
                                                                                {0, 0}})
      expectGroups(dtype, groups, 24, 20);
}

}  // namespace
}  // namespace zefuse::primitives
