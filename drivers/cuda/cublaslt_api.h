// The part of cuBLASLt that this driver calls, declared here as cuda_api.h's is: torch's CUDA wheels and NVIDIA's
// toolkit bring the library, which is looked for at the first product. Names, values and layouts are those of
// cublasLt.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "drivers/cuda/cuda_api.h"

namespace zefuse::cuda {

using cublasLtHandle_t = struct cublasLtContext*;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque*;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque*;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceOpaque*;

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cudaDataType_t : int { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t : int { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasOperation_t : int32_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t : uint32_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU = 32,  // by tanh
};
enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
};
enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
};
enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};
struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

// clang-format off
#define ZEFUSE_CUBLASLT_FUNCTIONS(F)                                                                                   \
  F(size_t, cublasLtGetVersion, (void))                                                                                \
  F(size_t, cublasLtGetCudartVersion, (void))                                                                          \
  F(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t* handle))                                                        \
  F(cublasStatus_t, cublasLtMatmulDescCreate,                                                                          \
    (cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale))                                   \
  F(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc))                                            \
  F(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                                                    \
    (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value, size_t bytes))            \
  F(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                                        \
    (cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t stride))            \
  F(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                                      \
  F(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                                                  \
    (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value, size_t bytes))       \
  F(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t* preference))                          \
  F(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))                          \
  F(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                                              \
    (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,         \
     size_t bytes))                                                                                                    \
  F(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                                                    \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,           \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,            \
     cublasLtMatmulHeuristicResult_t* results, int* found))                                                            \
  F(cublasStatus_t, cublasLtMatmul,                                                                                    \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a_data,                        \
     cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta, const void* c_data,     \
     cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,          \
     void* workspace, size_t workspace_bytes, CUstream stream))
// clang-format on

struct CublasLtApi {
#define ZEFUSE_CUBLASLT_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  ZEFUSE_CUBLASLT_FUNCTIONS(ZEFUSE_CUBLASLT_MEMBER)
#undef ZEFUSE_CUBLASLT_MEMBER
};

// Loaded once, after cuda(); lives as long as the process. Null: there is none that this machine can use, and `text`
// says why; else it is "cuBLASLt 13.1.0 (path)". ZEFUSE_CUBLASLT: "off", or the library's path. Thread-safe.
const CublasLtApi* findCublasLt(std::string& text);

const char* statusName(cublasStatus_t status);  // "CUBLAS_STATUS_NOT_SUPPORTED"

}  // namespace zefuse::cuda
