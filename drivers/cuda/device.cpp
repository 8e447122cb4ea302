#include "drivers/cuda/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>
#include <unordered_set>

#include "common/ze_extension/stream.h"
#include "drivers/cuda/deferred_releases.h"
#include "drivers/level_zero/affinity.h"
#include "drivers/level_zero/clock.h"

namespace zefuse::cuda {
namespace {

constexpr char kClockPtx[] = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry zf_clock(.param .u64 destination)
{
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [destination];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u64 %rd2, %globaltimer;
  st.global.u64 [%rd1], %rd2;
  ret;
}
)";

// Errors after which every call of the process's context fails: CUDA has no way back.
bool isSticky(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_TIMEOUT || result == CUDA_ERROR_ASSERT ||
         (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED) ||
         result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_DEINITIALIZED ||
         result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_UNKNOWN;
}

ze_result_t codeOf(CUresult result) {
  switch (result) {
  case CUDA_ERROR_INVALID_VALUE: return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  case CUDA_ERROR_OUT_OF_MEMORY:
  case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  case CUDA_ERROR_NOT_SUPPORTED: return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  default: return ZE_RESULT_ERROR_UNKNOWN;
  }
}

// The PCI id, which CUDA does not tell, from the kernel.
uint32_t pciDevice(CUdevice ordinal) {
  char bus[32] = "";
  if (cuda().cuDeviceGetPCIBusId(bus, sizeof bus, ordinal))
    return 0;
  for (char& letter : bus)
    letter = char(std::tolower(static_cast<unsigned char>(letter)));
  std::string path(bus);
  if (const size_t colon = path.find(':'); colon == 8)  // a domain of eight digits, four in sysfs
    path.erase(0, 4);
  std::ifstream file("/sys/bus/pci/devices/" + path + "/device");
  uint32_t id = 0;
  file >> std::hex >> id;
  return id;
}

struct Devices {
  std::vector<Device*> list;
  std::string reason;
};

Devices enumerate() {
  Devices devices;
  const CudaApi* api = findCuda(devices.reason);
  int count = 0;
  if (!api)
    return devices;
  if (CUresult result = api->cuDeviceGetCount(&count); result || count == 0) {
    devices.reason = result ? "cuDeviceGetCount: " + errorText(result) : "CUDA finds no device";
    return devices;
  }
  const uint32_t visible = level_zero::visibleDevices();
  uint32_t usable = 0;
  for (int i = 0; i < count; ++i) {
    CUdevice ordinal;
    if (api->cuDeviceGet(&ordinal, i))
      continue;
    auto* device = new Device;
    device->ordinal = ordinal;
    api->cuDeviceGetName(device->name, sizeof device->name, ordinal);
    api->cuDeviceGetUuid(&device->uuid, ordinal);
    api->cuDeviceTotalMem(&device->memory_bytes, ordinal);
    device->architecture = uint32_t(device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                                    device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    device->pci_device = pciDevice(ordinal);
    device->multiprocessors = uint32_t(device->attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    device->copy_engines = uint32_t(device->attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT));
    device->items_per_multiprocessor = uint32_t(device->attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
    device->max_group_items = uint32_t(device->attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    device->max_local_bytes = uint32_t(device->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    device->cooperative = device->attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
    if (device->architecture < 80) {
      devices.reason = std::string(device->name) + " is of compute capability " +
                       std::to_string(device->architecture / 10) + "." + std::to_string(device->architecture % 10) +
                       "; 8.0 is the least";
      device->release();
      continue;
    }
    if (const uint32_t place = usable++; place < 32 && (visible >> place & 1) == 0) {
      device->release();
      continue;
    }
    devices.list.push_back(device);
  }
  if (devices.list.empty() && usable != 0)
    devices.reason = "ZE_AFFINITY_MASK lists none of the " + std::to_string(usable) + " devices that there are";
  return devices;
}

}  // namespace

std::span<Device* const> Device::all(std::string* reason) {
  static const Devices* devices = new Devices(enumerate());
  if (reason)
    *reason = devices->reason;
  return devices->list;
}

int Device::attribute(CUdevice_attribute which) const {
  int value = 0;
  cuda().cuDeviceGetAttribute(&value, which, ordinal);
  return value;
}

ze_result_t Device::open(const char* call) {
  if (lost()) [[unlikely]]
    return refuseLost(call);
  if (open_.load(std::memory_order_acquire)) [[likely]]
    return ZE_RESULT_SUCCESS;
  {
    std::lock_guard lock(mutex_);
    if (ze_result_t result = open_.load() ? ZE_RESULT_SUCCESS : openLocked(call))
      return result;
    open_.store(true, std::memory_order_release);
  }
  uint64_t host, device;
  return readClock(call, host, device);
}

ze_result_t Device::openLocked(const char* call) {
  auto failed = [&](const char* function, CUresult result) {
    return refuse(codeOf(result), "%s: device '%s' cannot be opened: %s: %s", call, name, function,
                  errorText(result).c_str());
  };
  if (CUresult result = cuda().cuDevicePrimaryCtxRetain(&context_, ordinal))
    return failed("cuDevicePrimaryCtxRetain", result);
  const Current current(*this);
  if (CUresult result = cuda().cuModuleLoadDataEx(&clock_module_, kClockPtx, 0, nullptr, nullptr))
    return failed("cuModuleLoadDataEx", result);
  if (CUresult result = cuda().cuModuleGetFunction(&clock_kernel_, clock_module_, "zf_clock"))
    return failed("cuModuleGetFunction", result);
  if (CUresult result = cuda().cuStreamCreate(&probe_stream_, CU_STREAM_NON_BLOCKING))
    return failed("cuStreamCreate", result);
  if (CUresult result = cuda().cuMemHostAlloc(&clock_word_, 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
    return failed("cuMemHostAlloc", result);
  std::memset(clock_word_, 0, 64);
  return ZE_RESULT_SUCCESS;
}

ze_result_t Device::fail(const char* call, const char* function, CUresult result, const char* what) {
  std::string text = std::string(function) + ": " + errorText(result);
  if (what)
    text += "; kernel '" + std::string(what) + "'";
  if (!isSticky(result))
    return refuse(codeOf(result), "%s: %s", call, text.c_str());
  {
    std::lock_guard lock(mutex_);
    if (!lost()) {
      std::string names;
      const unsigned launches = launches_.load(std::memory_order_relaxed);
      for (unsigned i = 0; i < std::min(launches, 4u); ++i)
        if (const char* kernel = last_kernels_[(launches - 1 - i) % 4].load(std::memory_order_relaxed))
          names += std::string(names.empty() ? "'" : ", '") + kernel + "'";
      why_lost_ = text + (names.empty() ? "" : "; launched last, the newest first: " + names);
      lost_.store(true, std::memory_order_release);
    }
  }
  return refuseLost(call);
}

ze_result_t Device::refuseLost(const char* call) const {
  std::lock_guard lock(mutex_);
  return refuse(ZE_RESULT_ERROR_DEVICE_LOST, "%s: device '%s' is lost: %s", call, name, why_lost_.c_str());
}

ze_result_t Device::probe(const char* call) {
  if (lost())
    return refuseLost(call);
  if (!open_.load(std::memory_order_acquire))
    return ZE_RESULT_SUCCESS;
  const Current current(*this);
  const CUresult result = cuda().cuStreamQuery(probe_stream_);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ? ZE_RESULT_SUCCESS
                                                                  : fail(call, "cuStreamQuery", result);
}

ze_result_t Device::probeAll(const char* call) {
  for (Device* device : all())
    if (ze_result_t result = device->probe(call))
      return result;
  return ZE_RESULT_SUCCESS;
}

ze_result_t Device::probeWithOthers(const char* call) {
  return DeferredReleases::instance().waitsForOthers(*this) ? probeAll(call) : probe(call);
}

const char* keptName(const std::string& name) {
  static std::mutex mutex;
  static auto* names = new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

ze_result_t Device::readClock(const char* call, uint64_t& host, uint64_t& device) {
  std::unique_lock lock(mutex_);
  auto* word = static_cast<volatile uint64_t*>(clock_word_);
  CUresult result;
  const char* function = "cuLaunchKernel";
  {
    const Current current(*this);
    void* parameters[] = {&clock_word_};
    result = cuda().cuLaunchKernel(clock_kernel_, 1, 1, 1, 1, 1, 1, 0, probe_stream_, parameters, nullptr);
    const uint64_t deadline = nowNs() + 5'000'000'000;
    while (result == CUDA_SUCCESS) {
      function = "cuStreamQuery";
      const CUresult state = cuda().cuStreamQuery(probe_stream_);
      if (state == CUDA_SUCCESS)
        break;
      if (state != CUDA_ERROR_NOT_READY || nowNs() > deadline)
        result = state;
    }
  }
  host = nowNs();
  device = *word;
  lock.unlock();
  if (result)
    return fail(call, function, result);
  clock_offset_.store(int64_t(device) - int64_t(host));
  return ZE_RESULT_SUCCESS;
}

ze_result_t deviceOrdinal(ze_device_handle_t hDevice, int32_t* pOrdinal) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(pOrdinal);
  *pOrdinal = device->ordinal;
  return ZE_RESULT_SUCCESS;
}

ze_result_t streamIsCapturing(void* stream, bool* pCapturing) {
  ZEFUSE_NOT_NULL(pCapturing);
  int status = 0;
  if (stream)  // CUDA's default stream cannot be captured, and asking about it disturbs a capture of another one
    if (const CUresult result = cuda().cuStreamIsCapturing(static_cast<CUstream>(stream), &status))
      return refuse(ZE_RESULT_ERROR_UNKNOWN, "%s: cuStreamIsCapturing: %d", ze_extension::stream_is_capturing_name,
                    int(result));
  *pCapturing = status != 0;
  return ZE_RESULT_SUCCESS;
}

}  // namespace zefuse::cuda
