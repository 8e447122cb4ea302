// A convolution by the library of a GPU's vendor, where the driver offers it (common/ze_extension/convolution.h).
// Thread-safe.
#pragma once

#include "common/ze_extension/convolution.h"
#include "runtime/ze/context.h"

namespace zefuse::ze {

class Convolution {
public:
  // `unsupported`, with the reason, where the device, its library or this convolution is not for it.
  static Result<Convolution> create(const Context& context, const ze_extension::ConvolutionDesc& desc);

  size_t workspaceBytes() const { return workspace_bytes_; }
  ze_extension::ConvolutionHandle* handle() const { return handle_.get(); }

private:
  Owned<ze_extension::ConvolutionHandle*, &Api::convolutionDestroy> handle_;
  size_t workspace_bytes_ = 0;
};

// The library's name and version. `unsupported`: why there is none.
Result<std::string> convolutionLibrary(const Device& device);

}  // namespace zefuse::ze
