#include "drivers/cuda/fence.h"

#include "drivers/cuda/deferred_releases.h"
#include "drivers/cuda/host_wait.h"

namespace zefuse::cuda {

Fence::~Fence() {
  DeferredReleases::instance().release(queue->stream.device(), [word = word] { cuda().cuMemFreeHost(word); });
}

ze_result_t fenceCreate(ze_command_queue_handle_t hCommandQueue, const ze_fence_desc_t* desc,
                        ze_fence_handle_t* phFence) {
  ZEFUSE_OBJECT(CommandQueue, queue, hCommandQueue);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phFence);
  *phFence = nullptr;
  return guarded(__func__, [&]() -> ze_result_t {
    Device& device = queue->stream.device();
    if (ze_result_t result = device.open("zeFenceCreate"))
      return result;
    void* word = nullptr;
    {
      const Current current(device);
      ZEFUSE_CUDA(device, "zeFenceCreate", cuMemHostAlloc, &word, 64,
                  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    }
    *static_cast<uint32_t*>(word) = desc->flags & ZE_FENCE_FLAG_SIGNALED ? 1 : 0;
    *phFence = toHandle<ze_fence_handle_t>(new Fence(*queue, static_cast<uint32_t*>(word)));
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t fenceHostSynchronize(ze_fence_handle_t hFence, uint64_t timeout) {
  ZEFUSE_OBJECT(Fence, fence, hFence);
  return hostWait(timeout, [&]() -> ze_result_t {
    if (fence->isSignalled())
      return ZE_RESULT_SUCCESS;
    const ze_result_t result = fence->queue->stream.device().probeWithOthers("zeFenceHostSynchronize");
    return result ? result : fence->isSignalled() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
  });
}

ze_result_t fenceQueryStatus(ze_fence_handle_t hFence) {
  ZEFUSE_OBJECT(Fence, fence, hFence);
  return fence->isSignalled() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t fenceReset(ze_fence_handle_t hFence) {
  ZEFUSE_OBJECT(Fence, fence, hFence);
  __atomic_store_n(fence->word, 0u, __ATOMIC_SEQ_CST);
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
