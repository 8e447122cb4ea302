// The driver's convolutions by cuDNN against a libcudnn of the tests' own: layouts, which engine is taken, lists,
// errors.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/ze_extension/convolution.h"
#include "tests/unit/cuda/cuda_driver_test.h"

namespace zefuse::test {
namespace {

using namespace zefuse::ze_extension;
using Sizes = std::vector<int64_t>;

struct Form {
  Sizes image, weight, strides, dilations, before, after;
};

int64_t count(const ConvolutionTensor& tensor, uint32_t rank) {
  int64_t last = 0;
  for (uint32_t i = 0; i < rank; ++i)
    last += (tensor.sizes[i] - 1) * tensor.strides[i];
  return last + 1;
}

class CudaConvolution : public CudaDriver {
protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(CudaDriver::SetUp());
    find(create, convolution_create_name);
    find(destroy, convolution_destroy_name);
    find(append, append_convolution_name);
    find(library, convolution_library_name);
    find(choice, convolution_choice_name);
  }

  float* numbers(int64_t elements, int of = 7) {
    float* made = hostMemory(size_t(elements));
    for (int64_t i = 0; i < elements; ++i)
      made[i] = float((i * 5 + of) % of) - float(of / 2);
    return made;
  }
  static ConvolutionTensor tensor(const Sizes& sizes, bool channels_last) {
    ConvolutionTensor made{16, {}, {}};
    std::vector<size_t> order{0};
    for (size_t i = channels_last ? 2 : 1; i < sizes.size(); ++i)
      order.push_back(i);
    if (channels_last)
      order.push_back(1);
    int64_t step = 1;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      made.sizes[*at] = sizes[*at];
      made.strides[*at] = sizes[*at] == 1 ? 77 : step;  // of a single element it says nothing
      step *= sizes[*at];
    }
    return made;
  }
  static ConvolutionDesc desc(const Form& form, ConvolutionKind kind, bool channels_last,
                              ElementType type = ElementType::f32) {
    ConvolutionDesc made{};
    made.kind = kind;
    made.type = type;
    made.spatial = uint32_t(form.image.size()) - 2;
    Sizes result{form.image[0], form.weight[0]};
    for (uint32_t i = 0; i < made.spatial; ++i) {
      made.strides[i] = form.strides[i];
      made.dilations[i] = form.dilations[i];
      made.padding_before[i] = form.before[i];
      made.padding_after[i] = form.after[i];
      const int64_t reach = form.dilations[i] * (form.weight[i + 2] - 1) + 1;
      result.push_back((form.image[i + 2] + form.before[i] + form.after[i] - reach) / form.strides[i] + 1);
    }
    made.image = tensor(form.image, channels_last);
    made.weight = tensor(form.weight, channels_last);
    made.result = tensor(result, channels_last);
    made.workspace_bytes = 4096;
    return made;
  }
  ConvolutionHandle* made(const ConvolutionDesc& wanted) {
    ConvolutionHandle* handle = nullptr;
    size_t workspace = 0;
    EXPECT_EQ(ZE_RESULT_SUCCESS, create(device, &wanted, &handle, &workspace)) << lastError();
    EXPECT_EQ(workspace, 1024u);
    return handle;
  }

  ConvolutionCreate create = nullptr;
  ConvolutionDestroy destroy = nullptr;
  AppendConvolution append = nullptr;
  ConvolutionLibrary library = nullptr;
  ConvolutionChoice choice = nullptr;
};

void forEach(const Sizes& sizes, const std::function<void(const Sizes&)>& each, Sizes index = {}) {
  if (index.size() == sizes.size())
    return each(index);
  index.push_back(0);
  for (; index.back() < sizes[index.size() - 1]; ++index.back())
    forEach(sizes, each, index);
}

// Every image's element with the weight's and the result's that it meets: offsets of the three.
void products(const ConvolutionDesc& of, const std::function<void(int64_t, int64_t, int64_t)>& each) {
  const uint32_t rank = of.spatial + 2;
  auto at = [&](const ConvolutionTensor& tensor, const Sizes& index) {
    int64_t offset = 0;
    for (uint32_t i = 0; i < rank; ++i)
      offset += index[i] * tensor.strides[i];
    return offset;
  };
  const int64_t in = of.weight.sizes[1], out = of.weight.sizes[0] * in / of.image.sizes[1];
  forEach(Sizes(of.result.sizes, of.result.sizes + rank), [&](const Sizes& y) {
    forEach(Sizes(of.weight.sizes + 1, of.weight.sizes + rank), [&](const Sizes& tap) {
      Sizes x{y[0], y[1] / out * in + tap[0]}, w{y[1]};
      w.insert(w.end(), tap.begin(), tap.end());
      for (uint32_t i = 0; i < of.spatial; ++i) {
        x.push_back(y[i + 2] * of.strides[i] + tap[i + 1] * of.dilations[i] - of.padding_before[i]);
        if (x.back() < 0 || x.back() >= of.image.sizes[i + 2])
          return;
      }
      each(at(of.image, x), at(of.weight, w), at(of.result, y));
    });
  });
}

const Form kForms[] = {
    {{2, 3, 7, 6}, {4, 3, 3, 2}, {2, 1}, {1, 2}, {1, 0}, {2, 1}},
    {{2, 4, 5, 5}, {6, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},  // two groups
    {{3, 4, 9}, {2, 4, 3}, {2}, {1}, {1}, {1}},
    {{1, 2, 4, 3, 5}, {3, 2, 2, 1, 3}, {1, 1, 2}, {1, 1, 1}, {0, 0, 1}, {1, 0, 1}},
    {{2, 5, 1, 1}, {3, 5, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
};

TEST_F(CudaConvolution, EveryFormGivesItsNumbers) {
  ze_command_list_handle_t list = immediate();
  float* workspace = hostMemory(256);
  for (const Form& form : kForms)
    for (bool channels_last : {false, true})
      for (ConvolutionKind kind : {ConvolutionKind::forward, ConvolutionKind::by_data, ConvolutionKind::by_weight}) {
        const ConvolutionDesc wanted = desc(form, kind, channels_last);
        const uint32_t rank = wanted.spatial + 2;
        float* tensors[] = {numbers(count(wanted.image, rank), 7), numbers(count(wanted.weight, rank), 5),
                            numbers(count(wanted.result, rank), 9)};
        const int written = kind == ConvolutionKind::forward ? 2 : kind == ConvolutionKind::by_data ? 0 : 1;
        const ConvolutionTensor* of[] = {&wanted.image, &wanted.weight, &wanted.result};
        std::vector<float> sums(size_t(count(*of[written], rank)));
        products(wanted, [&](int64_t x, int64_t w, int64_t y) {
          const int64_t at[] = {x, w, y};
          float product = 1;
          for (int i = 0; i < 3; ++i)
            product *= i == written ? 1 : tensors[i][at[i]];
          sums[size_t(at[written])] += product;
        });
        ConvolutionHandle* convolution = made(wanted);
        const ConvolutionOperands operands{tensors[0], tensors[1], tensors[2], nullptr, nullptr, workspace};
        ZE_OK(append(list, convolution, &operands, nullptr, 0, nullptr));
        happened();
        for (size_t i = 0; i < sums.size(); ++i)
          ASSERT_EQ(tensors[written][i], sums[i]) << "kind " << int(kind) << " rank " << rank << " at " << i;
        ZE_OK(destroy(convolution));
      }
  zeCommandListDestroy(list);
}

TEST_F(CudaConvolution, ABiasAResidualAndReluAreOfTheSameCall) {
  ze_command_list_handle_t list = immediate();
  float *workspace = hostMemory(256), *bias = numbers(4, 3);
  for (bool residual : {false, true})
    for (bool relu : {false, true}) {
      ConvolutionDesc wanted = desc(kForms[0], ConvolutionKind::forward, true);
      wanted.bias = true;
      wanted.residual = residual;
      wanted.activation = relu ? Activation::relu : Activation::none;
      float *image = numbers(count(wanted.image, 4)), *weight = numbers(count(wanted.weight, 4), 5),
            *result = numbers(count(wanted.result, 4)), *added = numbers(count(wanted.result, 4), 11);
      std::vector<float> sums(size_t(count(wanted.result, 4)));
      products(wanted, [&](int64_t x, int64_t w, int64_t y) { sums[size_t(y)] += image[x] * weight[w]; });
      ConvolutionHandle* convolution = made(wanted);
      ConvolutionOperands operands{image, weight, result, nullptr, residual ? added : nullptr, workspace};
      EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_POINTER, append(list, convolution, &operands, nullptr, 0, nullptr));
      operands.bias = bias;
      ZE_OK(append(list, convolution, &operands, nullptr, 0, nullptr));
      happened();
      for (size_t i = 0; i < sums.size(); ++i) {
        const float sum = sums[i] + bias[i % 4] + (residual ? added[i] : 0);
        ASSERT_EQ(result[i], relu ? std::max(sum, 0.0f) : sum) << residual << relu << " at " << i;
      }
      ZE_OK(destroy(convolution));
    }
  zeCommandListDestroy(list);
}

TEST_F(CudaConvolution, TheLibraryIsToldWhatIsKnown) {
  ze_command_list_handle_t list = immediate();
  float* x = hostMemory(1 << 16);
  const ConvolutionOperands operands{x, x, x, nullptr, nullptr, x};
  auto told = [&](const ConvolutionDesc& wanted) {
    fake<void (*)()>("fake_cuda_clear")();
    ConvolutionHandle* convolution = made(wanted);
    EXPECT_EQ(ZE_RESULT_SUCCESS, append(list, convolution, &operands, nullptr, 0, nullptr)) << lastError();
    const std::string said = std::string(choice(convolution)) + ": " + happened();
    EXPECT_EQ(ZE_RESULT_SUCCESS, destroy(convolution));
    return said;
  };
  // What rounds operands of f32, has other bits every time, sums in less, compiles or needs much memory is passed over.
  const Form square{{2, 16, 8, 8}, {8, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  EXPECT_EQ(told(desc(square, ConvolutionKind::forward, true)),
            "engine 5: convolution of 2x16x8x8/1024,1,128,16 by 8x16x3x3/144,1,48,16 to 2x8x8x8/512,1,64,8 type 0 "
            "aligned 16 engine 5\n");
  ConvolutionDesc rounded = desc(square, ConvolutionKind::forward, true);
  rounded.tf32 = true;
  EXPECT_NE(told(rounded).find("engine 4, tensor cores: "), std::string::npos);
  EXPECT_NE(told(desc(square, ConvolutionKind::by_data, true, ElementType::bf16)).find("type 9 aligned 16 engine 4\n"),
            std::string::npos);
  // Of single elements the strides are those of the layout that the others have; a line is an image of one row.
  const Form pixels{{2, 16, 8, 8}, {8, 16, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}};
  EXPECT_NE(told(desc(pixels, ConvolutionKind::forward, true)).find("by 8x16x1x1/16,1,16,16 to"), std::string::npos);
  EXPECT_NE(told(desc(pixels, ConvolutionKind::forward, false)).find("by 8x16x1x1/16,1,1,1 to"), std::string::npos);
  const Form line{{2, 16, 8}, {8, 16, 3}, {1}, {1}, {1}, {1}};
  EXPECT_NE(told(desc(line, ConvolutionKind::forward, true)).find("of 2x16x1x8/128,1,128,16 by 8x16x1x3/48,1,48,16 to"),
            std::string::npos);
  zeCommandListDestroy(list);
}

TEST_F(CudaConvolution, AGraphHoldsItAndKeepsIt) {
  ze_command_list_desc_t list_desc = {};
  list_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
  ze_command_queue_desc_t queue_desc = {};
  queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  queue_desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_list_handle_t list;
  ze_command_queue_handle_t queue;
  ZE_OK(zeCommandListCreate(context, device, &list_desc, &list));
  ZE_OK(zeCommandQueueCreate(context, device, &queue_desc, &queue));
  const ConvolutionDesc wanted = desc(kForms[4], ConvolutionKind::forward, true);
  float *image = numbers(10, 3), *weight = numbers(15, 3), *result = hostMemory(6), *workspace = hostMemory(256);
  ConvolutionHandle* convolution = made(wanted);
  ConvolutionOperands operands{image, weight, result, nullptr, nullptr, nullptr};
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_POINTER, append(list, convolution, &operands, nullptr, 0, nullptr));
  operands.workspace = workspace;
  const uint32_t pattern = 0;
  ZE_OK(zeCommandListAppendMemoryFill(list, result, &pattern, sizeof pattern, 24, nullptr, 0, nullptr));
  ZE_OK(append(list, convolution, &operands, nullptr, 0, nullptr));
  ZE_OK(destroy(convolution));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, append(list, convolution, &operands, nullptr, 0, nullptr));
  ZE_OK(zeCommandListClose(list));
  float sum = 0;
  for (int i = 0; i < 5; ++i)
    sum += image[i] * weight[i];
  for (int call = 0; call < 2; ++call) {
    result[0] = -77;
    ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
    ZE_OK(zeCommandQueueSynchronize(queue, UINT64_MAX));
    EXPECT_EQ(result[0], sum);
  }
  EXPECT_EQ(happened().find("graph of 2\ngraph launch\nfill 24\nconvolution of 2x5x1x1/"), 0u) << happened();
  zeCommandListDestroy(list);
  zeCommandQueueDestroy(queue);
}

TEST_F(CudaConvolution, WhatIsNotThereSaysWhy) {
  ConvolutionHandle* convolution = nullptr;
  size_t workspace = 0;
  auto refused = [&](const ConvolutionDesc& wanted, ze_result_t with) {
    EXPECT_EQ(with, create(device, &wanted, &convolution, &workspace));
    EXPECT_EQ(convolution, nullptr);
    return lastError();
  };
  const ConvolutionDesc good = desc(kForms[0], ConvolutionKind::forward, true);
  ConvolutionDesc wanted = good;
  wanted.type = ElementType::f16;
  EXPECT_EQ(refused(wanted, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE),
            "zefuseConvolutionCreate: no engine for the convolution of 2x3x7x6/126,1,18,3 by 4x3x3x2/18,1,6,3 to "
            "2x4x4x5/80,1,20,4 (CUDNN_STATUS_FAKE; CUDNN_STATUS_FAKE)");
  wanted = good;
  wanted.activation = Activation::relu;
  refused(wanted, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  wanted = good;
  wanted.workspace_bytes = 16;
  EXPECT_NE(refused(wanted, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE).find("engine 5: needs 1024 bytes"), std::string::npos);
  wanted = good;
  wanted.padding_after[0] = 9;
  EXPECT_NE(refused(wanted, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE).find("the operation: CUDNN_STATUS_FAKE (2000): as"),
            std::string::npos);
  wanted = good;
  wanted.image.strides[3] = 0;  // every column the same one
  refused(wanted, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  wanted = desc(kForms[0], ConvolutionKind::by_data, true);
  wanted.bias = true;
  refused(wanted, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
  wanted = good;
  wanted.spatial = 4;
  refused(wanted, ZE_RESULT_ERROR_INVALID_SIZE);
  wanted = good;
  wanted.activation = Activation::gelu_tanh;
  refused(wanted, ZE_RESULT_ERROR_INVALID_ENUMERATION);
  const char* text = nullptr;
  EXPECT_TRUE(library(&text));
  EXPECT_EQ(std::string(text).find("cuDNN 9.10.2 ("), 0u) << text;
}

TEST_F(CudaConvolution, AFailureOfTheLibraryIsTold) {
  ConvolutionHandle* convolution = made(desc(kForms[4], ConvolutionKind::forward, true));
  float* x = hostMemory(1024);
  const ConvolutionOperands operands{x, x, x, nullptr, nullptr, x};
  ze_command_list_handle_t list = immediate();
  setenv("FAKE_CUDNN_FAILS", "1", 1);
  EXPECT_EQ(ZE_RESULT_ERROR_UNKNOWN, append(list, convolution, &operands, nullptr, 0, nullptr));
  unsetenv("FAKE_CUDNN_FAILS");
  EXPECT_EQ(
      lastError().find("zefuseCommandListAppendConvolution: cudnnBackendExecute: CUDNN_STATUS_FAKE (5000): as the"), 0u)
      << lastError();
  ZE_OK(append(list, convolution, &operands, nullptr, 0, nullptr));
  ZE_OK(destroy(convolution));
  zeCommandListDestroy(list);
}

// With ZEFUSE_CUDNN as the test's name says.
class NoCudaConvolution : public CudaConvolution {
protected:
  void expectNone(const std::string& reason) {
    const ConvolutionDesc wanted = desc(kForms[0], ConvolutionKind::forward, true);
    ConvolutionHandle* convolution = nullptr;
    size_t workspace = 0;
    EXPECT_EQ(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, create(device, &wanted, &convolution, &workspace));
    EXPECT_NE(lastError().find(reason), std::string::npos) << lastError();
  }
  void expectNoLibrary(const std::string& reason) {
    expectNone(reason);
    const char* text = nullptr;
    EXPECT_FALSE(library(&text));
    EXPECT_NE(std::string(text).find(reason), std::string::npos) << text;
  }
};
TEST_F(NoCudaConvolution, Off) { expectNoLibrary("ZEFUSE_CUDNN turns it off"); }
TEST_F(NoCudaConvolution, Missing) { expectNoLibrary("ZEFUSE_CUDNN: libnone.so: cannot open"); }
TEST_F(NoCudaConvolution, Older) { expectNoLibrary("is cuDNN 8: 9.0 is the least"); }
TEST_F(NoCudaConvolution, Another) { expectNoLibrary("has no cudnnBackendExecute"); }
TEST_F(NoCudaConvolution, InPart) { expectNone("cudnnCreate: CUDNN_STATUS_FAKE (1008): as the fake says"); }

}  // namespace
}  // namespace zefuse::test
