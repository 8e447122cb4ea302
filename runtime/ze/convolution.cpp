#include "runtime/ze/convolution.h"

namespace zefuse::ze {

Result<std::string> convolutionLibrary(const Device& device) {
  if (!device.api->convolutionCreate)
    return Status{Code::unsupported, "the driver of device '" + device.name + "' offers no convolutions by a library"};
  const char* text = "";
  if (!device.api->convolutionLibrary(&text))
    return Status{Code::unsupported, text};
  return std::string(text);
}

Result<Convolution> Convolution::create(const Context& context, const ze_extension::ConvolutionDesc& desc) {
  const Api& api = context.api();
  if (Result<std::string> library = convolutionLibrary(context.device()); !library.ok())
    return library.status();
  ze_extension::ConvolutionHandle* handle = nullptr;
  Convolution convolution;
  const ze_result_t result =
      api.convolutionCreate(context.device().handle, &desc, &handle, &convolution.workspace_bytes_);
  if (traceEnabled())
    traceCall(api, ze_extension::convolution_create_name, result);
  if (result != ZE_RESULT_SUCCESS) {
    const Status status = callError(api, ze_extension::convolution_create_name, result, context.device().name);
    const bool none = result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE || result == ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    return Status{none ? Code::unsupported : status.code(), status.message()};
  }
  convolution.handle_ = {&api, handle};
  return convolution;
}

}  // namespace zefuse::ze
