#include "runtime/primitives/core/strided_copy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <immintrin.h>
#include <numeric>

#include "common/plan/plan_generated.h"
#include "runtime/primitives/core/team.h"
#include "runtime/primitives/core/tensor_desc.h"
#include "runtime/primitives/simd/bf16.h"
#include "runtime/primitives/simd/f16.h"

namespace zefuse::primitives {

namespace {

float load(float value) { return value; }
float load(uint16_t value) { return floatOfBf16(value); }

struct Half {
  uint16_t bits;
};
float load(Half value) { return floatOfF16(value.bits); }

float load(uint8_t value) { return value; }
float load(int8_t value) { return value; }

template <typename T> T store(float value);
// To the nearest, even where two are, within the type's range; NaN to its least.
template <> uint8_t store<uint8_t>(float value) {
  return uint8_t(std::nearbyint(value > 0 ? std::min(value, 255.0f) : 0));
}
template <> int8_t store<int8_t>(float value) {
  return int8_t(std::nearbyint(value > -128 ? std::min(value, 127.0f) : -128));
}
template <> float store<float>(float value) { return value; }
template <> uint16_t store<uint16_t>(float value) { return bitsOfBf16(value); }
template <> Half store<Half>(float value) { return {f16OfFloat(value)}; }

// Many at once.
#define ZEFUSE_VECTORS [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
ZEFUSE_VECTORS void convertRow(const float* source, uint16_t* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    target[i] = bitsOfBf16(source[i]);
}
#undef ZEFUSE_VECTORS

// The processor's own conversions of f16: as many numbers as whole vectors hold.
[[gnu::target("arch=x86-64-v3")]] int64_t convertVectors(const Half* source, float* target, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i))));
  return i;
}
[[gnu::target("arch=x86-64-v3")]] int64_t convertVectors(const float* source, Half* target, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

template <typename From, typename To>
  requires(std::is_same_v<From, Half> && std::is_same_v<To, float>) ||
          (std::is_same_v<From, float> && std::is_same_v<To, Half>)
void convertRow(const From* source, To* target, int64_t count) {
  static const bool has_vectors = __builtin_cpu_supports("x86-64-v3");
  for (int64_t i = has_vectors ? convertVectors(source, target, count) : 0; i < count; ++i)
    target[i] = store<To>(load(source[i]));
}

// One row: the innermost dimension. Same types keep their bits.
template <typename From, typename To>
void copyRow(const From* source, int64_t from, To* target, int64_t to, int64_t count) {
  if constexpr (std::is_same_v<From, To>) {
    if (from == 1 && to == 1) {
      std::memcpy(target, source, size_t(count) * sizeof(From));
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      target[i * to] = source[i * from];
  } else {
    if constexpr (requires { convertRow(source, target, count); })
      if (from == 1 && to == 1)
        return convertRow(source, target, count);
    for (int64_t i = 0; i < count; ++i)
      target[i * to] = store<To>(load(source[i * from]));
  }
}

struct Rows {
  std::vector<int64_t> sizes, from, to;  // outer dimensions
};

// Offsets of row `index` in both tensors.
std::pair<int64_t, int64_t> rowOffsets(const Rows& rows, int64_t index) {
  int64_t from = 0, to = 0;
  for (size_t d = rows.sizes.size(); d-- > 0;) {
    int64_t i = index % rows.sizes[d];
    index /= rows.sizes[d];
    from += i * rows.from[d];
    to += i * rows.to[d];
  }
  return {from, to};
}

// Dimensions as they follow each other in the target's memory.
std::pair<TensorDesc, TensorDesc> inOrder(const TensorDesc& from, const TensorDesc& to) {
  std::vector<size_t> order(to.sizes.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(),
            [&](size_t x, size_t y) { return to.strides[x] != to.strides[y] ? to.strides[x] > to.strides[y] : x < y; });
  std::pair<TensorDesc, TensorDesc> result{from, to};
  for (auto* tensor : {&result.first, &result.second}) {
    const TensorDesc& given = tensor == &result.first ? from : to;
    for (size_t d = 0; d < order.size(); ++d) {
      tensor->sizes[d] = given.sizes[order[d]];
      tensor->strides[d] = given.strides[order[d]];
    }
  }
  return result;
}

template <typename From, typename To>
void copyAll(const TensorDesc& from, const void* source, const TensorDesc& to, void* target) {
  size_t outer = from.sizes.size() - 1;
  Rows rows{{from.sizes.begin(), from.sizes.begin() + outer},
            {from.strides.begin(), from.strides.begin() + outer},
            {to.strides.begin(), to.strides.begin() + outer}};
  int64_t width = from.sizes[outer];
  int64_t count = elements(rows.sizes);
  if (width == 0 || count == 0)
    return;
  int64_t grain = std::max<int64_t>(1, 16384 / width);
  overTeam(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      auto [source_offset, target_offset] = rowOffsets(rows, row);
      copyRow(static_cast<const From*>(source) + source_offset, from.strides[outer],
              static_cast<To*>(target) + target_offset, to.strides[outer], width);
    }
  });
}

}  // namespace

// Calls `use` with a null pointer to the type's numbers.
template <typename Use> static void ofType(plan::DType dtype, Use use) {
  switch (dtype) {
  case plan::DType::f32: return use(static_cast<float*>(nullptr));
  case plan::DType::f16: return use(static_cast<Half*>(nullptr));
  case plan::DType::u8: return use(static_cast<uint8_t*>(nullptr));
  case plan::DType::i8: return use(static_cast<int8_t*>(nullptr));
  default: return use(static_cast<uint16_t*>(nullptr));
  }
}

void stridedCopy(const TensorDesc& from, const void* source, const TensorDesc& to, void* target) {
  const auto [ordered_from, ordered_to] = inOrder(from, to);
  ofType(from.dtype, [&]<typename From>(From*) {
    ofType(to.dtype, [&]<typename To>(To*) { copyAll<From, To>(ordered_from, source, ordered_to, target); });
  });
}

void stridedZero(const TensorDesc& desc, void* target) {
  const float zero = 0;  // also bf16's zero: all bits clear
  TensorDesc source = desc;
  std::fill(source.strides.begin(), source.strides.end(), 0);
  stridedCopy(source, &zero, desc, target);
}

}  // namespace zefuse::primitives
