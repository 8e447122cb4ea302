#include "drivers/cuda/deferred_releases.h"

#include <algorithm>

#include "drivers/cuda/device.h"
#include "drivers/cuda/host_wait.h"

namespace zefuse::cuda {

DeferredReleases& DeferredReleases::instance() {
  static DeferredReleases* made = new DeferredReleases;  // never destroyed, as the driver
  return *made;
}

std::unique_lock<std::mutex> DeferredReleases::waiting(Device& device, CUstream stream, bool for_others) {
  std::unique_lock lock(mutex_);
  const auto known = std::ranges::find(waiting_, stream, &Waiting::stream);
  if (known == waiting_.end())
    waiting_.push_back({&device, stream, false, for_others});
  else
    known->for_others |= for_others;
  return lock;
}

bool DeferredReleases::waitsForOthers(const Device& device) {
  std::lock_guard lock(mutex_);
  settleLocked();
  return std::ranges::any_of(waiting_, [&](const Waiting& each) { return each.device == &device && each.for_others; });
}

// A stream that failed counts as idle: nothing will run on a lost device.
bool DeferredReleases::settleLocked() {
  std::erase_if(waiting_, [](const Waiting& each) {
    const Current current(*each.device);
    if (cuda().cuStreamQuery(each.stream) == CUDA_ERROR_NOT_READY)
      return false;
    if (each.destroyed)
      cuda().cuStreamDestroy(each.stream);
    return true;
  });
  if (!waiting_.empty())
    return false;
  for (const Release& each : releases_) {
    const Current current(*each.device);
    each.run();
  }
  releases_.clear();
  return true;
}

void DeferredReleases::release(Device& device, std::function<void()> release) {
  std::lock_guard lock(mutex_);
  releases_.push_back({&device, std::move(release)});
  settleLocked();
}

void DeferredReleases::releaseAndWait(Device& device, const std::function<void()>& release) {
  hostWait(UINT64_MAX, [&] {
    std::lock_guard lock(mutex_);
    if (!settleLocked())
      return ZE_RESULT_NOT_READY;
    const Current current(device);
    release();
    return ZE_RESULT_SUCCESS;
  });
}

void DeferredReleases::destroy(Device& device, CUstream stream) {
  std::lock_guard lock(mutex_);
  settleLocked();
  for (Waiting& each : waiting_)
    if (each.stream == stream) {
      each.destroyed = true;
      return;
    }
  const Current current(device);
  cuda().cuStreamDestroy(stream);  // what runs still ends
}

bool DeferredReleases::settle(uint64_t timeout_ns) {
  {
    std::lock_guard lock(mutex_);
    if (releases_.empty())
      return false;
  }
  return hostWait(timeout_ns, [&] {
           std::lock_guard lock(mutex_);
           return settleLocked() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
         }) == ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
