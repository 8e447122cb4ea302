// Batches: one launch over several sets of tensors, run on the host for several numbers of groups.
#include "tests/unit/lowering/numerics.h"

namespace zefuse::test {
namespace {

constexpr const char* rows_kernel = R"(
func.func @graph(%a0: tensor<5x20xf32>, %b0: tensor<20xf32>, %a1: tensor<5x20xf32>, %b1: tensor<20xf32>) {
  %r:4 = zefuse.kernel "scaled_sums"(%a0, %b0, %a1, %b1)
      attributes {batch = 2 : i64, layouts = [#full, #one, #full, #one, #one, #full, #one, #full]}
      : (tensor<5x20xf32>, tensor<20xf32>, tensor<5x20xf32>, tensor<20xf32>)
      -> (tensor<5xf32>, tensor<5x20xf32>, tensor<5xf32>, tensor<5x20xf32>) {
  ^bb0(%x: tensor<5x20xf32>, %s: tensor<20xf32>):
    %e = tensor.empty() : tensor<5x20xf32>
    %y = linalg.generic {indexing_maps = [#both, #columns, #both], iterator_types = ["parallel", "parallel"]}
        ins(%x, %s : tensor<5x20xf32>, tensor<20xf32>) outs(%e : tensor<5x20xf32>) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %2 = arith.mulf %0, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<5x20xf32>
    %zero = arith.constant 0.0 : f32
    %t = tensor.empty() : tensor<5xf32>
    %f = linalg.fill ins(%zero : f32) outs(%t : tensor<5xf32>) -> tensor<5xf32>
    %z = linalg.generic {indexing_maps = [#both, #rows], iterator_types = ["parallel", "reduction"]}
        ins(%y : tensor<5x20xf32>) outs(%f : tensor<5xf32>) {
    ^bb0(%0: f32, %o: f32):
      %2 = arith.addf %0, %o : f32
      linalg.yield %2 : f32
    } -> tensor<5xf32>
    zefuse.yield %z, %y : tensor<5xf32>, tensor<5x20xf32>
  }
  return
}
)";

constexpr const char* maps = R"(
#full = affine_map<(d0, d1) -> (d0 * 20 + d1)>
#both = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#columns = affine_map<(d0, d1) -> (d1)>
#one = affine_map<(d0) -> (d0)>
)";

class BatchOn : public testing::TestWithParam<const char*> {};

TEST_P(BatchOn, SetsOfOneShape) {
  Program program(std::string(maps) + rows_kernel, *TargetDescription::named(GetParam()));
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program.lowered().schedule.batch, 2) << describe(program.lowered().schedule);
  for (unsigned groups : {1u, 2u, 3u, 7u, 40u}) {
    Floats x[2] = {randomFloats(100, 1), randomFloats(100, 2)}, s[2] = {randomFloats(20, 3), randomFloats(20, 4)};
    Guarded sums[2] = {Guarded(5), Guarded(5)}, products[2] = {Guarded(100), Guarded(100)};
    program.run({x[0].data(), s[0].data(), x[1].data(), s[1].data(), sums[0].data(), products[0].data(), sums[1].data(),
                 products[1].data()},
                {}, groups);
    for (int set = 0; set < 2; ++set) {
      std::vector<double> sum(5), product(100);
      for (int i = 0; i < 100; ++i) {
        product[i] = double(x[set][i]) * s[set][i % 20];
        sum[i / 20] += product[i];
      }
      expectNear(products[set], product);
      expectNear(sums[set], sum);
    }
  }
}

// A GPU's groups work for one set each.
INSTANTIATE_TEST_SUITE_P(Batch, BatchOn, testing::Values("cpu", "dg2-g11", "sm_90"));

TEST(Batch, ElementwiseOnSetsOfAnySizes) {
  // Sizes below, at and above a vector, one of them two vectors and a bit; a scalar of each set besides.
  const std::vector<int> sizes = {3, 16, 1, 37, 64};
  std::string parameters, names, types, results, layouts, numbers;
  for (size_t set = 0; set < sizes.size(); ++set) {
    std::string n = std::to_string(sizes[set]), i = std::to_string(set), comma = set ? ", " : "";
    parameters += comma + "%x" + i + ": tensor<" + n + "xf32>, %s" + i + ": tensor<f32>";
    names += comma + "%x" + i + ", %s" + i;
    types += comma + "tensor<" + n + "xf32>, tensor<f32>";
    results += comma + "tensor<" + n + "xf32>";
    layouts += comma + "#one, affine_map<() -> (0)>";
    numbers += comma + n;
  }
  for (size_t set = 0; set < sizes.size(); ++set)
    layouts += ", #one";
  Program program(std::string(maps) + "func.func @graph(" + parameters + ") {\n  %r:5 = zefuse.kernel \"scale\"(" +
                  names + ") attributes {batch = 5 : i64, batch_sizes = array<i64: " + numbers + ">, layouts = [" +
                  layouts + "]} : (" + types + ") -> (" + results + ") {" + R"(
  ^bb0(%x: tensor<1000xf32>, %s: tensor<f32>):
    %e = tensor.empty() : tensor<1000xf32>
    %y = linalg.generic {indexing_maps = [#one, affine_map<(d0) -> ()>, #one], iterator_types = ["parallel"]}
        ins(%x, %s : tensor<1000xf32>, tensor<f32>) outs(%e : tensor<1000xf32>) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %2 = arith.mulf %0, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<1000xf32>
    zefuse.yield %y : tensor<1000xf32>
  }
  return
})");
  ASSERT_TRUE(program.ok());
  for (unsigned groups : {1u, 2u, 3u, 20u}) {
    std::vector<Floats> x, s;
    std::vector<Guarded> out;
    std::vector<void*> pointers;
    for (int size : sizes) {
      x.push_back(randomFloats(size, unsigned(x.size())));
      s.push_back(randomFloats(1, unsigned(100 + s.size())));
      out.emplace_back(size);
    }
    for (size_t set = 0; set < sizes.size(); ++set)
      pointers.insert(pointers.end(), {x[set].data(), s[set].data()});
    for (Guarded& result : out)
      pointers.push_back(result.data());
    program.run(pointers, {}, groups);
    for (size_t set = 0; set < sizes.size(); ++set) {
      std::vector<double> expected;
      for (float value : x[set])
        expected.push_back(double(value) * s[set][0]);
      expectNear(out[set], expected);
    }
  }
}

TEST(Batch, SizesNeedElementwiseWork) {
  std::string text = std::string(maps) + R"(
func.func @graph(%a: tensor<5x20xf32>, %b: tensor<2x20xf32>) {
  %r:2 = zefuse.kernel "transposed"(%a, %b) attributes {batch = 2 : i64, batch_sizes = array<i64: 100, 40>,
      layouts = [#full, #full, #full, #full]}
      : (tensor<5x20xf32>, tensor<2x20xf32>) -> (tensor<5x20xf32>, tensor<2x20xf32>) {
  ^bb0(%x: tensor<1000xf32>):
    %e = tensor.empty() : tensor<1000xf32>
    %v = zefuse.view %x affine_map<(d0) -> (999 - d0)> : tensor<1000xf32> -> tensor<1000xf32>
    %y = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
        ins(%v : tensor<1000xf32>) outs(%e : tensor<1000xf32>) {
    ^bb0(%0: f32, %o: f32):
      linalg.yield %0 : f32
    } -> tensor<1000xf32>
    zefuse.yield %y : tensor<1000xf32>
  }
  return
})";
  EXPECT_NE(refusalOf(text).find("elementwise work on contiguous tensors"), std::string::npos) << refusalOf(text);
}

}  // namespace
}  // namespace zefuse::test
