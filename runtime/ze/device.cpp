#include "runtime/ze/device.h"

#include <cstdio>
#include <cstdlib>

namespace zefuse::ze {
namespace {

Result<std::vector<Device>> devicesOf(const Driver& driver) {
  const Api& api = *driver.api;
  uint32_t count = 0;
  ZEFUSE_ZE(api, "any", zeDeviceGet, driver.handle, &count, nullptr);
  std::vector<ze_device_handle_t> handles(count);
  ZEFUSE_ZE(api, "any", zeDeviceGet, driver.handle, &count, handles.data());
  handles.resize(count);
  std::vector<Device> devices;
  for (ze_device_handle_t handle : handles) {
    Device device{&api, driver, handle, {}, {}, make<ze_device_properties_t>(), 0};
    ZEFUSE_ZE(api, "any", zeDeviceGetProperties, handle, &device.properties);
    device.properties.name[ZE_MAX_DEVICE_NAME - 1] = '\0';
    device.description = device.properties.name;
    auto compute = make<ze_device_compute_properties_t>();
    ZEFUSE_ZE(api, device.description, zeDeviceGetComputeProperties, handle, &compute);
    device.max_group_size = compute.maxTotalGroupSize;
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<Device> cpuDevice() {
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
    if (!devices->empty()) {
      devices->front().name = "cpu";
      return std::move(devices->front());
    }
  }
  return Status{Code::not_found, (*api)->library + ": the CPU driver lists no device"};
}

Result<std::vector<Device>> gpuDevices() {
  Result<const Api*> api = loaderApi();
  if (!api.ok())
    return api.status();
  Result<std::vector<Driver>> drivers = Driver::list(**api);
  if (!drivers.ok())
    return drivers.status();
  std::vector<Device> gpus;
  for (const Driver& driver : *drivers) {
    Result<std::vector<Device>> devices = devicesOf(driver);
    if (!devices.ok())
      return devices.status();
    for (Device& device : *devices)
      if (device.properties.type == ZE_DEVICE_TYPE_GPU) {
        device.name = "gpu:" + std::to_string(gpus.size());
        gpus.push_back(std::move(device));
      }
  }
  return gpus;
}

}  // namespace

Result<Device> Device::find(const std::string& name) {
  if (name == "cpu")
    return cpuDevice();
  std::string why;
  if (name == "gpu" || name.starts_with("gpu:")) {
    const std::string full = name == "gpu" ? "gpu:0" : name;
    Result<std::vector<Device>> gpus = gpuDevices();
    if (gpus.ok()) {
      for (Device& device : *gpus)
        if (device.name == full)
          return std::move(device);
    } else {
      why = " (" + gpus.status().message() + ")";
    }
  }
  std::string known;
  for (const auto& [device, description] : list())
    known += (known.empty() ? "'" : ", '") + device + "' (" + description + ")";
  return Status{Code::not_found,
                "no device '" + name + "'" + why + "; this machine has " + (known.empty() ? "none" : known)};
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

std::vector<std::pair<std::string, std::string>> Device::nativeFields() const {
  char ids[32];
  std::snprintf(ids, sizeof ids, "%04x:%04x", properties.vendorId, properties.deviceId);
  std::vector<std::pair<std::string, std::string>> fields{
      {"driver", driver.uuid + "-" + std::to_string(driver.version)}, {"device", ids}};
  if (driver.isOurs()) {  // whatever type of device it presents itself as
    __builtin_cpu_init();
    std::string features = __builtin_cpu_supports("avx512f") ? "avx512" : "avx2";
    features += __builtin_cpu_supports("avx512bf16") ? "+bf16" : "";
    features += __builtin_cpu_supports("avx512vnni") ? "+vnni" : "";
    if (const char* limit = std::getenv("ZEFUSE_CPU_ISA"))
      features += std::string(",at most ") + limit;
    fields.emplace_back("instruction set", features);
  }
  return fields;
}

}  // namespace zefuse::ze
