// The driver's products by cuBLASLt against a libcublasLt of the tests' own: layouts, orders, lists, errors, results.
#include <cmath>
#include <string>
#include <vector>

#include "common/ze_extension/product.h"
#include "tests/unit/cuda/cuda_driver_test.h"

namespace zefuse::test {
namespace {

using namespace zefuse::ze_extension;

class CudaProduct : public CudaDriver {
protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(CudaDriver::SetUp());
    find(create, product_create_name);
    find(destroy, product_destroy_name);
    find(append, append_product_name);
    find(library, product_library_name);
  }

  // Of contiguous matrices.
  static ProductDesc desc(int64_t rows, int64_t depth, int64_t columns, ElementType type = ElementType::f32) {
    return {1,
            rows,
            columns,
            depth,
            {type, 64, 0, depth, 1},
            {type, 64, 0, columns, 1},
            {type, 64, 0, columns, 1},
            1,
            Activation::none,
            false,
            false,
            0};
  }

  ProductCreate create = nullptr;
  ProductDestroy destroy = nullptr;
  AppendProduct append = nullptr;
  ProductLibrary library = nullptr;
};

float at(const float* from, const Matrix& matrix, int64_t batch, int64_t i, int64_t j) {
  return from[batch * matrix.batch_stride + i * matrix.row_stride + j * matrix.column_stride];
}

TEST_F(CudaProduct, EveryLayoutGivesTheSameProduct) {
  const int64_t rows = 3, depth = 5, columns = 4, batches = 2;
  float *a = hostMemory(200), *b = hostMemory(200), *out = hostMemory(200), *bias = hostMemory(8);
  for (int i = 0; i < 200; ++i)
    a[i] = float(i % 7) - 3, b[i] = float(i % 5) - 2;
  for (int i = 0; i < 8; ++i)
    bias[i] = float(i) / 4 - 1;
  ze_command_list_handle_t list = immediate();
  for (bool a_transposed : {false, true})
    for (bool b_transposed : {false, true})
      for (Activation activation : {Activation::none, Activation::relu, Activation::gelu_tanh})
        for (bool biased : {false, true}) {
          ProductDesc wanted = desc(rows, depth, columns);
          wanted.batches = batches;
          wanted.alpha = 0.5;
          wanted.activation = activation;
          wanted.bias = biased;
          wanted.a = {ElementType::f32, 64, 50, a_transposed ? 1 : 9, a_transposed ? 6 : 1};
          wanted.b = {ElementType::f32, 64, 60, b_transposed ? 1 : 8, b_transposed ? 7 : 1};
          wanted.out = {ElementType::f32, 64, 40, 10, 1};
          for (int i = 0; i < 200; ++i)
            out[i] = -77;
          ProductHandle* product = nullptr;
          size_t workspace = 1;
          ZE_OK(create(device, &wanted, &product, &workspace));
          EXPECT_EQ(workspace, 0u);
          const ProductOperands operands{a, b, biased ? bias : nullptr, out, nullptr};
          ZE_OK(append(list, product, &operands, nullptr, 0, nullptr));
          happened();
          for (int64_t batch = 0; batch < batches; ++batch)
            for (int64_t i = 0; i < rows; ++i)
              for (int64_t j = 0; j < 10; ++j) {
                double sum = 0;
                for (int64_t k = 0; k < depth; ++k)
                  sum += double(at(a, wanted.a, batch, i, k)) * at(b, wanted.b, batch, k, j);
                sum = 0.5 * sum + (biased ? bias[j % 8] : 0);
                if (activation == Activation::relu)
                  sum = std::max(sum, 0.0);
                if (activation == Activation::gelu_tanh)
                  sum *= 0.5 * (1 + std::tanh(0.7978845608 * (sum + 0.044715 * sum * sum * sum)));
                EXPECT_NEAR(at(out, wanted.out, batch, i, j), j < columns ? sum : -77, 1e-5)
                    << a_transposed << b_transposed << int(activation) << biased << " at " << i << " " << j;
              }
          ZE_OK(destroy(product));
        }
  zeCommandListDestroy(list);
}

TEST_F(CudaProduct, TheLibraryIsToldWhatIsKnown) {
  ProductDesc wanted = desc(300, 200, 100, ElementType::bf16);
  wanted.b = {ElementType::bf16, 16, 0, 1, 200};
  wanted.a.alignment = 32;
  wanted.workspace_bytes = 4096;
  ProductHandle* product = nullptr;
  size_t workspace = 0;
  ZE_OK(create(device, &wanted, &product, &workspace));
  EXPECT_EQ(workspace, 2048u);
  float* x = hostMemory(1 << 16);
  ze_command_list_handle_t list = immediate();
  ProductOperands operands{x, x, nullptr, x, nullptr};
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_POINTER, append(list, product, &operands, nullptr, 0, nullptr));
  operands.workspace = x;
  ZE_OK(append(list, product, &operands, nullptr, 0, nullptr));
  EXPECT_EQ(happened(),
            "product 200x100/200T by 200x300/200 to 100x300/100 epilogue 1 compute 68 type 14 aligned 16 32 64 64 "
            "workspace 2048\n");
  ZE_OK(destroy(product));
  // TF32 where it is allowed, and of f32 alone.
  fake<void (*)()>("fake_cuda_clear")();
  wanted = desc(8, 8, 8);
  wanted.tf32 = true;
  ZE_OK(create(device, &wanted, &product, &workspace));
  ZE_OK(append(list, product, &operands, nullptr, 0, nullptr));
  EXPECT_NE(happened().find("compute 77 type 0"), std::string::npos) << happened();
  ZE_OK(destroy(product));
  zeCommandListDestroy(list);
}

TEST_F(CudaProduct, AGraphHoldsItAndKeepsIt) {
  ze_command_list_desc_t list_desc = {};
  list_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC;
  ze_command_queue_desc_t queue_desc = {};
  queue_desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  queue_desc.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
  ze_command_list_handle_t list;
  ze_command_queue_handle_t queue;
  ZE_OK(zeCommandListCreate(context, device, &list_desc, &list));
  ZE_OK(zeCommandQueueCreate(context, device, &queue_desc, &queue));
  float* x = hostMemory(64);
  for (int i = 0; i < 64; ++i)
    x[i] = 1;
  const ProductDesc wanted = desc(2, 3, 4);
  ProductHandle* product = nullptr;
  size_t workspace = 0;
  ZE_OK(create(device, &wanted, &product, &workspace));
  const ProductOperands operands{x, x + 16, nullptr, x + 32, nullptr};
  const uint32_t pattern = 0;
  ZE_OK(zeCommandListAppendMemoryFill(list, x + 32, &pattern, sizeof pattern, 64, nullptr, 0, nullptr));
  ZE_OK(append(list, product, &operands, nullptr, 0, nullptr));
  ZE_OK(destroy(product));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, append(list, product, &operands, nullptr, 0, nullptr));
  ZE_OK(zeCommandListClose(list));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, append(list, product, &operands, nullptr, 0, nullptr));
  for (int call = 0; call < 2; ++call) {
    x[32] = 1;
    ZE_OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, nullptr));
    ZE_OK(zeCommandQueueSynchronize(queue, UINT64_MAX));
    EXPECT_EQ(x[32], 3);
  }
  EXPECT_EQ(happened().find("graph of 2\ngraph launch\nfill 64\nproduct 4x3/4 by 3x2/3 to 4x2/4"), 0u) << happened();
  zeCommandListDestroy(list);
  zeCommandQueueDestroy(queue);
}

TEST_F(CudaProduct, WhatIsNotThereSaysWhy) {
  ProductHandle* product = nullptr;
  size_t workspace = 0;
  ProductDesc wanted = desc(8, 8, 8, ElementType::f16);
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, create(device, &wanted, &product, &workspace));
  EXPECT_EQ(lastError(),
            "zefuseProductCreate: cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED (15); product "
            "of 8 x 8 and 8 x 8");
  EXPECT_EQ(product, nullptr);
  wanted = desc(8, 8, 8);
  wanted.a.row_stride = 16;
  wanted.a.column_stride = 2;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, create(device, &wanted, &product, &workspace));
  EXPECT_EQ(lastError(), "zefuseProductCreate: the first operand of 8 x 8 has strides 16 and 2");
  wanted = desc(8, 8, 8);
  wanted.b.row_stride = 0;  // every row the same one
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, create(device, &wanted, &product, &workspace));
  wanted = desc(8, 0, 8);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_SIZE, create(device, &wanted, &product, &workspace));
  wanted = desc(8, 8, 8);
  wanted.b.type = ElementType::bf16;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, create(device, &wanted, &product, &workspace));
  wanted = desc(8, 8, 8);
  wanted.out = {ElementType::f32, 64, 0, 1, 8};
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, create(device, &wanted, &product, &workspace));
  EXPECT_EQ(lastError(), "zefuseProductCreate: the result's rows are not contiguous");
  const char* text = nullptr;
  EXPECT_TRUE(library(&text));
  EXPECT_EQ(std::string(text).find("cuBLASLt 13.1.2 ("), 0u) << text;
}

TEST_F(CudaProduct, AFailureOfTheLibraryIsTold) {
  const ProductDesc wanted = desc(2, 2, 2);
  ProductHandle* product = nullptr;
  size_t workspace = 0;
  ZE_OK(create(device, &wanted, &product, &workspace));
  float* x = hostMemory(64);
  const ProductOperands operands{x, x, nullptr, x, nullptr};
  ze_command_list_handle_t list = immediate();
  setenv("FAKE_CUBLASLT_FAILS", "1", 1);
  EXPECT_EQ(ZE_RESULT_ERROR_UNKNOWN, append(list, product, &operands, nullptr, 0, nullptr));
  unsetenv("FAKE_CUBLASLT_FAILS");
  EXPECT_EQ(lastError(),
            "zefuseCommandListAppendProduct: cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED (13); product of "
            "2 x 2 and 2 x 2");
  ZE_OK(append(list, product, &operands, nullptr, 0, nullptr));
  ZE_OK(destroy(product));
  zeCommandListDestroy(list);
}

// With ZEFUSE_CUBLASLT as the test's name says.
class NoCudaProduct : public CudaProduct {
protected:
  void expectNone(const std::string& reason) {
    const ProductDesc wanted = desc(2, 2, 2);
    ProductHandle* product = nullptr;
    size_t workspace = 0;
    EXPECT_EQ(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, create(device, &wanted, &product, &workspace));
    EXPECT_NE(lastError().find(reason), std::string::npos) << lastError();
    const char* text = nullptr;
    EXPECT_FALSE(library(&text));
    EXPECT_NE(std::string(text).find(reason), std::string::npos) << text;
  }
};
TEST_F(NoCudaProduct, Off) { expectNone("ZEFUSE_CUBLASLT turns it off"); }
TEST_F(NoCudaProduct, Missing) { expectNone("ZEFUSE_CUBLASLT: libnone.so: cannot open"); }
TEST_F(NoCudaProduct, Newer) { expectNone("is for CUDA 14, and the driver has CUDA 13.0"); }
TEST_F(NoCudaProduct, Another) { expectNone("has no cublasLtMatmul"); }

}  // namespace
}  // namespace zefuse::test
