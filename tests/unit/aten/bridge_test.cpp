#include "runtime/executor/aten_bridge.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "common/plan/plan_generated.h"

extern "C" zefuse::AtenBridge* zefuse_aten_bridge();

namespace zefuse {
namespace {

using plan::ArgumentKind;
using plan::DType;

plan::DType dtypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
  case at::kFloat: return DType::f32;
  case at::kLong: return DType::i64;
  case at::kBFloat16: return DType::bf16;
  case at::kBool: return DType::b8;
  default: ADD_FAILURE() << "no plan type for " << tensor.scalar_type(); return DType::f32;
  }
}

// As the executor passes memory of its arena: no owner. `tensor` must outlive the argument.
AtenArgument arena(const at::Tensor& tensor) {
  AtenArgument argument;
  argument.kind = ArgumentKind::tensor;
  argument.tensor = {tensor.data_ptr(),
                     dtypeOf(tensor),
                     {tensor.sizes().data(), tensor.sizes().size()},
                     {tensor.strides().data(), tensor.strides().size()},
                     0,
                     nullptr};
  return argument;
}

AtenArgument owned(at::Tensor& tensor) {
  AtenArgument argument = arena(tensor);
  argument.tensor.owner = &tensor;
  return argument;
}

AtenArgument none() { return {}; }

AtenArgument integer(int64_t value) {
  AtenArgument argument;
  argument.kind = ArgumentKind::integer;
  argument.integer = value;
  return argument;
}

AtenArgument real(double value) {
  AtenArgument argument;
  argument.kind = ArgumentKind::real;
  argument.real = value;
  return argument;
}

AtenArgument boolean(bool value) {
  AtenArgument argument = integer(value);
  argument.kind = ArgumentKind::boolean;
  return argument;
}

AtenArgument numbered(ArgumentKind kind, int64_t value) {
  AtenArgument argument = integer(value);
  argument.kind = kind;
  return argument;
}

AtenArgument text(ArgumentKind kind, std::string value) {
  AtenArgument argument;
  argument.kind = kind;
  argument.text = std::move(value);
  return argument;
}

AtenArgument list(std::vector<AtenArgument> items) {
  AtenArgument argument;
  argument.kind = ArgumentKind::list;
  argument.items = std::move(items);
  return argument;
}

AtenArgument ints(std::vector<int64_t> values) {
  std::vector<AtenArgument> items;
  for (int64_t value : values)
    items.push_back(integer(value));
  return list(std::move(items));
}

class AtenBridgeTest : public ::testing::Test {
protected:
  // Results as tensors (undefined for those that are none), released again.
  std::vector<at::Tensor> call(const std::string& op, const std::string& overload,
                               std::vector<AtenArgument> arguments) {
    auto resolved = bridge->resolve(op, overload);
    if (!resolved.ok()) {
      status = resolved.status();
      return {};
    }
    auto returned = (*resolved)->call(arguments);
    status = returned.status();
    std::vector<at::Tensor> tensors;
    if (!returned.ok())
      return tensors;
    raw = *returned;
    for (const AtenResult& result : *returned) {
      tensors.emplace_back();
      if (!result.owner)
        continue;
      tensors.back() = *static_cast<at::Tensor*>(result.owner);
      EXPECT_EQ(result.data, tensors.back().data_ptr());
      EXPECT_EQ(tensors.back().sizes(), at::IntArrayRef(result.sizes));
      EXPECT_EQ(tensors.back().strides(), at::IntArrayRef(result.strides));
      EXPECT_EQ(result.dtype, dtypeOf(tensors.back()));
      EXPECT_FALSE(tensors.back().is_inference());
      bridge->release(result.owner);
    }
    return tensors;
  }

  at::Tensor callOne(const std::string& op, const std::string& overload, std::vector<AtenArgument> arguments) {
    auto tensors = call(op, overload, std::move(arguments));
    EXPECT_TRUE(status.ok()) << status.toString();
    EXPECT_EQ(tensors.size(), 1u);
    return tensors.empty() ? at::Tensor() : tensors[0];
  }

  AtenBridge* bridge = zefuse_aten_bridge();
  Status status;
  std::vector<AtenResult> raw;
};

TEST_F(AtenBridgeTest, AddsWithAlpha) {
  at::Tensor x = at::randn({3, 4}), y = at::randn({3, 4}).t().contiguous().t();
  EXPECT_TRUE(at::equal(callOne("aten::add", "Tensor", {arena(x), arena(y), integer(2)}), at::add(x, y, 2)));
}

TEST_F(AtenBridgeTest, MissingArgumentsTakeTheirDefaults) {
  at::Tensor x = at::randn({3, 4}), y = at::randn({4});
  EXPECT_TRUE(at::equal(callOne("aten::add", "Tensor", {arena(x), arena(y)}), x + y));
}

TEST_F(AtenBridgeTest, ANumberInPlaceOfATensorPromotesAsANumber) {
  for (const at::Tensor& x : {at::randn({5}).to(at::kBFloat16), at::scalar_tensor(3, at::kBFloat16)}) {
    at::Tensor scaled = callOne("aten::mul", "Tensor", {arena(x), real(2.5)});
    EXPECT_EQ(scaled.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(scaled, x * 2.5));
  }
}

TEST_F(AtenBridgeTest, EmbeddingWithABadIndexIsAnIndexError) {
  at::Tensor weight = at::randn({4, 2});
  at::Tensor indices = at::tensor(std::vector<int64_t>{1, 7});
  call("aten::embedding", "", {arena(weight), arena(indices)});
  EXPECT_EQ(status.code(), Code::index_error);
  EXPECT_EQ(status.message(), "aten::embedding: index out of range in self");
}

TEST_F(AtenBridgeTest, TwoResults) {
  at::Tensor x = at::randn({1, 2, 6, 6});
  auto got = call("aten::max_pool2d_with_indices", "", {arena(x), ints({2, 2})});
  ASSERT_EQ(got.size(), 2u) << status.toString();
  auto [values, indices] = at::max_pool2d_with_indices(x, {2, 2});
  EXPECT_TRUE(at::equal(got[0], values));
  EXPECT_TRUE(at::equal(got[1], indices));
}

TEST_F(AtenBridgeTest, OneIntegerFillsAListOfFixedLength) {
  at::Tensor x = at::randn({1, 2, 6, 6});
  auto got = call("aten::max_pool2d_with_indices", "", {arena(x), integer(2)});
  ASSERT_EQ(got.size(), 2u) << status.toString();
  EXPECT_TRUE(at::equal(got[0], std::get<0>(at::max_pool2d_with_indices(x, {2, 2}))));
}

TEST_F(AtenBridgeTest, TensorListsAreFlattenedAndDoNotAliasTheArena) {
  at::Tensor x = at::randn({5, 3});
  auto got = call("aten::split", "Tensor", {arena(x), integer(2), integer(0)});
  ASSERT_EQ(got.size(), 3u) << status.toString();
  auto expected = at::split(x.clone(), 2, 0);
  x.zero_();  // the arena is used again
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(at::equal(got[i], expected[i]));
}

TEST_F(AtenBridgeTest, TensorListArguments) {
  at::Tensor x = at::randn({2, 3}), y = at::randn({1, 3});
  EXPECT_TRUE(at::equal(callOne("aten::cat", "", {list({arena(x), arena(y)}), integer(0)}), at::cat({x, y}, 0)));
  at::Tensor rows = at::tensor(std::vector<int64_t>{1, 0, 1});
  EXPECT_TRUE(at::equal(callOne("aten::index", "Tensor", {arena(x), list({none(), arena(rows)})}),
                        at::index_select(x, 1, rows)));
}

TEST_F(AtenBridgeTest, ConvolutionWithAndWithoutBias) {
  at::Tensor x = at::randn({1, 3, 8, 8}), weight = at::randn({4, 3, 3, 3}), bias = at::randn({4});
  for (bool with : {false, true}) {
    auto got = callOne("aten::convolution", "",
                       {arena(x), arena(weight), with ? arena(bias) : none(), ints({2, 2}), ints({1, 1}), ints({1, 1}),
                        boolean(false), ints({0, 0}), integer(1)});
    auto expected = at::conv2d(x, weight, with ? bias : at::Tensor(), {2, 2}, {1, 1});
    EXPECT_TRUE(at::allclose(got, expected));
  }
}

TEST_F(AtenBridgeTest, ThreeResults) {
  at::Tensor x = at::randn({4, 6}), weight = at::randn({6});
  auto got = call("aten::native_layer_norm", "", {arena(x), ints({6}), arena(weight), none(), real(1e-5)});
  ASSERT_EQ(got.size(), 3u) << status.toString();
  EXPECT_TRUE(at::allclose(got[0], at::layer_norm(x, {6}, weight, {}, 1e-5)));
}

TEST_F(AtenBridgeTest, UndefinedResultsHaveNoOwner) {
  at::Tensor x = at::randn({4, 6}), gradient = at::randn({4, 6});
  auto [y, mean, rstd] = at::native_layer_norm(x, {6}, {}, {}, 1e-5);
  auto got = call("aten::native_layer_norm_backward", "",
                  {arena(gradient), arena(x), ints({6}), arena(mean), arena(rstd), none(), none(),
                   list({boolean(true), boolean(false), boolean(false)})});
  ASSERT_EQ(got.size(), 3u) << status.toString();
  EXPECT_TRUE(got[0].defined());
  EXPECT_FALSE(got[1].defined());
  EXPECT_TRUE(raw[1].is_tensor);
  EXPECT_EQ(raw[1].owner, nullptr);
}

TEST_F(AtenBridgeTest, ViewsOfTheArenaAreClonedWithTheirStrides) {
  at::Tensor x = at::randn({3, 4});
  at::Tensor got = callOne("aten::permute", "", {arena(x), ints({1, 0})});
  at::Tensor expected = x.t().clone();
  EXPECT_EQ(got.strides(), at::IntArrayRef({1, 4}));
  x.zero_();  // the arena is used again
  EXPECT_TRUE(at::equal(got, expected));

  at::Tensor row = at::randn({1, 4});
  got = callOne("aten::expand", "", {arena(row), ints({300, 4})});
  EXPECT_EQ(got.strides(), at::IntArrayRef({0, 1}));
  expected = row.clone().expand({300, 4});
  row.zero_();
  EXPECT_TRUE(at::equal(got, expected));

  at::Tensor wide = at::randn({3, 400});
  got = callOne("aten::select", "int", {arena(wide), integer(1), integer(7)});
  EXPECT_EQ(got.strides(), at::IntArrayRef({400}));
  expected = wide.select(1, 7).clone();
  wide.zero_();
  EXPECT_TRUE(at::equal(got, expected));
}

TEST_F(AtenBridgeTest, ViewsOfOwnedTensorsStayViews) {
  at::Tensor x = at::randn({3, 4}).requires_grad_();
  at::Tensor got = callOne("aten::permute", "", {owned(x), ints({1, 0})});
  EXPECT_TRUE(got.is_alias_of(x));
  EXPECT_FALSE(got.requires_grad());
  // An operator that returns its argument: no second handle of the same tensor.
  got = callOne("aten::contiguous", "", {owned(x)});
  EXPECT_TRUE(got.is_alias_of(x));
  EXPECT_FALSE(got.is_same(x));
  EXPECT_FALSE(got.requires_grad());
}

TEST_F(AtenBridgeTest, AnOwnedTensorMayBeSeenThroughOtherStrides) {
  at::Tensor base = at::randn({4, 6});
  at::Tensor slice = base.slice(1, 2, 5);
  AtenArgument argument = arena(slice);
  argument.tensor.owner = &base;
  EXPECT_TRUE(at::equal(callOne("aten::neg", "", {argument}), -slice));
}

TEST_F(AtenBridgeTest, RandomOperatorsFollowTorchsGenerator) {
  std::vector<AtenArgument> arguments = {ints({5}), numbered(ArgumentKind::dtype, int64_t(at::kFloat)),
                                         numbered(ArgumentKind::layout, int64_t(at::kStrided)),
                                         text(ArgumentKind::device, "cpu"), boolean(false)};
  at::manual_seed(7);
  at::Tensor expected = at::rand({5});
  at::manual_seed(7);
  EXPECT_TRUE(at::equal(callOne("aten::rand", "", arguments), expected));
  EXPECT_FALSE(at::equal(callOne("aten::rand", "", arguments), expected));
}

TEST_F(AtenBridgeTest, IntegerResults) {
  at::Tensor x = at::randn({3, 4});
  call("aten::sym_size", "int", {arena(x), integer(1)});
  ASSERT_TRUE(status.ok()) << status.toString();
  ASSERT_EQ(raw.size(), 1u);
  EXPECT_FALSE(raw[0].is_tensor);
  EXPECT_EQ(raw[0].integer, 4);
}

TEST_F(AtenBridgeTest, RunsBelowAutogradAndAutocast) {
  at::Tensor x = at::randn({3, 4}).requires_grad_(), y = at::randn({4, 2});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::Tensor got = callOne("aten::mm", "", {owned(x), arena(y)});
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(got.scalar_type(), at::kFloat);
  EXPECT_FALSE(got.requires_grad());
  EXPECT_NO_THROW(got.requires_grad_());
}

TEST_F(AtenBridgeTest, MissingOperatorsAreNamed) {
  EXPECT_EQ(bridge->resolve("mylib::thing", "").status().message(),
            "mylib::thing: torch has no such operator; import the library that registers it first");
  Status overload = bridge->resolve("aten::t", "nothing").status();
  EXPECT_EQ(overload.code(), Code::not_found);
  EXPECT_EQ(overload.message(), "aten::t.nothing: torch has no such operator (overloads of aten::t: "
                                "default); import the library that registers it first");
}

TEST_F(AtenBridgeTest, MutatingOperatorsAreRefused) {
  for (auto [op, overload] : {std::pair("aten::add_", "Tensor"), std::pair("aten::add", "out")}) {
    Status refused = bridge->resolve(op, overload).status();
    EXPECT_EQ(refused.code(), Code::unsupported);
    EXPECT_NE(refused.message().find("writes to its argument"), std::string::npos) << refused.message();
  }
}

TEST_F(AtenBridgeTest, ArgumentsThatDoNotFitAreNamed) {
  at::Tensor x = at::randn({3});
  call("aten::cumsum", "", {arena(x), real(0.5)});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "aten::cumsum: argument 'dim' wants int, the plan has real");
  call("aten::cumsum", "", {arena(x)});
  EXPECT_EQ(status.message(), "aten::cumsum: argument 'dim' is missing");
  call("aten::cumsum", "", {none(), integer(0)});
  EXPECT_EQ(status.code(), Code::invalid_argument);
}

TEST_F(AtenBridgeTest, TorchsMessageIsKept) {
  at::Tensor x = at::randn({3, 4});
  call("aten::mm", "", {arena(x), arena(x)});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), "aten::mm: mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)");
}

TEST_F(AtenBridgeTest, ResultsThatPlansCannotHold) {
  at::Tensor x = at::randn({4});
  call("aten::fft_fft", "", {arena(x)});
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_EQ(status.message(), "aten::fft_fft: returned a tensor of ComplexFloat, which plans do not hold");
}

TEST_F(AtenBridgeTest, CustomOperators) {
  auto registration =
      std::make_unique<torch::Library>(torch::Library::DEF, "zefuse_test", std::nullopt, __FILE__, __LINE__);
  registration->def("double(Tensor x, str mode=\"a\") -> Tensor", [](const at::Tensor& x, std::string mode) {
    TORCH_CHECK_VALUE(mode == "a", "mode ", mode);
    return x * 2;
  });
  at::Tensor x = at::randn({3});
  EXPECT_TRUE(at::equal(callOne("zefuse_test::double", "", {arena(x)}), x * 2));
  call("zefuse_test::double", "", {arena(x), text(ArgumentKind::text, "b")});
  EXPECT_EQ(status.message(), "zefuse_test::double: mode b");

  auto resolved = bridge->resolve("zefuse_test::double", "");
  ASSERT_TRUE(resolved.ok());
  registration.reset();
  std::vector<AtenArgument> arguments = {arena(x)};
  EXPECT_EQ((*resolved)->call(arguments).status().code(), Code::not_found);
}

TEST_F(AtenBridgeTest, OneOperatorInManyThreads) {
  auto op = bridge->resolve("aten::add", "Tensor");
  ASSERT_TRUE(op.ok());
  at::Tensor x = at::randn({64}), y = at::randn({64}), expected = x + y;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::vector<AtenArgument> arguments = {arena(x), arena(y), integer(1)};
      for (int i = 0; i < 500; ++i) {
        auto result = (*op)->call(arguments);
        if (!result.ok() || !at::equal(*static_cast<at::Tensor*>((*result)[0].owner), expected))
          ++wrong;
        if (result.ok())
          bridge->release((*result)[0].owner);
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace zefuse
