#include "drivers/level_zero/device_calls.h"

namespace zefuse::level_zero {

void fillCommonProperties(ze_device_properties_t& properties, uint32_t units) {
  properties.subdeviceId = 0;
  properties.maxCommandQueuePriority = 0;
  // Nanoseconds per tick, but ticks per second for who asks with the 1.2 structure type.
  properties.timerResolution = properties.stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 ? 1'000'000'000 : 1;
  properties.timestampValidBits = 64;
  properties.kernelTimestampValidBits = 64;
  if (auto* eus = findExtension<ze_eu_count_ext_t>(properties.pNext, ZE_STRUCTURE_TYPE_EU_COUNT_EXT))
    eus->numTotalEUs = units;
  if (auto* queries =
          findExtension<QueryKernelTimestampsProperties>(properties.pNext, QueryKernelTimestampsProperties::kType))
    queries->flags = QueryKernelTimestampsProperties::kDevice | QueryKernelTimestampsProperties::kHost;
}

void fillCommonModuleProperties(ze_device_module_properties_t& properties) {
  constexpr ze_device_fp_flags_t kIeee = ZE_DEVICE_FP_FLAG_DENORM | ZE_DEVICE_FP_FLAG_INF_NAN |
                                         ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST | ZE_DEVICE_FP_FLAG_FMA |
                                         ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT;
  properties.spirvVersionSupported = ZE_MAKE_VERSION(1, 4);
  properties.flags = ZE_DEVICE_MODULE_FLAG_FP16 | ZE_DEVICE_MODULE_FLAG_FP64 | ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS;
  properties.fp16flags = kIeee;
  properties.fp32flags = kIeee;
  properties.fp64flags = kIeee;
  constexpr ze_device_fp_atomic_ext_flags_t kAtomics =
      ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_LOAD_STORE | ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_ADD |
      ZE_DEVICE_FP_ATOMIC_EXT_FLAG_GLOBAL_MIN_MAX | ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_LOAD_STORE |
      ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_ADD | ZE_DEVICE_FP_ATOMIC_EXT_FLAG_LOCAL_MIN_MAX;
  if (auto* atomics = findExtension<ze_float_atomic_ext_properties_t>(properties.pNext,
                                                                      ZE_STRUCTURE_TYPE_FLOAT_ATOMIC_EXT_PROPERTIES)) {
    atomics->fp16Flags = kAtomics;
    atomics->fp32Flags = kAtomics;
    atomics->fp64Flags = kAtomics;
  }
}

}  // namespace zefuse::level_zero
