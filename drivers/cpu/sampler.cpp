#include "drivers/cpu/sampler.h"

#include "drivers/cpu/context.h"
#include "drivers/cpu/device.h"
#include "drivers/spirv/sampler.h"

namespace zefuse::cpu {

ze_result_t samplerCreate(ze_context_handle_t hContext, ze_device_handle_t hDevice, const ze_sampler_desc_t* desc,
                          ze_sampler_handle_t* phSampler) {
  ZEFUSE_OBJECT(Context, context, hContext);
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phSampler);
  *phSampler = nullptr;
  if (ze_result_t result = checkInContext("zeSamplerCreate", *context, *device))
    return result;
  constexpr uint32_t kAddressing[] = {spirv::kAddressNone, spirv::kAddressRepeat, spirv::kAddressClampToEdge,
                                      spirv::kAddressClampToBorder, spirv::kAddressRepeatMirrored};
  if (static_cast<uint32_t>(desc->addressMode) > ZE_SAMPLER_ADDRESS_MODE_MIRROR ||
      static_cast<uint32_t>(desc->filterMode) > ZE_SAMPLER_FILTER_MODE_LINEAR)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "zeSamplerCreate: address mode %d, filter mode %d",
                  static_cast<int>(desc->addressMode), static_cast<int>(desc->filterMode));
  return guarded(__func__, [&] {
    *phSampler = toHandle<ze_sampler_handle_t>(new Sampler(spirv::samplerWord(
        kAddressing[desc->addressMode], desc->isNormalized != 0, desc->filterMode == ZE_SAMPLER_FILTER_MODE_LINEAR)));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t samplerDestroy(ze_sampler_handle_t hSampler) {
  ZEFUSE_OBJECT(Sampler, sampler, hSampler);
  sampler->destroy();
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
