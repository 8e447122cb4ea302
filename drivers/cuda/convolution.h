// Convolutions by cuDNN: an extension of ours (common/ze_extension/convolution.h).
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/ze_extension/convolution.h"
#include "drivers/cuda/cudnn_api.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/level_zero.h"

namespace zefuse::cuda {

// One of the library's descriptors, destroyed with its owner. Its functions answer the library's status. Move-only.
class CudnnDescriptor {
public:
  explicit CudnnDescriptor(const CudnnApi& library) : library_(&library) {}
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : library_(other.library_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~CudnnDescriptor();

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  cudnnStatus_t create(cudnnBackendDescriptorType_t type);
  cudnnStatus_t finalize() { return library_->cudnnBackendFinalize(descriptor_); }
  template <typename T>
  cudnnStatus_t set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return library_->cudnnBackendSetAttribute(descriptor_, name, type, 1, &value);
  }
  template <typename T>
  cudnnStatus_t set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values, size_t count) {
    return library_->cudnnBackendSetAttribute(descriptor_, name, type, int64_t(count), values);
  }
  template <typename T>
  cudnnStatus_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::vector<T>& values) const {
    int64_t count = 0;
    const cudnnStatus_t status =
        library_->cudnnBackendGetAttribute(descriptor_, name, type, int64_t(values.size()), &count, values.data());
    values.resize(status ? 0 : std::min(values.size(), size_t(count)));
    return status;
  }

private:
  const CudnnApi* library_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

struct CudnnHandle;

// A convolution with the library's plan for it. Thread-safe.
struct Convolution : Object<Convolution> {
  static constexpr uint32_t kMagic = magicOf("ZCNV");
  Device& device;
  const CudnnApi& library;
  const ze_extension::ConvolutionDesc desc;

  Convolution(Device& device, const CudnnApi& library, const ze_extension::ConvolutionDesc& desc)
      : device(device), library(library), desc(desc), plan_(library) {}

  // SUCCESS, or why not, through refuse(). The device is open and its context the calling thread's.
  ze_result_t prepare(const char* call);
  // Queues it. The device's context is the calling thread's.
  ze_result_t run(const char* call, const ze_extension::ConvolutionOperands& operands, CUstream stream);
  size_t workspaceBytes() const { return workspace_bytes_; }
  const char* choice() const { return choice_.c_str(); }

private:
  struct Graph;
  ze_result_t describe(const char* call, Graph& graph) const;
  ze_result_t choose(const char* call, const Graph& graph);
  bool take(CudnnDescriptor& config, std::string& why);
  ze_result_t fail(const char* call, const char* what, cudnnStatus_t status) const;

  CudnnHandle* handle_ = nullptr;
  CudnnDescriptor plan_;
  size_t workspace_bytes_ = 0;
  std::string choice_;
};

ze_result_t convolutionCreate(ze_device_handle_t hDevice, const ze_extension::ConvolutionDesc* desc,
                              ze_extension::ConvolutionHandle** phConvolution, size_t* pWorkspaceBytes);
ze_result_t convolutionDestroy(ze_extension::ConvolutionHandle* hConvolution);
bool convolutionLibrary(const char** pText);
const char* convolutionChoice(ze_extension::ConvolutionHandle* hConvolution);
// append.cpp
ze_result_t commandListAppendConvolution(ze_command_list_handle_t hCommandList,
                                         ze_extension::ConvolutionHandle* hConvolution,
                                         const ze_extension::ConvolutionOperands* pOperands,
                                         ze_event_handle_t hSignalEvent, uint32_t numWaitEvents,
                                         ze_event_handle_t* phWaitEvents);

}  // namespace zefuse::cuda
