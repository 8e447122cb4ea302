// A matrix product by the library of a GPU's vendor, where the driver offers it (common/ze_extension/product.h).
// Thread-safe.
#pragma once

#include "common/ze_extension/product.h"
#include "runtime/ze/context.h"

namespace zefuse::ze {

class Product {
public:
  // `unsupported`, with the reason, where the device, its library or this product is not for it.
  static Result<Product> create(const Context& context, const ze_extension::ProductDesc& desc);

  size_t workspaceBytes() const { return workspace_bytes_; }
  ze_extension::ProductHandle* handle() const { return handle_.get(); }

private:
  Owned<ze_extension::ProductHandle*, &Api::productDestroy> handle_;
  size_t workspace_bytes_ = 0;
};

// The library's name and version. `unsupported`: why there is none.
Result<std::string> productLibrary(const Device& device);

}  // namespace zefuse::ze
