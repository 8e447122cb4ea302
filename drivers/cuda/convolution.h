// Convolutions by cuDNN: an extension of ours (common/ze_extension/convolution.h).
#pragma once

#include <string>

#include "common/ze_extension/convolution.h"
#include "drivers/cuda/convolution_graph.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/level_zero.h"

namespace zefuse::cuda {

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
  ze_result_t choose(const char* call, cudnnBackendDescriptor_t graph);
  CudnnFailure queue(const ze_extension::ConvolutionOperands& operands, CUstream stream);
  bool take(CudnnDescriptor& config, std::string& why);
  ze_result_t fail(const char* call, const CudnnFailure& failure) const;

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
