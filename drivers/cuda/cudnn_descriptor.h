#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "drivers/cuda/cudnn_api.h"

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

}  // namespace zefuse::cuda
