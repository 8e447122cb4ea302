// What this driver is to drivers/level_zero.
//
//   ZEFUSE_CUDA_DRIVER_LOG=1   each refused call writes its reason to stderr
//   ZEFUSE_CUDA_LIBRARY=path   another library than libcuda.so.1 (tests)
//   ZEFUSE_CUBLASLT=off|path   no matrix products by cuBLASLt, or by this one (cublaslt_api.h)
//   ZEFUSE_CUDNN=off|path      no convolutions by cuDNN, or by this one (cudnn_api.h)
//   ZEFUSE_NVJITLINK=off|path  no cubins by nvJitLink, or by this one (jit_link.h)
#include "drivers/level_zero/traits.h"

#include <cstdlib>

#include "common/base/build_id.h"
#include "common/ze_extension/stream.h"
#include "drivers/cuda/compiler_library.h"
#include "drivers/cuda/convolution.h"
#include "drivers/cuda/device.h"
#include "drivers/cuda/product.h"
#include "drivers/level_zero/build_version.h"

namespace zefuse::cuda {
namespace {

constexpr level_zero::Extension kExtensions[] = {
    {ZE_FLOAT_ATOMICS_EXT_NAME, ZE_FLOAT_ATOMICS_EXT_VERSION_CURRENT},
    {ZE_EU_COUNT_EXT_NAME, ZE_EU_COUNT_EXT_VERSION_CURRENT},
};

// Entries that Debian's 1.4 tables have no slot for, so that a program on an old loader can still reach them. Valid
// only where the loader does not wrap handles.
const level_zero::ExtensionFunction kFunctions[] = {
    {ze_extension::product_create_name, reinterpret_cast<void*>(productCreate)},
    {ze_extension::product_destroy_name, reinterpret_cast<void*>(productDestroy)},
    {ze_extension::append_product_name, reinterpret_cast<void*>(commandListAppendProduct)},
    {ze_extension::product_library_name, reinterpret_cast<void*>(productLibrary)},
    {ze_extension::convolution_create_name, reinterpret_cast<void*>(convolutionCreate)},
    {ze_extension::convolution_destroy_name, reinterpret_cast<void*>(convolutionDestroy)},
    {ze_extension::append_convolution_name, reinterpret_cast<void*>(commandListAppendConvolution)},
    {ze_extension::convolution_library_name, reinterpret_cast<void*>(convolutionLibrary)},
    {ze_extension::convolution_choice_name, reinterpret_cast<void*>(convolutionChoice)},
    {ze_extension::device_ordinal_name, reinterpret_cast<void*>(deviceOrdinal)},
    {ze_extension::stream_is_capturing_name, reinterpret_cast<void*>(streamIsCapturing)},
};

ze_result_t start() {
  std::string reason;
  if (!Device::all(&reason).empty())
    return ZE_RESULT_SUCCESS;
  return refuse(ZE_RESULT_ERROR_UNINITIALIZED, "zeInit: no device: %s", reason.c_str());
}

uint32_t buildVersion() {
  static const uint32_t version = level_zero::foldBuildIds(
      {buildIdOf(reinterpret_cast<const void*>(&buildVersion)), buildIdOfFile(compilerPath())});
  return version;
}

bool logsRefusals() {
  const char* value = std::getenv("ZEFUSE_CUDA_DRIVER_LOG");
  return value && *value && *value != '0';
}

}  // namespace
}  // namespace zefuse::cuda

const zefuse::level_zero::Traits& zefuse::level_zero::traits() {
  static const Traits made = {
      .log_name = "zefuse cuda driver",
      .log_refusals = cuda::logsRefusals(),
      .uuid = "zefuse-cuda-drv1",
      .start = cuda::start,
      .version = cuda::buildVersion,
      .free_policies =
          ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE | ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE,
      .ipc = 0,
      .extensions = cuda::kExtensions,
      .functions = cuda::kFunctions,
  };
  return made;
}
