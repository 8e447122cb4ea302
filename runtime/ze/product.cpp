#include "runtime/ze/product.h"

namespace zefuse::ze {

Result<std::string> productLibrary(const Device& device) {
  if (!device.api->productCreate)
    return Status{Code::unsupported, "the driver of device '" + device.name + "' offers no products by a library"};
  const char* text = "";
  if (!device.api->productLibrary(&text))
    return Status{Code::unsupported, text};
  return std::string(text);
}

Result<Product> Product::create(const Context& context, const ze_extension::ProductDesc& desc) {
  const Api& api = context.api();
  if (Result<std::string> library = productLibrary(context.device()); !library.ok())
    return library.status();
  ze_extension::ProductHandle* handle = nullptr;
  Product product;
  const ze_result_t result = api.productCreate(context.device().handle, &desc, &handle, &product.workspace_bytes_);
  if (traceEnabled())
    traceCall(api, ze_extension::product_create_name, result);
  if (result != ZE_RESULT_SUCCESS) {
    const Status status = callError(api, ze_extension::product_create_name, result, context.device().name);
    const bool none = result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE || result == ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    return Status{none ? Code::unsupported : status.code(), status.message()};
  }
  product.handle_ = {&api, handle};
  return product;
}

}  // namespace zefuse::ze
