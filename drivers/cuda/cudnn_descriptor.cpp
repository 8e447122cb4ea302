#include "drivers/cuda/cudnn_descriptor.h"

namespace zefuse::cuda {

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_)
    library_->cudnnBackendDestroyDescriptor(descriptor_);
}

cudnnStatus_t CudnnDescriptor::create(cudnnBackendDescriptorType_t type) {
  return library_->cudnnBackendCreateDescriptor(type, &descriptor_);
}

}  // namespace zefuse::cuda
