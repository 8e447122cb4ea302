// A device by zefuse's name: "cpu" is always our own driver's CPU, "gpu:N" the N-th GPU-type device of our drivers (the
// CPU's where it poses as one, docs/gpu.md, then the one over CUDA), then of the system's loader. A value type: handles
// live as long as the process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/api.h"
#include "common/toolchain/targets.h"
#include "runtime/ze/driver.h"

namespace zefuse::ze {

struct Sycl;

inline constexpr const char* kGpuTargetVariable = "ZEFUSE_GPU_TARGET";

struct ZEFUSE_API Device {
  const Api* api = nullptr;
  Driver driver;
  ze_device_handle_t handle = nullptr;
  std::string name;         // "cpu", "gpu:0"
  std::string description;  // the driver's name of it
  ze_device_properties_t properties{};
  uint32_t max_group_size = 0;
  uint64_t memory_bytes = 0;      // of its largest memory
  uint32_t local_bytes = 0;       // that a group may have
  int compute_capability = 0;     // of an NVIDIA GPU, times 10; else 0
  bool integrated = false;        // no memory of its own: the host's, reached through USM
  bool reaches_all_host = false;  // kernels may read and write any memory of the process
  // Of SYCL's ("xpu:0", sycl.h): its context, and who orders work among its queues'; else null.
  ze_context_handle_t context = nullptr;
  const Sycl* sycl = nullptr;

  // not_found lists the devices that exist. "gpu" means "gpu:0"; "cuda:N" is CUDA's N-th device, as torch counts them,
  // whichever of the GPUs that is: it keeps its name "gpu:M". "xpu:N" is torch.xpu's, after adoptSyclQueue().
  static Result<Device> find(const std::string& name);
  // Everything find() accepts. The second part of each pair is the driver's description.
  static std::vector<std::pair<std::string, std::string>> list();
  // The GPU that has this handle, in whichever of the implementations.
  static Result<Device> of(ze_device_handle_t handle);

  // Our CPU driver as a GPU that runs kernels for any; not where it poses as another vendor's device by a PCI id, for
  // tests of what such a device does.
  bool isPosing() const { return driver.isOurs() && properties.vendorId == zefuse_pci; }
  // Kernels from SPIR-V are our driver's own work.
  bool hasOurCompiler() const { return isPosing() || driver.isOverCuda(); }
  bool isCpu() const { return name == "cpu"; }
  // CUDA's number of a device that the driver over CUDA has, as torch and DLPack count; -1 of any other.
  Result<int32_t> cudaOrdinal() const;
  // The product (common/toolchain/targets.h) whose kernels a GPU takes: the environment's word, else what its PCI id
  // or its compute capability says, and "dg2-g11", the commonest, for our driver that poses as a GPU and runs any.
  // Empty: none that this zefuse knows.
  std::string product() const;
  // What native code made for this device depends on, as fields of a cache key: driver build, kind of device,
  // instruction set. The same for every device of the kind: no index, no path. `cpu_level`
  // (common/toolchain/targets.h): of our driver's code for another level than this host's.
  std::vector<std::pair<std::string, std::string>> nativeFields(std::string_view cpu_level = {}) const;
};

}  // namespace zefuse::ze
