#include "drivers/level_zero/image.h"

namespace zefuse::level_zero {
namespace {

ze_result_t noImages(const char* call) {
  return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: this device has no images and samplers; use buffers", call);
}

}  // namespace

ze_result_t imageGetProperties(ze_device_handle_t, const ze_image_desc_t*, ze_image_properties_t*) {
  return noImages("zeImageGetProperties");
}

ze_result_t imageCreate(ze_context_handle_t, ze_device_handle_t, const ze_image_desc_t*, ze_image_handle_t* phImage) {
  if (phImage)
    *phImage = nullptr;
  return noImages("zeImageCreate");
}

ze_result_t imageDestroy(ze_image_handle_t) { return noImages("zeImageDestroy"); }

ze_result_t samplerCreate(ze_context_handle_t, ze_device_handle_t, const ze_sampler_desc_t*,
                          ze_sampler_handle_t* phSampler) {
  if (phSampler)
    *phSampler = nullptr;
  return noImages("zeSamplerCreate");
}

ze_result_t samplerDestroy(ze_sampler_handle_t) { return noImages("zeSamplerDestroy"); }

}  // namespace zefuse::level_zero
