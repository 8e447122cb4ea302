// A convolution's descriptor from its geometry, and its result beside its definition in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/primitives/convolution/convolution.h"
#include "runtime/primitives/core/team.h"
#include "tests/unit/primitives/reference.h"

namespace zefuse::primitives::testing {

using plan::ConvolutionKind;
using plan::DType;
using plan::PostOpKind;
using Dims = std::vector<int64_t>;

inline TensorDesc channelsLast(DType dtype, Dims sizes) {
  std::vector<size_t> order = {0};
  for (size_t d = 2; d < sizes.size(); ++d)
    order.push_back(d);
  order.push_back(1);
  return permuted(dtype, std::move(sizes), std::move(order));
}

struct Geometry {
  int64_t batch, in, out;  // channels
  Dims image, kernel, stride, padding, dilation;
  int64_t groups = 1;
  Dims output_padding = {};
};

// Of a forward or transposed convolution, or the gradient of the forward one's weight.
inline ConvolutionDesc describe(ConvolutionKind kind, const Geometry& g, DType dtype, bool channels_last) {
  auto image = [&](Dims sizes) { return channels_last ? channelsLast(dtype, sizes) : dense(dtype, sizes); };
  Dims in = {g.batch, g.in}, out = {g.batch, g.out};
  const bool transposed = kind == ConvolutionKind::transposed;
  Dims weight = transposed ? Dims{g.in, g.out / g.groups} : Dims{g.out, g.in / g.groups};
  for (size_t d = 0; d < g.image.size(); ++d) {
    const int64_t reach = g.dilation[d] * (g.kernel[d] - 1) + 1;
    in.push_back(g.image[d]);
    out.push_back(transposed ? (g.image[d] - 1) * g.stride[d] - 2 * g.padding[d] + reach +
                                   (g.output_padding.empty() ? 0 : g.output_padding[d])
                             : (g.image[d] + 2 * g.padding[d] - reach) / g.stride[d] + 1);
    weight.push_back(g.kernel[d]);
  }
  ConvolutionDesc desc;
  desc.kind = kind;
  desc.input = image(in);
  desc.weight = dense(dtype, weight);
  desc.out = image(out);
  if (kind == ConvolutionKind::weights)
    std::swap(desc.weight, desc.out);
  desc.stride = g.stride;
  desc.padding = g.padding;
  desc.dilation = g.dilation;
  desc.groups = g.groups;
  return desc;
}

inline bool next(Dims& index, const Dims& sizes) {
  for (size_t d = index.size(); d-- > 0;) {
    if (++index[d] < sizes[d])
      return true;
    index[d] = 0;
  }
  return false;
}

struct Trial {
  ConvolutionDesc desc;
  Tensor input, weight, out, bias;
  std::vector<Tensor> operands;
  std::string implementation;

  explicit Trial(const ConvolutionDesc& given, uint32_t seed = 1) : desc(given) {
    input = randomTensor(desc.input, seed);
    weight = randomTensor(desc.weight, seed + 1);
    out = randomTensor(desc.out, seed + 2);
    if (desc.bias)
      bias = randomTensor(*desc.bias, seed + 3);
    for (const PostOpDesc& op : desc.post_ops)
      operands.push_back(op.operand ? randomTensor(*op.operand, seed + 4) : Tensor());
  }

  void run() {
    auto convolution = Convolution::get(desc);
    ASSERT_TRUE(convolution.ok()) << convolution.status().toString();
    implementation = (*convolution)->implementation();
    AlignedBuffer packed((*convolution)->packedBytes()), scratch((*convolution)->scratchBytes());
    const void* b = weight.data();
    if ((*convolution)->packedBytes()) {
      Status status = (*convolution)->packB(b, packed.data);
      ASSERT_TRUE(status.ok()) << status.toString();
      b = packed.data;
    }
    std::vector<const void*> addresses;
    for (size_t i = 0; i < operands.size(); ++i)
      addresses.push_back(desc.post_ops[i].operand ? operands[i].data() : nullptr);
    Status status =
        (*convolution)->run({input.data(), b, desc.bias ? bias.data() : nullptr, out.data(), addresses, scratch.data});
    ASSERT_TRUE(status.ok()) << status.toString();
  }

  // Sums of products by their definition, in double precision: every pair of an input and an output place.
  std::vector<double> reference() const {
    const size_t spatial = desc.stride.size();
    const bool transposed = desc.kind == ConvolutionKind::transposed;
    const Tensor& image = desc.kind == ConvolutionKind::weights ? weight : transposed ? input : out;
    const TensorDesc& x = transposed ? desc.out : desc.input;  // the forward convolution's
    const TensorDesc& y = image.desc;
    const TensorDesc& w = desc.kind == ConvolutionKind::weights ? desc.out : desc.weight;
    const Dims& result = desc.out.sizes;
    auto position = [&](const Dims& index) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d)
        at = at * result[d] + index[d];
      return size_t(at);
    };
    int64_t count = 1;
    for (int64_t size : result)
      count *= size;
    std::vector<double> sums(size_t(count), 0.0);
    Dims at(w.sizes.size(), 0);  // in the weight
    do {
      const int64_t group = at[0] / (w.sizes[0] / desc.groups);
      Dims place(spatial + 1, 0), limits = {y.sizes[0]};
      limits.insert(limits.end(), y.sizes.begin() + 2, y.sizes.end());
      do {
        Dims yi = {place[0], at[0]}, xi = {place[0], group * w.sizes[1] + at[1]};
        bool inside = true;
        for (size_t d = 0; d < spatial; ++d) {
          yi.push_back(place[d + 1]);
          xi.push_back(place[d + 1] * desc.stride[d] - desc.padding[d] + at[d + 2] * desc.dilation[d]);
          inside &= xi.back() >= 0 && xi.back() < x.sizes[d + 2];
        }
        if (!inside)
          continue;
        switch (desc.kind) {
        case ConvolutionKind::forward: sums[position(yi)] += input.at(xi) * weight.at(at); break;
        case ConvolutionKind::transposed: sums[position(xi)] += input.at(yi) * weight.at(at); break;
        case ConvolutionKind::weights: sums[position(at)] += input.at(xi) * weight.at(yi); break;
        }
      } while (next(place, limits));
    } while (next(at, w.sizes));
    Dims index(result.size(), 0);
    do {
      double& value = sums[position(index)];
      if (desc.bias)
        value += bias.at({index[1]});
      for (size_t i = 0; i < desc.post_ops.size(); ++i)
        value = apply(desc.post_ops[i].kind, value, desc.post_ops[i].operand ? operands[i].broadcastAt(index) : 0);
    } while (next(index, result));
    return sums;
  }

  void expectCorrect() {
    run();
    if (::testing::Test::HasFatalFailure())
      return;
    std::vector<double> expected = reference();
    double scale = 1e-30, worst = 0;
    size_t at = 0;
    Dims index(desc.out.sizes.size(), 0);
    do {
      double wanted = expected[at++], made = out.at(index);
      scale = std::max(scale, std::abs(wanted));
      worst = std::isnan(made) ? std::numeric_limits<double>::infinity() : std::max(worst, std::abs(made - wanted));
    } while (next(index, desc.out.sizes));
    EXPECT_LE(worst / scale, desc.out.dtype == DType::bf16 ? 1.2e-2 : 2e-6) << toString(desc) << "\n" << implementation;
  }
};

// Each sum has one order, whatever the number of threads. Leaves maxThreads() at the last number tried.
inline void expectBitsOfAnyThreads(const ConvolutionDesc& desc) {
  std::vector<float> first;
  for (int threads : {1, 2, 3, 16}) {
    setMaxThreads(threads);
    Trial trial(desc);
    trial.run();
    if (first.empty())
      first = trial.out.wide;
    // NaN is equal to itself that way: it stands behind the result.
    EXPECT_EQ(std::memcmp(trial.out.wide.data(), first.data(), first.size() * sizeof(float)), 0) << threads;
  }
}

}  // namespace zefuse::primitives::testing
