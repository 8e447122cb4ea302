#include "runtime/executor/strided_copy.h"

#include <gtest/gtest.h>

#include <random>

namespace zefuse::executor {
namespace {

using Numbers = std::vector<int64_t>;

// The obvious way: one element at a time, last index fastest.
void reference(std::vector<uint8_t>& to, const Numbers& to_strides, const std::vector<uint8_t>& from,
               const Numbers& from_strides, const Numbers& sizes, size_t element) {
  Numbers index(sizes.size(), 0);
  for (int64_t size : sizes)
    if (size == 0)
      return;
  while (true) {
    int64_t a = 0, b = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      a += index[d] * to_strides[d];
      b += index[d] * from_strides[d];
    }
    std::copy_n(from.begin() + b * int64_t(element), element, to.begin() + a * int64_t(element));
    size_t d = sizes.size();
    for (; d > 0; --d) {
      if (++index[d - 1] < sizes[d - 1])
        break;
      index[d - 1] = 0;
    }
    if (d == 0)
      return;
  }
}

Numbers permutedStrides(const Numbers& sizes, std::mt19937& random) {
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  Numbers strides(sizes.size());
  int64_t step = 1 + int64_t(random() % 2);
  for (size_t d : order) {
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1) + int64_t(random() % 2);
  }
  return strides;
}

TEST(StridedCopy, EqualsTheReferenceForAnyStridesAndElementSizes) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const size_t rank = random() % 6;
    Numbers sizes;
    for (size_t d = 0; d < rank; ++d)
      sizes.push_back(random() % 8 == 0 ? int64_t(random() % 2) : 1 + int64_t(random() % 5));
    const Numbers to = permutedStrides(sizes, random);
    Numbers from = permutedStrides(sizes, random);
    for (int64_t& stride : from)
      if (random() % 5 == 0)
        stride = 0;  // an expanded dimension
    const size_t element = size_t(1) << random() % 4;
    auto reach = [&](const Numbers& strides) {
      int64_t last = 0;
      for (size_t d = 0; d < rank; ++d)
        last += (std::max<int64_t>(sizes[d], 1) - 1) * strides[d];
      return size_t(last + 1) * element;
    };
    std::vector<uint8_t> source(reach(from)), got(reach(to), 0xEE), expected = got;
    for (uint8_t& byte : source)
      byte = uint8_t(random());
    stridedCopy(got.data(), to, source.data(), from, sizes, element);
    reference(expected, to, source, from, sizes, element);
    ASSERT_EQ(got, expected) << "round " << round;
  }
}

}  // namespace
}  // namespace zefuse::executor
