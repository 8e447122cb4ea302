#include "python/csrc/devices.h"

#include <algorithm>

#include <pybind11/stl.h>

#include "common/toolchain/installed_compilers.h"
#include "common/toolchain/targets.h"
#include "python/csrc/gil.h"
#include "runtime/ze/device.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

/// Rows, columns and depth of one matrix instruction on 16-bit elements; None without an engine.
py::object matrixShape(const GpuTarget& target) {
  const MatrixOperation* operation = target.matrix.find("f16");
  return operation ? py::object(py::make_tuple(operation->m, operation->n, operation->k)) : py::none();
}

py::dict targets() {
  py::list cpus, gpus;
  for (size_t level = 0; level < cpuTargets().size(); ++level) {
    const CpuTarget& target = cpuTargets()[level];
    py::dict row;
    row["name"] = target.name;
    row["alias"] = target.alias;
    row["needs"] = target.needs;
    row["runs"] = level <= hostCpuLevel();
    row["host"] = level == hostCpuLevel();
    cpus.append(row);
  }
  for (const GpuTarget& target : gpuTargets()) {
    py::dict row;
    row["vendor_id"] = target.vendor;
    row["name"] = target.product;
    row["alias"] = target.alias;
    row["family"] = target.family;
    row["marketing"] = target.marketing;
    row["integrated"] = target.integrated;
    row["engines"] = target.engines;
    row["threads_per_engine"] = target.threads_per_engine;
    row["max_group_size"] = target.max_group_size;
    row["local_memory_kib"] = target.local_memory_kib;
    py::list sizes;
    for (uint32_t size : {8u, 16u, 32u})
      if (target.subgroup_sizes & size)
        sizes.append(size);
    row["subgroup_sizes"] = sizes;
    row["f64"] = target.native.f64;
    row["matrix"] = matrixShape(target);
    py::list versions;
    for (std::string_view rest = target.compilers; !rest.empty();) {
      const size_t end = std::min(rest.find(", "), rest.size());
      versions.append(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 2, rest.size()));
    }
    row["compilers"] = versions;
    row["device_ids"] = std::vector<uint16_t>(target.device_ids.begin(), target.device_ids.end());
    gpus.append(row);
  }
  py::dict result;
  result["cpu"] = cpus;
  result["gpu"] = gpus;
  return result;
}

/// ZEFUSE_OCLOC or the one in the path, and those that `zefuse toolchain install` unpacked.
py::list compilers() {
  py::list result;
  const std::vector<InstalledCompiler> installed = withoutGil([] { return installedCompilers(); });
  for (const InstalledCompiler& compiler : installed) {
    if (!compiler.problem.ok())
      continue;  // it does not run
    py::list products;
    for (const GpuTarget& target : gpuTargets())
      if (std::ranges::find(compiler.devices, target.product) != compiler.devices.end())
        products.append(target.product);
    py::dict row;
    row["command"] = compiler.command;
    row["version"] = compiler.version;
    row["products"] = products;
    result.append(row);
  }
  return result;
}

py::dict describe(const ze::Device& device) {
  py::dict row;
  const auto& properties = device.properties;
  const bool cpu = device.isCpu();
  const GpuTarget* target = cpu ? nullptr : findGpuTarget(device.product());
  row["device"] = device.name;
  row["kind"] = cpu ? "cpu" : "gpu";
  row["name"] = device.description;
  row["device_id"] = properties.deviceId;
  if (cpu)
    row["target"] = cpuTargets()[hostCpuLevel()].name;
  else
    row["target"] = target ? py::object(py::str(std::string(target->product))) : py::object(py::none());
  row["built_in"] = device.hasOurCompiler();
  row["integrated"] = cpu || (properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0;
  row["units"] = uint64_t(properties.numSlices) * properties.numSubslicesPerSlice * properties.numEUsPerSubslice;
  uint64_t memory = 0;
  uint32_t count = 0;
  const ze::Api& api = *device.api;
  if (api.zeDeviceGetMemoryProperties(device.handle, &count, nullptr) == ZE_RESULT_SUCCESS) {
    std::vector<ze_device_memory_properties_t> memories(count, ze::make<ze_device_memory_properties_t>());
    if (api.zeDeviceGetMemoryProperties(device.handle, &count, memories.data()) == ZE_RESULT_SUCCESS)
      for (const auto& one : memories)
        memory += one.totalSize;
  }
  row["memory_bytes"] = memory;
  uint32_t queues = 0;
  count = 0;
  if (api.zeDeviceGetCommandQueueGroupProperties(device.handle, &count, nullptr) == ZE_RESULT_SUCCESS) {
    std::vector<ze_command_queue_group_properties_t> groups(count, ze::make<ze_command_queue_group_properties_t>());
    if (api.zeDeviceGetCommandQueueGroupProperties(device.handle, &count, groups.data()) == ZE_RESULT_SUCCESS)
      for (const auto& group : groups)
        queues += group.numQueues;
  }
  row["queues"] = queues;
  row["matrix"] = target ? matrixShape(*target) : py::none();
  return row;
}

py::list devices() {
  std::vector<ze::Device> found;
  withoutGil([&] {
    for (const auto& [name, description] : ze::Device::list())
      if (auto device = ze::Device::find(name); device.ok())
        found.push_back(*device);
  });
  py::list result;
  for (const ze::Device& device : found)
    result.append(describe(device));
  return result;
}

}  // namespace

void defineDeviceFunctions(py::module_& module) {
  module.def("targets", &targets);
  module.def("compilers", &compilers);
  module.def("devices", &devices);
}

}  // namespace zefuse::python
