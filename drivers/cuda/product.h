// Matrix products by cuBLASLt: an extension of ours (common/ze_extension/product.h).
#pragma once

#include <mutex>

#include "common/ze_extension/product.h"
#include "drivers/cuda/cublaslt_api.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/level_zero.h"

namespace zefuse::cuda {

// A product with the library's descriptors and the algorithm that it chose. Thread-safe.
struct Product : Object<Product> {
  static constexpr uint32_t kMagic = magicOf("ZPRD");
  Device& device;
  const CublasLtApi& library;
  const ze_extension::ProductDesc desc;

  Product(Device& device, const CublasLtApi& library, const ze_extension::ProductDesc& desc)
      : device(device), library(library), desc(desc) {}
  ~Product();

  // SUCCESS, or why not, through refuse(). The device is open and its context the calling thread's.
  ze_result_t prepare(const char* call);
  // Queues it. The device's context is the calling thread's.
  ze_result_t run(const char* call, const ze_extension::ProductOperands& operands, CUstream stream);
  size_t workspaceBytes() const { return chosen_.workspaceSize; }

private:
  ze_result_t describe(const char* call, const char* which, const ze_extension::Matrix& matrix, int64_t rows,
                       int64_t columns, cublasLtMatrixLayout_t& layout, cublasOperation_t& operation) const;
  ze_result_t fail(const char* call, const char* function, cublasStatus_t status) const;

  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;  // guards the bias's address in `operation_`
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, out_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

ze_result_t productCreate(ze_device_handle_t hDevice, const ze_extension::ProductDesc* desc,
                          ze_extension::ProductHandle** phProduct, size_t* pWorkspaceBytes);
ze_result_t productDestroy(ze_extension::ProductHandle* hProduct);
bool productLibrary(const char** pText);
// append.cpp
ze_result_t commandListAppendProduct(ze_command_list_handle_t hCommandList, ze_extension::ProductHandle* hProduct,
                                     const ze_extension::ProductOperands* pOperands, ze_event_handle_t hSignalEvent,
                                     uint32_t numWaitEvents, ze_event_handle_t* phWaitEvents);

}  // namespace zefuse::cuda
