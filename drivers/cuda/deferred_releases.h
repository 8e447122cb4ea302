// CUDA's functions that free memory or unload code wait for all that was submitted to the device, and hold up other
// calls meanwhile. In Level Zero nobody waits there, least of all for a command that waits for an event which the same
// thread signals next. So they are called once no stream waits for an event.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "drivers/cuda/cuda_api.h"

namespace zefuse::cuda {

struct Device;

// One for the process: pinned memory is every device's. Thread-safe.
class DeferredReleases {
public:
  static DeferredReleases& instance();

  // To be held while a command that waits for events goes to `stream`, which counts as waiting until it is seen idle.
  // `for_others`: for an event that `device` does not signal.
  [[nodiscard]] std::unique_lock<std::mutex> waiting(Device& device, CUstream stream, bool for_others);
  // Whether a stream of the device still does.
  bool waitsForOthers(const Device& device);

  // Calls `release` with the device's context current: now, or in a later call of this class.
  void release(Device& device, std::function<void()> release);
  // Returns after `release`, as late as that may be. Other threads may call all of this class meanwhile.
  void releaseAndWait(Device& device, const std::function<void()>& release);
  // Commands of the stream still end. It is not used any more.
  void destroy(Device& device, CUstream stream);
  // Waits up to `timeout_ns` for what was put off. False: nothing was, or it still is.
  bool settle(uint64_t timeout_ns);

private:
  struct Waiting {
    Device* device;
    CUstream stream;
    bool destroyed, for_others;
  };
  struct Release {
    Device* device;
    std::function<void()> run;
  };
  bool settleLocked();

  std::mutex mutex_;
  std::vector<Waiting> waiting_;
  std::vector<Release> releases_;
};

}  // namespace zefuse::cuda
