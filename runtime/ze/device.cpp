#include "runtime/ze/device.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/toolchain/host_cpu.h"
#include "common/toolchain/targets.h"
#include "runtime/ze/sycl.h"

namespace zefuse::ze {
namespace {

// How our driver over CUDA names the native code of a device, with the compute capability behind.
constexpr std::string_view cuda_code = "zefuse-sm_";

int numberIn(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The newest of the table's products whose kernels a device runs: code for a compute capability is for later ones too,
// but some of them have less local memory.
const GpuTarget* nvidiaTarget(const Device& device) {
  const GpuTarget* best = nullptr;
  for (const GpuTarget& target : gpuTargets())
    if (target.vendor == device.properties.vendorId && target.product.starts_with("sm_") &&
        numberIn(target.product.substr(3)) <= device.compute_capability &&
        uint32_t(target.local_memory_kib) << 10 <= device.local_bytes)
      best = &target;  // the table is in their order
  return best;
}

Result<std::vector<Device>> devicesOf(const Driver& driver) {
  const Api& api = *driver.api;
  uint32_t count = 0;
  ZEFUSE_ZE(api, "any", zeDeviceGet, driver.handle, &count, nullptr);
  std::vector<ze_device_handle_t> handles(count);
  ZEFUSE_ZE(api, "any", zeDeviceGet, driver.handle, &count, handles.data());
  handles.resize(count);
  std::vector<Device> devices;
  for (ze_device_handle_t handle : handles) {
    Device device{&api, driver, handle, {}, {}, make<ze_device_properties_t>()};
    ZEFUSE_ZE(api, "any", zeDeviceGetProperties, handle, &device.properties);
    device.properties.name[ZE_MAX_DEVICE_NAME - 1] = '\0';
    device.description = device.properties.name;
    auto compute = make<ze_device_compute_properties_t>();
    ZEFUSE_ZE(api, device.description, zeDeviceGetComputeProperties, handle, &compute);
    device.max_group_size = compute.maxTotalGroupSize;
    device.local_bytes = compute.maxSharedLocalMemory;
    if (driver.isOverCuda()) {
      auto code = make<ze_device_module_properties_t>();
      ZEFUSE_ZE(api, device.description, zeDeviceGetModuleProperties, handle, &code);
      const auto* id = reinterpret_cast<const char*>(code.nativeKernelSupported.id);
      const std::string_view name(id, strnlen(id, sizeof code.nativeKernelSupported.id));
      if (name.starts_with(cuda_code))
        device.compute_capability = numberIn(name.substr(cuda_code.size()));
    }
    device.integrated = device.properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
    auto access = make<ze_device_memory_access_properties_t>();
    ZEFUSE_ZE(api, device.description, zeDeviceGetMemoryAccessProperties, handle, &access);
    device.reaches_all_host = access.sharedSystemAllocCapabilities & ZE_MEMORY_ACCESS_CAP_FLAG_RW;
    uint32_t memories = 0;
    ZEFUSE_ZE(api, device.description, zeDeviceGetMemoryProperties, handle, &memories, nullptr);
    std::vector<ze_device_memory_properties_t> memory(memories, make<ze_device_memory_properties_t>());
    ZEFUSE_ZE(api, device.description, zeDeviceGetMemoryProperties, handle, &memories, memory.data());
    for (const ze_device_memory_properties_t& one : memory)
      device.memory_bytes = std::max(device.memory_bytes, one.totalSize);
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<Device> cpuDevice() {
  if (const std::string lacks = missingCpuFeatures(hostCpuFeatures()); !lacks.empty())
    return Status{Code::unsupported,
                  "this processor lacks " + lacks +
                      ": zefuse's code needs AVX2, FMA, BMI2 and F16C (x86-64-v3: Intel Haswell, AMD "
                      "Zen or later); in a virtual machine, hand the host's processor through"};
  Result<const Api*> api = cpuApi();
  if (!api.ok())
    return api.status();
  Result<std::vector<Driver>> drivers = Driver::list(**api);
  if (!drivers.ok())
    return drivers.status();
  for (const Driver& driver : *drivers) {
    Result<std::vector<Device>> devices = devicesOf(driver);
    if (!devices.ok())
      return devices.status();
    for (Device& device : *devices)
      if (device.properties.type == ZE_DEVICE_TYPE_CPU) {
        device.name = "cpu";
        return std::move(device);
      }
  }
  return Status{Code::not_found, (*api)->library + ": the CPU driver lists no device"};
}

// Appends the GPUs of one implementation.
Status addGpus(const Api& api, std::vector<Device>& gpus) {
  Result<std::vector<Driver>> drivers = Driver::list(api);
  if (!drivers.ok())
    return drivers.status();
  for (const Driver& driver : *drivers) {
    // The loader may have it too (ZE_ENABLE_ALT_DRIVERS).
    if (driver.isOverCuda() && std::ranges::any_of(gpus, [](const Device& gpu) { return gpu.driver.isOverCuda(); }))
      continue;
    Result<std::vector<Device>> devices = devicesOf(driver);
    if (!devices.ok())
      return devices.status();
    for (Device& device : *devices)
      if (device.properties.type == ZE_DEVICE_TYPE_GPU) {
        device.name = "gpu:" + std::to_string(gpus.size());
        gpus.push_back(std::move(device));
      }
  }
  return {};
}

// Of our own drivers.
Result<std::vector<Device>> gpusBeforeLoaders(size_t wanted = SIZE_MAX) {
  std::vector<Device> gpus;
  if (Result<const Api*> ours = cpuApi(); ours.ok())
    ZEFUSE_RETURN_IF_ERROR(addGpus(**ours, gpus));
  if (gpus.size() >= wanted)
    return gpus;
  if (Result<const Api*> cuda = cudaApi(); cuda.ok())
    ZEFUSE_RETURN_IF_ERROR(addGpus(**cuda, gpus));
  return gpus;
}

// Not the loader's when `wanted` of them were found before: it takes a trial process.
Result<std::vector<Device>> gpuDevices(size_t wanted = SIZE_MAX) {
  Result<std::vector<Device>> ours = gpusBeforeLoaders(wanted);
  if (!ours.ok() || ours->size() >= wanted)
    return ours;
  std::vector<Device> gpus = std::move(*ours);
  Result<const Api*> cuda = cudaApi();
  Result<const Api*> loader = loaderApi();
  if (loader.ok())
    ZEFUSE_RETURN_IF_ERROR(addGpus(**loader, gpus));
  else if (gpus.empty())
    return Status{loader.status().code(),
                  loader.status().message() + "; of NVIDIA: " + (cuda.ok() ? "none" : cuda.status().message())};
  return gpus;
}

}  // namespace

Result<Device> Device::find(const std::string& name) {
  if (name == "cpu")
    return cpuDevice();
  std::string why;
  if (name == "gpu" || name.starts_with("gpu:")) {
    const std::string full = name == "gpu" ? "gpu:0" : name;
    Result<std::vector<Device>> gpus = gpuDevices(size_t(std::strtoul(full.c_str() + 4, nullptr, 10)) + 1);
    if (gpus.ok()) {
      for (Device& device : *gpus)
        if (device.name == full)
          return std::move(device);
    } else {
      why = " (" + gpus.status().message() + ")";
    }
  }
  if (name.starts_with("xpu:")) {
    if (std::optional<Device> device = adoptedDevice(name))
      return std::move(*device);
    why = " (it is known from its first tensor of torch.xpu on)";
  }
  if (name.starts_with("cuda:")) {
    Result<const Api*> cuda = cudaApi();
    Result<std::vector<Device>> gpus = gpusBeforeLoaders();
    if (cuda.ok() && gpus.ok()) {
      for (Device& device : *gpus) {
        const Result<int32_t> ordinal = device.cudaOrdinal();
        if (!ordinal.ok())
          return ordinal.status();
        if (name.substr(5) == std::to_string(*ordinal))
          return std::move(device);
      }
      why = " (zefuse's driver over CUDA runs on devices of compute capability 8.0 or newer)";
    } else {
      why = " (" + (cuda.ok() ? gpus.status() : cuda.status()).message() + ")";
    }
  }
  std::string known;
  for (const auto& [device, description] : list())
    known += (known.empty() ? "'" : ", '") + device + "' (" + description + ")";
  return Status{Code::not_found,
                "no device '" + name + "'" + why + "; this machine has " + (known.empty() ? "none" : known)};
}

Result<Device> Device::of(ze_device_handle_t handle) {
  Result<std::vector<Device>> gpus = gpusBeforeLoaders();
  auto found = [&]() -> Device* {
    const auto at = std::ranges::find(*gpus, handle, &Device::handle);
    return at == gpus->end() ? nullptr : &*at;
  };
  if (gpus.ok())
    if (Device* device = found())
      return std::move(*device);
  gpus = gpuDevices();
  if (!gpus.ok())
    return gpus.status();
  if (Device* device = found())
    return std::move(*device);
  return Status{Code::not_found, "no Level Zero driver here has the device that SYCL uses"};
}

Result<int32_t> Device::cudaOrdinal() const {
  int32_t ordinal = -1;
  if (driver.isOverCuda() && api->deviceOrdinal)
    ZEFUSE_ZE(*api, name, deviceOrdinal, handle, &ordinal);
  return ordinal;
}

std::vector<std::pair<std::string, std::string>> Device::list() {
  std::vector<std::pair<std::string, std::string>> devices;
  if (Result<Device> cpu = cpuDevice(); cpu.ok())
    devices.emplace_back(cpu->name, cpu->description);
  if (Result<std::vector<Device>> gpus = gpuDevices(); gpus.ok())
    for (const Device& device : *gpus)
      devices.emplace_back(device.name, device.description);
  return devices;
}

std::string Device::product() const {
  if (const char* given = std::getenv(kGpuTargetVariable); given && *given) {
    const GpuTarget* known = findGpuTarget(given);  // an alias has one name in plans; a wrong name is refused there
    return known ? std::string(known->product) : given;
  }
  if (isPosing())
    return "dg2-g11";
  const GpuTarget* target = driver.isOverCuda()
                                ? nvidiaTarget(*this)
                                : findGpuTarget({uint16_t(properties.vendorId), uint16_t(properties.deviceId)});
  return target ? std::string(target->product) : std::string();
}

std::vector<std::pair<std::string, std::string>> Device::nativeFields(std::string_view cpu_level) const {
  char ids[32];
  std::snprintf(ids, sizeof ids, "%04x:%04x", properties.vendorId, properties.deviceId);
  std::vector<std::pair<std::string, std::string>> fields{
      {"driver", driver.uuid + "-" + std::to_string(driver.version)}, {"device", ids}};
  if (driver.isOurs())  // whatever type of device it presents itself as
    fields.emplace_back("instruction set", cpu_level.empty() ? cpuTargets()[hostCpuLevel()].name : cpu_level);
  if (driver.isOverCuda())  // whose PCI id is not told everywhere
    fields.emplace_back("compute capability", std::to_string(compute_capability));
  return fields;
}

}  // namespace zefuse::ze
