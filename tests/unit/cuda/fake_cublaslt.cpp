// A libcublasLt for tests of the driver on a machine without a GPU: products in f32 are computed when their stream
// comes to them (fake_cuda.cpp), and what was asked for is in that one's log. It has no algorithm for f16.
#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "drivers/cuda/cublaslt_api.h"

using namespace zefuse::cuda;

extern "C" void fake_cuda_submit(CUstream stream, const char* what, const std::function<void()>* run);

namespace zefuse::cuda {
struct cublasLtContext {};
struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  int32_t transposed[2] = {0, 0};
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const float* bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType_t type;
  int64_t rows, columns, stride;
  int32_t batches = 1;
  int64_t batch_stride = 0;
};
struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
}  // namespace zefuse::cuda

namespace {
std::string text(const cublasLtMatrixLayoutOpaque& of) {
  std::string said = std::to_string(of.rows) + "x" + std::to_string(of.columns) + "/" + std::to_string(of.stride);
  return of.batches == 1 ? said : said + " " + std::to_string(of.batches) + "+" + std::to_string(of.batch_stride);
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT size_t cublasLtGetVersion() { return 130102; }
EXPORT size_t cublasLtGetCudartVersion() {
  const char* named = std::getenv("FAKE_CUBLASLT_CUDA");
  return named ? size_t(std::atoi(named)) : 13000;
}
EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return *handle = new cublasLtContext, CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                               cudaDataType_t) {
  return *desc = new cublasLtMatmulDescOpaque{compute}, CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return delete desc, CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                     cublasLtMatmulDescAttributes_t attribute, const void* value,
                                                     size_t bytes) {
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA: std::memcpy(&desc->transposed[0], value, bytes); break;
  case CUBLASLT_MATMUL_DESC_TRANSB: std::memcpy(&desc->transposed[1], value, bytes); break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE: std::memcpy(&desc->epilogue, value, bytes); break;
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: std::memcpy(&desc->bias, value, bytes); break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                                 uint64_t columns, int64_t stride) {
  *layout = new cublasLtMatrixLayoutOpaque{type, int64_t(rows), int64_t(columns), stride};
  return stride < int64_t(rows) ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete layout, CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                       size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    std::memcpy(&layout->batches, value, bytes);
  else
    std::memcpy(&layout->batch_stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return *preference = new cublasLtMatmulPreferenceOpaque, CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete preference, CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                           cublasLtMatmulPreferenceAttributes_t attribute,
                                                           const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    std::memcpy(&preference->workspace, value, bytes);
  else
    std::memcpy(&preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t a,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatmulPreference_t preference, int,
                                                     cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = a->type != CUDA_R_16F;
  *results = {};
  results->workspaceSize = size_t(preference->workspace) / 2;
  // The algorithm's words are the library's own: here the alignments that it may count on.
  for (int i = 0; i < 4; ++i)
    results->algo.data[i] = preference->alignments[i];
  return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a_data,
                                     cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b,
                                     const void*, const void*, cublasLtMatrixLayout_t, void* d_data,
                                     cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm, void*,
                                     size_t workspace, CUstream stream) {
  if (std::getenv("FAKE_CUBLASLT_FAILS"))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto o = *desc;
  const auto l = *a, r = *b, out = *d;
  const float scale = *static_cast<const float*>(alpha);
  std::string what = "product " + text(l) + (o.transposed[0] ? "T" : "") + " by " + text(r) +
                     (o.transposed[1] ? "T" : "") + " to " + text(out) + " epilogue " + std::to_string(o.epilogue) +
                     " compute " + std::to_string(o.compute) + " type " + std::to_string(l.type) + " aligned";
  for (int i = 0; i < 4; ++i)
    what += " " + std::to_string(algorithm->data[i]);
  what += " workspace " + std::to_string(workspace);
  const std::function<void()> run = [=] {
    if (l.type != CUDA_R_32F)
      return;
    const int64_t depth = o.transposed[0] ? l.rows : l.columns;
    for (int64_t batch = 0; batch < out.batches; ++batch) {
      const float* x = static_cast<const float*>(a_data) + batch * l.batch_stride;
      const float* y = static_cast<const float*>(b_data) + batch * r.batch_stride;
      float* to = static_cast<float*>(d_data) + batch * out.batch_stride;
      for (int64_t j = 0; j < out.columns; ++j)
        for (int64_t i = 0; i < out.rows; ++i) {
          float sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += (o.transposed[0] ? x[k + i * l.stride] : x[i + k * l.stride]) *
                   (o.transposed[1] ? y[j + k * r.stride] : y[k + j * r.stride]);
          sum = scale * sum + (o.epilogue & CUBLASLT_EPILOGUE_BIAS ? o.bias[i] : 0);
          if (o.epilogue & CUBLASLT_EPILOGUE_RELU)
            sum = std::max(sum, 0.0f);
          if (o.epilogue & CUBLASLT_EPILOGUE_GELU)
            sum *= 0.5f * (1 + std::tanh(0.7978845608f * (sum + 0.044715f * sum * sum * sum)));
          to[i + j * out.stride] = sum;
        }
    }
  };
  fake_cuda_submit(stream, what.c_str(), &run);
  return CUBLAS_STATUS_SUCCESS;
}
