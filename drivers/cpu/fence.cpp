#include "drivers/cpu/fence.h"

namespace zefuse::cpu {

ze_result_t fenceCreate(ze_command_queue_handle_t hCommandQueue, const ze_fence_desc_t* desc,
                        ze_fence_handle_t* phFence) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phFence);
  *phFence = nullptr;
  return guarded(__func__, [&] {
    *phFence = toHandle<ze_fence_handle_t>(new Fence(*queue, (desc->flags & ZE_FENCE_FLAG_SIGNALED) != 0));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t fenceHostSynchronize(ze_fence_handle_t hFence, uint64_t timeout) {
  ZEFUSE_OBJECT(Fence, fence, hFence);
  return fence->state.answer(__func__, fence->state.wait(timeout));
}

ze_result_t fenceQueryStatus(ze_fence_handle_t hFence) {
  ZEFUSE_OBJECT(Fence, fence, hFence);
  return fence->state.answer(__func__, fence->state.isSet());
}

ze_result_t fenceReset(ze_fence_handle_t hFence) {
  ZEFUSE_OBJECT(Fence, fence, hFence);
  fence->state.reset();
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cpu
