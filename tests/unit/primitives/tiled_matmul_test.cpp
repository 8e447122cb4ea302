// Products whose left side is transposed, as weights' gradients are: with AMX in tiles, else by oneDNN.
#include "runtime/primitives/matmul/tiled_matmul.h"

#include <cstring>
#include <gtest/gtest.h>

#include "runtime/primitives/core/team.h"
#include "runtime/primitives/simd/amx_tiles.h"
#include "tests/unit/primitives/reference.h"

namespace zefuse::primitives::testing {
namespace {

using plan::DType;
using plan::PostOpKind;

// x^T dy of so many rows.
MatmulDesc gradient(int64_t rows, int64_t m, int64_t n, DType dtype = DType::bf16) {
  return {permuted(dtype, {m, rows}, {1, 0}), dense(dtype, {rows, n}), dense(dtype, {m, n})};
}

std::string implementation(const MatmulDesc& desc) { return (*Matmul::get(desc))->implementation(); }

bool inTiles(const MatmulDesc& desc) { return implementation(desc) == "tiles:amx_bf16"; }

void expectCorrect(const MatmulDesc& desc) {
  Case test = makeCase(desc);
  EXPECT_EQ(runAndCompare(test), "");
  EXPECT_EQ(inTiles(desc), tilesAvailable());
}

// Whole tiles and parts of them, panels of several depths, several tasks; sums in slices.
TEST(TiledMatmul, IsTheFormula) {
  const int64_t sizes[][3] = {{4, 2, 1},    {32, 32, 32}, {33, 17, 49},   {64, 768, 96},
                              {300, 40, 7}, {700, 50, 3}, {1300, 70, 40}, {4500, 17, 20}};
  for (const auto& [rows, m, n] : sizes) {
    SCOPED_TRACE(std::to_string(rows) + " " + std::to_string(m) + " " + std::to_string(n));
    expectCorrect(gradient(rows, m, n));
  }
}

TEST(TiledMatmul, OperandsAndResults) {
  MatmulDesc plain = gradient(70, 45, 52);
  plain.out.dtype = DType::f32;
  expectCorrect(plain);

  MatmulDesc both = gradient(70, 45, 52);  // the right side transposed, too
  both.b = permuted(DType::bf16, {70, 52}, {1, 0});
  expectCorrect(both);

  MatmulDesc cut = gradient(70, 45, 52);  // out of wider rows
  cut.a.strides[1] = 64;
  cut.b.strides[0] = 60;
  cut.out.strides[0] = 57;
  expectCorrect(cut);

  for (DType dtype : {DType::f32, DType::bf16}) {
    MatmulDesc ended = gradient(70, 45, 52);
    ended.alpha = -0.5f;
    ended.bias = dense(dtype, {52});
    expectCorrect(ended);
    MatmulDesc slices = gradient(4200, 15, 52);
    slices.bias = ended.bias;
    expectCorrect(slices);
  }

  MatmulDesc batches;
  batches.a = permuted(DType::bf16, {3, 2, 40, 90}, {0, 1, 3, 2});
  batches.b = dense(DType::bf16, {1, 2, 90, 35});
  batches.out = dense(DType::bf16, {3, 2, 40, 35});
  expectCorrect(batches);
}

// Operands of f32 are rounded where that is permitted.
TEST(TiledMatmul, RoundsWherePermitted) {
  MatmulDesc desc = gradient(300, 70, 129, DType::f32);
  EXPECT_FALSE(inTiles(desc));
  desc.fpmath = FpMath::bf16;
  expectCorrect(desc);
}

// What oneDNN does as quickly or alone.
TEST(TiledMatmul, LeavesOthersToOneDnn) {
  MatmulDesc laid_out = gradient(64, 32, 48);
  laid_out.a = dense(DType::bf16, {32, 64});
  MatmulDesc few_terms = gradient(3, 32, 48), packed = gradient(64, 32, 48), ended = packed, measured = packed;
  packed.pack_b = true;
  ended.post_ops = {{PostOpKind::relu, {}}};
  measured.way = plan::LibraryWay::blocked;
  for (const MatmulDesc& desc : {laid_out, few_terms, packed, ended, measured})
    EXPECT_FALSE(inTiles(desc));
}

// Also where sums are in slices or a thread has several tasks.
TEST(TiledMatmul, ThreadsChangeNoBit) {
  const int before = maxThreads();
  for (const MatmulDesc& desc : {gradient(300, 200, 140), gradient(4200, 20, 33), gradient(20, 90, 500)}) {
    Case test = makeCase(desc);
    std::vector<uint16_t> first;
    for (int threads : {1, 2, 3}) {
      setMaxThreads(threads);
      EXPECT_EQ(runAndCompare(test), "");
      if (first.empty())
        first = test.out.narrow;
      else if (tilesAvailable())
        EXPECT_EQ(std::memcmp(first.data(), test.out.narrow.data(), first.size() * 2), 0) << threads;
    }
  }
  setMaxThreads(before);
}

// A thread's panels and sums stay in the cache whatever the sizes are.
TEST(TiledMatmul, ScratchIsBounded) {
  if (!tilesAvailable())
    GTEST_SKIP() << "no tiles in this CPU";
  const int before = maxThreads();
  setMaxThreads(2);
  for (const MatmulDesc& desc : {gradient(512, 30000, 768), gradient(100000, 768, 3072), gradient(64, 4096, 50000)}) {
    ASSERT_TRUE(inTiles(desc));
    EXPECT_LE((*Matmul::get(desc))->scratchBytes(), size_t(4) << 20);
  }
  EXPECT_LE((*Matmul::get(gradient(1000000, 256, 512)))->scratchBytes(), size_t(13) << 20);  // slices
  setMaxThreads(before);
}

}  // namespace
}  // namespace zefuse::primitives::testing
