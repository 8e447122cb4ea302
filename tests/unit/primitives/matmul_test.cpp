#include "runtime/primitives/matmul/matmul.h"

#include <gtest/gtest.h>

#include <dnnl.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "runtime/primitives/simd/f16.h"
#include "tests/unit/primitives/reference.h"

extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}

namespace zefuse::primitives::testing {
namespace {

using plan::DType;
using plan::PostOpKind;

MatmulDesc linear(int64_t m, int64_t k, int64_t n, DType dtype = DType::f32) {
  MatmulDesc desc;
  desc.a = dense(dtype, {m, k});
  desc.b = permuted(dtype, {k, n}, {1, 0});  // a transposed view of an [n, k] weight
  desc.out = dense(dtype, {m, n});
  return desc;
}

// Whether oneDNN 3.2 has a blocked matmul for this CPU (and ONEDNN_MAX_CPU_ISA).
bool blockedOnThisHost() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core; }

void expectCorrect(const MatmulDesc& desc, uint32_t seed = 1) {
  Case test = makeCase(desc, seed);
  std::string implementation;
  EXPECT_EQ(runAndCompare(test, &implementation), "");
  if (::testing::Test::HasFailure())
    std::printf("  seed %u: %s\n", seed, implementation.c_str());
}

TEST(Matmul, LinearWithBias) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (bool pack : {false, true}) {
      MatmulDesc desc = linear(37, 70, 129, dtype);
      desc.bias = dense(dtype, {129});
      desc.pack_b = pack;
      expectCorrect(desc);
    }
}

// Without instructions for f16 it computes in f32.
TEST(Matmul, TakesF16) {
  for (bool pack : {false, true}) {
    MatmulDesc desc = linear(37, 70, 129, DType::f16);
    desc.bias = dense(DType::f16, {129});
    desc.post_ops = {{PostOpKind::gelu_erf, {}}, {PostOpKind::add, desc.out}};
    desc.pack_b = pack;
    expectCorrect(desc);
    desc.a = permuted(DType::f16, {37, 70}, {1, 0});
    desc.b = dense(DType::f16, {70, 129});
    desc.out = permuted(DType::f32, {37, 129}, {1, 0});
    expectCorrect(desc);
  }
}

TEST(Matmul, EveryPostOp) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (PostOpKind kind : plan::EnumValuesPostOpKind()) {
      SCOPED_TRACE(plan::EnumNamePostOpKind(kind));
      MatmulDesc desc = linear(19, 33, 40, dtype);
      bool binary = kind == PostOpKind::add || kind == PostOpKind::mul;
      desc.post_ops = {{kind, binary ? std::optional(desc.out) : std::nullopt}};
      expectCorrect(desc);
    }
}

TEST(Matmul, PostOpsKeepTheirOrder) {
  MatmulDesc desc = linear(24, 48, 64);
  desc.alpha = 0.5f;
  desc.bias = dense(DType::f32, {64});
  desc.post_ops = {{PostOpKind::gelu_erf, {}},
                   {PostOpKind::mul, dense(DType::f32, {64})},
                   {PostOpKind::add, desc.out},
                   {PostOpKind::tanh, {}}};
  desc.pack_b = true;
  expectCorrect(desc);
}

TEST(Matmul, AlphaScalesTheProductOnly) {
  for (bool bias : {false, true}) {
    MatmulDesc desc = linear(24, 48, 64);
    desc.alpha = -2.5f;
    if (bias)
      desc.bias = dense(DType::f32, {64});
    expectCorrect(desc);
  }
}

TEST(Matmul, NanComesThroughEveryPostOp) {
  for (PostOpKind kind : plan::EnumValuesPostOpKind()) {
    SCOPED_TRACE(plan::EnumNamePostOpKind(kind));
    MatmulDesc desc = linear(3, 8, 40);
    bool binary = kind == PostOpKind::add || kind == PostOpKind::mul;
    desc.post_ops = {{kind, binary ? std::optional(desc.out) : std::nullopt}};
    Case test = makeCase(desc);
    test.a.wide[8] = std::numeric_limits<float>::quiet_NaN();  // row 1
    (void)runAndCompare(test);
    EXPECT_FALSE(std::isnan(test.out.at({0, 5})));
    EXPECT_TRUE(std::isnan(test.out.at({1, 5})));
  }
}

TEST(Matmul, ReluOfZeroAndBelow) {
  MatmulDesc desc = linear(2, 1, 40);
  desc.post_ops = {{PostOpKind::relu, {}}};
  Case test = makeCase(desc);
  std::fill(test.b.wide.begin(), test.b.wide.end(), 1.0f);
  test.a.wide[0] = -3;
  test.a.wide[1] = 1e-37f;
  EXPECT_EQ(runAndCompare(test), "");
  EXPECT_EQ(test.out.at({0, 7}), 0);
  EXPECT_FALSE(std::signbit(test.out.at({0, 7})));
  EXPECT_EQ(test.out.at({1, 7}), 1e-37f);
}

TEST(Matmul, ReluOfInfinities) {
  MatmulDesc desc = linear(2, 1, 40);
  desc.post_ops = {{PostOpKind::relu, {}}};
  Case test = makeCase(desc);
  std::fill(test.b.wide.begin(), test.b.wide.end(), 1.0f);
  test.a.wide[0] = -std::numeric_limits<float>::infinity();
  test.a.wide[1] = std::numeric_limits<float>::infinity();
  (void)runAndCompare(test);
  EXPECT_EQ(test.out.at({0, 7}), 0);
  EXPECT_EQ(test.out.at({1, 7}), std::numeric_limits<double>::infinity());
}

TEST(Matmul, ZeroSizes) {
  for (auto [batch, m, k, n] :
       {std::array<int64_t, 4>{2, 0, 5, 7}, {2, 3, 5, 0}, {0, 3, 5, 7}, {2, 3, 0, 7}, {1, 0, 0, 0}})
    for (DType dtype : {DType::f32, DType::bf16})
      for (bool pack : {false, true}) {
        MatmulDesc desc;
        desc.a = dense(dtype, {batch, m, k});
        desc.b = dense(dtype, {1, k, n});
        desc.out = dense(dtype, {batch, m, n});
        desc.pack_b = pack;
        expectCorrect(desc);
        desc.bias = dense(dtype, {n});  // without inner elements: what remains is post_ops(bias)
        desc.post_ops = {{PostOpKind::relu, {}}, {PostOpKind::add, dense(dtype, {batch, m, 1})}};
        expectCorrect(desc);
      }
}

TEST(Matmul, PackedWeightsAreIndependentOfTheOriginal) {
  MatmulDesc desc = linear(16, 64, 96);
  desc.pack_b = true;
  Case test = makeCase(desc);
  auto matmul = Matmul::get(desc);
  ASSERT_TRUE(matmul.ok()) << matmul.status().toString();
  ASSERT_GT((*matmul)->packedBytes(), 0u);
  AlignedBuffer packed((*matmul)->packedBytes()), scratch((*matmul)->scratchBytes());
  ASSERT_TRUE((*matmul)->packB(test.b.data(), packed.data).ok());
  Tensor original = test.b;
  std::fill(test.b.wide.begin(), test.b.wide.end(), 0.0f);
  ASSERT_TRUE((*matmul)->run({test.a.data(), packed.data, nullptr, test.out.data(), {}, scratch.data}).ok());
  test.b = original;
  EXPECT_EQ(compare(test), "");
}

// A training step's: with bias, epilogue and gradients' forms, by oneDNN's gemm, which reads both sides as they lie.
TEST(Matmul, LargeProductsThatNobodyPacks) {
  MatmulDesc forward = linear(128, 256, 640);
  forward.bias = dense(DType::f32, {640});
  forward.post_ops = {{PostOpKind::gelu_erf, {}}};
  MatmulDesc of_input = forward, of_weight = forward;
  of_input.b = dense(DType::f32, {256, 640});
  of_input.bias.reset();
  of_input.post_ops = {{PostOpKind::add, of_input.out}};
  of_weight.a = permuted(DType::f32, {128, 256}, {1, 0});
  of_weight.b = of_input.b;
  for (const MatmulDesc& desc : {forward, of_input, of_weight}) {
    expectCorrect(desc);
    auto matmul = Matmul::get(desc);
    ASSERT_TRUE(matmul.ok());
    EXPECT_EQ((*matmul)->implementation().find("gemm:jit"), 0u) << (*matmul)->implementation();
    if (!blockedOnThisHost())
      continue;  // it is gemm anyway
    MatmulDesc packed = desc;
    packed.pack_b = true;
    EXPECT_EQ((*Matmul::get(packed))->implementation().find("brg"), 0u);
  }
}

// Scores and their product with the values, where queries, keys and values are cut out of rows three times as wide.
TEST(Matmul, HeadsCutOutOfWiderRowsAreMultipliedInBlocksThroughCopies) {
  if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core_bf16)
    GTEST_SKIP() << "no bf16 in this CPU";
  const std::vector<int64_t> rows = {2 * 40 * 1152, 64, 1152, 1}, columns = {2 * 40 * 1152, 64, 1, 1152};
  MatmulDesc scores;
  scores.a = {DType::bf16, {2, 6, 40, 64}, rows};
  scores.b = {DType::bf16, {2, 6, 64, 40}, columns};
  scores.out = dense(DType::f32, {2, 6, 40, 40});
  scores.alpha = 0.125f;
  MatmulDesc values;
  values.a = dense(DType::bf16, {2, 6, 40, 40});
  values.b = {DType::bf16, {2, 6, 40, 64}, rows};
  values.out = permuted(DType::bf16, {2, 6, 40, 64}, {0, 2, 1, 3});
  for (MatmulDesc desc : {scores, values})
    for (plan::LibraryWay way : {plan::LibraryWay::automatic, plan::LibraryWay::blocked}) {
      desc.way = way;
      expectCorrect(desc);
      if (way == plan::LibraryWay::blocked)
        EXPECT_EQ((*Matmul::get(desc))->implementation().find("brg"), 0u) << (*Matmul::get(desc))->implementation();
    }
}

// What transformers run most must not pay for copies or for parts that oneDNN does not fuse.
TEST(Matmul, CommonProductsNeedNoCopies) {
  if (!blockedOnThisHost())
    GTEST_SKIP() << "no AVX-512 here: copies are expected";
  auto implementation = [](const MatmulDesc& desc) {
    auto matmul = Matmul::get(desc);
    return matmul.ok() ? (*matmul)->implementation() : matmul.status().toString();
  };
  auto expectFused = [&](const MatmulDesc& desc, const char* what) {
    EXPECT_EQ(implementation(desc).find_first_of("; "), std::string::npos) << what << ": " << implementation(desc);
    EXPECT_EQ(implementation(desc).find("brg:"), 0u) << what << ": " << implementation(desc);
  };
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t batch : {1, 2}) {
      MatmulDesc scores;
      TensorDesc heads = permuted(dtype, {batch, 12, 128, 64}, {0, 2, 1, 3});
      scores.a = heads;
      scores.b = permuted(dtype, {batch, 12, 64, 128}, {0, 3, 1, 2});
      scores.out = dense(dtype, {batch, 12, 128, 128});
      scores.alpha = 0.125f;
      scores.post_ops = {{PostOpKind::add, dense(dtype, {batch, 1, 1, 128})}};
      expectFused(scores, "scores");
      MatmulDesc context;
      context.a = scores.out;
      context.b = context.out = heads;
      expectFused(context, "context");
    }
    MatmulDesc desc;
    desc.a = dense(dtype, {4, 128, 384});
    desc.b = permuted(dtype, {1, 384, 1536}, {0, 2, 1});
    desc.out = dense(dtype, {4, 128, 1536});
    desc.bias = dense(dtype, {1536});
    desc.post_ops = {{PostOpKind::gelu_erf, {}}, {PostOpKind::add, desc.out}};
    desc.pack_b = true;
    expectFused(desc, "linear");
  }
}

TEST(Matmul, ReducedPrecisionOnlyWhenAsked) {
  MatmulDesc desc = linear(32, 256, 64);
  expectCorrect(desc);
  desc.fpmath = FpMath::bf16;
  desc.pack_b = true;
  expectCorrect(desc);
}

TEST(Matmul, RoundsOperandsOfF32WhereThatIsPermittedAndPays) {
  const bool has_bf16 = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
  auto rounds = [](const MatmulDesc& desc) {
    const std::string name = (*Matmul::get(desc))->implementation();
    return name.find("bf16") != name.npos || name.find("amx") != name.npos;
  };
  MatmulDesc packed = linear(16, 512, 256);
  packed.pack_b = true;
  packed.bias = dense(DType::f32, {256});
  packed.post_ops = {{PostOpKind::relu, {}}, {PostOpKind::add, packed.out}};
  MatmulDesc of_weights = linear(192, 256, 320);  // x^T y
  of_weights.a = permuted(DType::f32, {192, 256}, {1, 0});
  of_weights.b = dense(DType::f32, {256, 320});
  MatmulDesc heads;  // a batch in an order of its own
  heads.a = permuted(DType::f32, {2, 3, 256, 64}, {0, 2, 1, 3});
  heads.b = permuted(DType::f32, {2, 3, 64, 256}, {0, 2, 3, 1});
  heads.out = dense(DType::f32, {2, 3, 256, 256});
  for (MatmulDesc desc : {packed, of_weights, heads}) {
    EXPECT_FALSE(rounds(desc));
    desc.fpmath = FpMath::bf16;
    EXPECT_EQ(rounds(desc), has_bf16);
    expectCorrect(desc);
  }
}

TEST(Cache, GivesOneObjectPerDescriptorAndThreadCount) {
  MatmulDesc desc = linear(8, 24, 16);
  auto first = *Matmul::get(desc);
  EXPECT_EQ(first, *Matmul::get(desc));
  int threads = omp_get_max_threads();
  omp_set_num_threads(threads + 1);
  auto other = *Matmul::get(desc);
  omp_set_num_threads(threads);
  EXPECT_NE(first, other);
  desc.alpha = 2;
  EXPECT_NE(first, *Matmul::get(desc));
  // Two spellings of one product.
  MatmulDesc batched = linear(8, 24, 16);
  for (TensorDesc* tensor : {&batched.a, &batched.b, &batched.out}) {
    tensor->sizes.insert(tensor->sizes.begin(), 1);
    tensor->strides.insert(tensor->strides.begin(), 5);
  }
  EXPECT_EQ(first, *Matmul::get(batched));
}

TEST(Cache, ForgetsTheLeastRecentlyUsed) {
  std::weak_ptr<const Matmul> used = *Matmul::get(linear(5, 9, 7)), unused = *Matmul::get(linear(5, 9, 8));
  for (int64_t m = 1000; m < 1600; ++m) {
    ASSERT_TRUE(Matmul::get(linear(m, 0, 1)).ok());  // K = 0 is quick to build
    (void)Matmul::get(linear(5, 9, 7));
  }
  EXPECT_FALSE(used.expired());
  EXPECT_TRUE(unused.expired());
}

TEST(Matmul, RunsInManyThreadsAtOnce) {
  MatmulDesc desc = linear(33, 65, 70);
  desc.bias = dense(DType::f32, {70});
  desc.post_ops = {{PostOpKind::mul, desc.out}};
  desc.pack_b = true;
  std::vector<std::string> differences(4);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 20 && differences[t].empty(); ++i) {
        Case test = makeCase(desc, t * 100 + i);
        differences[t] = runAndCompare(test);
      }
    });
  for (auto& thread : threads)
    thread.join();
  for (const std::string& difference : differences)
    EXPECT_EQ(difference, "");
}

TEST(Matmul, ThreadCountsDoNotChangeTheResult) {
  int threads = omp_get_max_threads();
  for (int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    MatmulDesc desc = linear(40, 64, 96);
    desc.out = permuted(DType::f32, {40, 96}, {1, 0});  // through a copy
    expectCorrect(desc);
  }
  omp_set_num_threads(threads);
}

TEST(F16, EveryNumberThereAndBack) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const int exponent = int(bits >> 10), fraction = int(bits & 0x3ff);
    auto of = [](int e, int f) { return e ? std::ldexp(1024.0f + float(f), e - 25) : std::ldexp(float(f), -24); };
    const float value = of(exponent, fraction), next = of(int(bits + 1) >> 10, int(bits + 1) & 0x3ff);
    for (uint32_t sign : {0u, 0x8000u}) {
      const float signed_value = sign ? -value : value, middle = (value + next) / 2 * (sign ? -1.0f : 1.0f);
      ASSERT_EQ(std::bit_cast<uint32_t>(floatOfF16(uint16_t(bits | sign))), std::bit_cast<uint32_t>(signed_value));
      ASSERT_EQ(f16OfFloat(signed_value), bits | sign);
      ASSERT_EQ(f16OfFloat(middle), (bits + (bits & 1)) | sign);  // the even one
      ASSERT_EQ(f16OfFloat(std::nextafter(middle, 0.0f)), bits | sign);
      ASSERT_EQ(f16OfFloat(std::nextafter(middle, sign ? -1e9f : 1e9f)), (bits + 1) | sign);
    }
  }
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(floatOfF16(0xfc00), -inf);
  EXPECT_EQ(f16OfFloat(inf), 0x7c00);
  EXPECT_EQ(f16OfFloat(1e9f), 0x7c00);
  EXPECT_TRUE(std::isnan(floatOfF16(0x7e01)));
  EXPECT_EQ(f16OfFloat(std::numeric_limits<float>::quiet_NaN()), 0x7e00);
}

TEST(Matmul, RefusalsSayWhatAndWhere) {
  auto message = [](const MatmulDesc& desc) { return Matmul::get(desc).status().toString(); };
  MatmulDesc desc = linear(2, 3, 4, DType::i64);
  EXPECT_EQ(Matmul::get(desc).status().code(), Code::unsupported);
  EXPECT_NE(message(desc).find("matmul i64[2,3] strides [3,1] x i64[3,4] strides [1,3] -> i64[2,4] strides [4,1]: a is "
                               "i64; oneDNN multiplies f32, bf16 and f16 here: run this product through ATen"),
            std::string::npos)
      << message(desc);
  for (DType dtype : {DType::f64, DType::i32, DType::b8})
    EXPECT_EQ(Matmul::check(linear(2, 3, 4, dtype)).code(), Code::unsupported);

  desc = linear(2, 3, 4);
  desc.bias = dense(DType::f32, {3});
  EXPECT_EQ(Matmul::get(desc).status().code(), Code::invalid_argument);
  EXPECT_NE(message(desc).find("bias f32[3] strides [1] does not broadcast to out"), std::string::npos)
      << message(desc);

  desc = linear(2, 3, 4);
  desc.post_ops = {{PostOpKind::add, {}}};
  EXPECT_NE(message(desc).find("post-op 0 (add) needs an operand"), std::string::npos) << message(desc);
  desc.post_ops = {{PostOpKind::relu, desc.out}};
  EXPECT_NE(message(desc).find("post-op 0 (relu) takes no operand"), std::string::npos) << message(desc);

  desc = linear(2, 3, 4);
  desc.b.sizes[0] = 5;
  EXPECT_NE(message(desc).find("a's columns differ from b's rows"), std::string::npos) << message(desc);
  desc = linear(2, 3, 4);
  desc.out.strides = {0, 1};
  EXPECT_NE(message(desc).find("out overlaps itself"), std::string::npos) << message(desc);
  desc = linear(2, 3, 4);
  desc.a.sizes = {1, 1, 2, 3};
  EXPECT_EQ(Matmul::get(desc).status().code(), Code::invalid_argument);
  desc = linear(2, 3, 4);
  desc.b.dtype = DType::bf16;
  EXPECT_NE(message(desc).find("a and b must have one element type"), std::string::npos) << message(desc);
}

// Shapes, strides, broadcasts, post-ops drawn at random.
TEST(Matmul, RandomProducts) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 generator(seed);
    auto draw = [&](int low, int high) { return int64_t(generator() % (high - low + 1)) + low; };
    DType dtype = draw(0, 3) ? DType::f32 : DType::bf16;
    size_t rank = size_t(draw(2, 5));
    std::vector<int64_t> batch;
    for (size_t d = 2; d < rank; ++d)
      batch.push_back(draw(1, 3));
    int64_t m = draw(0, 3) ? draw(1, 40) : 1, n = draw(0, 5) ? draw(1, 70) : 1, k = draw(1, 50);
    auto tensor = [&](DType type, std::vector<int64_t> sizes) {
      std::vector<size_t> order;
      for (size_t d = 0; d < sizes.size(); ++d)
        order.push_back(d);
      if (draw(0, 1))
        std::swap(order[size_t(draw(0, int(rank) - 1))], order[size_t(draw(0, int(rank) - 1))]);
      TensorDesc desc = permuted(type, sizes, order);
      if (!draw(0, 3))  // a slice of something larger
        for (int64_t& stride : desc.strides)
          stride = stride == 1 && draw(0, 2) ? 1 : stride * 2;
      for (size_t d = 0; d < sizes.size(); ++d)
        if (sizes[d] == 1 && !draw(0, 2))
          desc.strides[d] = draw(0, 7);
      return desc;
    };
    auto broadcast = [&](std::vector<int64_t> sizes, size_t keep) {
      for (size_t d = 0; d < keep; ++d)
        if (!draw(0, 3))
          sizes[d] = 1;
      return sizes;
    };
    auto full = [&](int64_t rows, int64_t columns) {
      std::vector<int64_t> sizes = batch;
      sizes.push_back(rows);
      sizes.push_back(columns);
      return sizes;
    };
    MatmulDesc desc;
    desc.out = tensor(draw(0, 7) ? dtype : DType::f32, full(m, n));
    desc.a = tensor(dtype, broadcast(full(m, k), rank - 2));
    desc.b = tensor(dtype, broadcast(full(k, n), rank - 2));
    if (!draw(0, 5))
      desc.a.strides[rank - 2] = 0;  // expanded
    auto operand = [&] {
      auto sizes = broadcast(full(m, n), rank);
      TensorDesc result = tensor(draw(0, 4) ? dtype : draw(0, 1) ? DType::f32 : DType::bf16, sizes);
      size_t keep = size_t(draw(0, int(rank)));
      while (result.sizes.size() > keep) {
        result.sizes.erase(result.sizes.begin());
        result.strides.erase(result.strides.begin());
      }
      return result;
    };
    desc.pack_b = draw(0, 1);
    if (!draw(0, 2))
      desc.alpha = 0.75f;
    if (draw(0, 1))
      desc.bias = operand();
    for (int64_t i = draw(0, 3); i > 0; --i) {
      auto kind = PostOpKind(draw(0, int(PostOpKind::MAX)));
      bool binary = kind == PostOpKind::add || kind == PostOpKind::mul;
      desc.post_ops.push_back({kind, binary ? std::optional(operand()) : std::nullopt});
    }
    expectCorrect(desc, seed);
    if (HasFailure())
      return;
  }
}

}  // namespace
}  // namespace zefuse::primitives::testing
