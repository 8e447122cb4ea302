// CUDA devices as Level Zero devices.
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "drivers/cuda/cuda_api.h"
#include "drivers/cuda/level_zero.h"
#include "drivers/level_zero/commands.h"
#include "drivers/level_zero/queue_groups.h"

namespace zefuse::cuda {

inline constexpr uint16_t kNvidiaPci = 0x10de;

// One per CUDA device, for as long as the process lives, as the driver. Thread-safe.
struct Device : Object<Device> {
  static constexpr uint32_t kMagic = magicOf("ZDEV");

  // In CUDA's order. Empty, with `reason`, where there is no usable device.
  static std::span<Device* const> all(std::string* reason = nullptr);

  CUdevice ordinal = 0;
  char name[ZE_MAX_DEVICE_NAME] = "";
  uint32_t architecture = 0;  // compute capability times 10
  uint32_t pci_device = 0;    // 0: not known
  CUuuid uuid{};
  size_t memory_bytes = 0;
  uint32_t multiprocessors = 1, items_per_multiprocessor = 1;
  uint32_t copy_engines = 0;
  uint32_t max_group_items = 1, max_local_bytes = 0;
  bool cooperative = false;

  int attribute(CUdevice_attribute which) const;
  QueueGroups queueGroups() const;

  // The primary context, which the process shares with CUDA's runtime: pointers and streams mean the same to both. Made
  // at first need. SUCCESS, or why not, through refuse().
  ze_result_t open(const char* call);
  CUcontext context() const { return context_; }

  // What `function` answered, as a Level Zero code, through refuse(): the sentence names the entry `call`, the
  // function, the error and `what` (a kernel; may be null). An error that CUDA cannot recover from makes the device
  // lost.
  ze_result_t fail(const char* call, const char* function, CUresult result, const char* what = nullptr);
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  ze_result_t refuseLost(const char* call) const;
  // Looks whether a kernel failed meanwhile. SUCCESS, or as fail().
  ze_result_t probe(const char* call);
  // The same of every device; of this one, and of the others too while a stream here waits for an event that this
  // device does not signal: with a device that is lost such a wait never ends.
  static ze_result_t probeAll(const char* call);
  ze_result_t probeWithOthers(const char* call);
  // For the sentence of an error that comes later than its launch. The name lives as long as the process (keptName).
  void launched(const char* kernel) {
    last_kernels_[launches_.fetch_add(1, std::memory_order_relaxed) % 4].store(kernel, std::memory_order_relaxed);
  }

  // Nanoseconds of the device's own clock, with nowNs() of the same moment.
  ze_result_t readClock(const char* call, uint64_t& host, uint64_t& device);
  // What its clock shows when nowNs() is `host_ns`, roughly, and the other way round.
  uint64_t deviceTime(uint64_t host_ns) const { return host_ns + uint64_t(clock_offset_.load()); }
  uint64_t monotonicTime(uint64_t device_ns) const { return device_ns - uint64_t(clock_offset_.load()); }
  // A kernel of one item that writes the clock to a pointer, its parameter.
  CUfunction clockKernel() const { return clock_kernel_; }

private:
  ze_result_t openLocked(const char* call);

  mutable std::mutex mutex_;
  std::atomic<bool> open_{false}, lost_{false};
  std::atomic<int64_t> clock_offset_{0};
  CUcontext context_ = nullptr;
  CUmodule clock_module_ = nullptr;
  CUfunction clock_kernel_ = nullptr;
  CUstream probe_stream_ = nullptr;
  void* clock_word_ = nullptr;
  std::atomic<const char*> last_kernels_[4] = {};
  std::atomic<unsigned> launches_{0};
  std::string why_lost_;
};

// The same text, kept for good: an error names kernels whose modules are gone.
const char* keptName(const std::string& name);

// Makes a device's context the calling thread's, and gives the one before back: the application may have its own. One
// that works on the device by CUDA's runtime (torch) has it current already.
class Current {
public:
  explicit Current(const Device& device) {
    CUcontext before = nullptr;
    pushed_ = cuda().cuCtxGetCurrent(&before) != CUDA_SUCCESS || before != device.context();
    if (pushed_)
      cuda().cuCtxPushCurrent(device.context());
  }
  ~Current() {
    CUcontext popped;
    if (pushed_)
      cuda().cuCtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

private:
  bool pushed_;
};

// Calls a function of cuda() and returns from the function that contains it where that fails; `device` is a Device&.
#define ZEFUSE_CUDA(device, call, function, ...)                                                                       \
  if (::zefuse::cuda::CUresult code_ = ::zefuse::cuda::cuda().function(__VA_ARGS__)) [[unlikely]]                      \
  return (device).fail(call, #function, code_)

// Kernels reach their own device's memory and the host's; access between devices is not enabled.
inline bool reaches(const Device& device, const Device& peer) { return &device == &peer; }

decltype(::zeDeviceGet) deviceGet;
decltype(::zeDeviceGetProperties) deviceGetProperties;
decltype(::zeDeviceGetComputeProperties) deviceGetComputeProperties;
decltype(::zeDeviceGetModuleProperties) deviceGetModuleProperties;
decltype(::zeDeviceGetMemoryProperties) deviceGetMemoryProperties;
decltype(::zeDeviceGetMemoryAccessProperties) deviceGetMemoryAccessProperties;
decltype(::zeDeviceGetCacheProperties) deviceGetCacheProperties;
decltype(::zeDeviceGetImageProperties) deviceGetImageProperties;
decltype(::zeDeviceGetStatus) deviceGetStatus;
decltype(::zeDeviceGetGlobalTimestamps) deviceGetGlobalTimestamps;
// common/ze_extension/stream.h
ze_result_t deviceOrdinal(ze_device_handle_t hDevice, int32_t* pOrdinal);
ze_result_t streamIsCapturing(void* stream, bool* pCapturing);

}  // namespace zefuse::cuda
