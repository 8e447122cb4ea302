#include <algorithm>
#include <string>
#include <string_view>

#include "common/toolchain/installed_compilers.h"
#include "common/toolchain/targets.h"
#include "runtime/reports/json_text.h"
#include "runtime/reports/reports.h"
#include "runtime/ze/convolution.h"
#include "runtime/ze/device.h"
#include "runtime/ze/product.h"

namespace zefuse::reports {
namespace {

using json::List;
using json::Object;

/// Rows, columns and depth of one matrix instruction on 16-bit elements; null without an engine.
json::Text matrixShape(const GpuTarget& target) {
  const MatrixOperation* operation = target.matrix.find("f16");
  if (!operation)
    return json::null;
  List shape;
  shape.add(operation->m);
  shape.add(operation->n);
  shape.add(operation->k);
  return shape.text();
}

Object described(const GpuTarget& target) {
  List sizes, versions;
  for (uint32_t size : {8u, 16u, 32u})
    if (target.subgroup_sizes & size)
      sizes.add(size);
  for (std::string_view rest = target.compilers; !rest.empty();) {
    const size_t end = std::min(rest.find(", "), rest.size());
    versions.add(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  Object row;
  row.add("vendor_id", target.vendor)
      .add("name", target.product)
      .add("alias", target.alias)
      .add("family", target.family)
      .add("marketing", target.marketing)
      .add("integrated", target.integrated)
      .add("engines", target.engines)
      .add("threads_per_engine", target.threads_per_engine)
      .add("max_group_size", target.max_group_size)
      .add("local_memory_kib", target.local_memory_kib)
      .add("subgroup_sizes", sizes)
      .add("f64", target.native.f64)
      .add("matrix", matrixShape(target))
      .add("compiler", target.compiler)
      .add("compilers", versions)
      .add("device_ids", json::listOf(target.device_ids));
  return row;
}

uint64_t memoryOf(const ze::Device& device) {
  uint32_t count = 0;
  const ze::Api& api = *device.api;
  if (api.zeDeviceGetMemoryProperties(device.handle, &count, nullptr) != ZE_RESULT_SUCCESS)
    return 0;
  std::vector<ze_device_memory_properties_t> memories(count, ze::make<ze_device_memory_properties_t>());
  if (api.zeDeviceGetMemoryProperties(device.handle, &count, memories.data()) != ZE_RESULT_SUCCESS)
    return 0;
  uint64_t bytes = 0;
  for (const auto& one : memories)
    bytes += one.totalSize;
  return bytes;
}

uint32_t queuesOf(const ze::Device& device) {
  uint32_t count = 0;
  const ze::Api& api = *device.api;
  if (api.zeDeviceGetCommandQueueGroupProperties(device.handle, &count, nullptr) != ZE_RESULT_SUCCESS)
    return 0;
  std::vector<ze_command_queue_group_properties_t> groups(count, ze::make<ze_command_queue_group_properties_t>());
  if (api.zeDeviceGetCommandQueueGroupProperties(device.handle, &count, groups.data()) != ZE_RESULT_SUCCESS)
    return 0;
  uint32_t queues = 0;
  for (const auto& group : groups)
    queues += group.numQueues;
  return queues;
}

Object described(const ze::Device& device) {
  const auto& properties = device.properties;
  const bool cpu = device.isCpu();
  const GpuTarget* target = cpu ? nullptr : findGpuTarget(device.product());
  const VendorCompiler* vendor = target ? vendorCompilerOf(target->product) : nullptr;
  const Result<std::string> library = ze::productLibrary(device), convolutions = ze::convolutionLibrary(device);
  Object row;
  row.add("device", device.name)
      .add("kind", cpu ? "cpu" : "gpu")
      .add("name", device.description)
      .add("vendor_id", properties.vendorId)
      .add("device_id", properties.deviceId)
      .add("advice_on_compilers", vendor ? json::of(vendor->advice) : json::null)
      .add("target", cpu      ? json::of(cpuTargets()[hostCpuLevel()].name)
                     : target ? json::of(target->product)
                              : json::null)
      .add("built_in", device.hasOurCompiler())
      .add("integrated", cpu || (properties.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0)
      .add("units", uint64_t(properties.numSlices) * properties.numSubslicesPerSlice * properties.numEUsPerSubslice)
      .add("memory_bytes", memoryOf(device))
      .add("queues", queuesOf(device))
      .add("matrix", target ? matrixShape(*target) : json::null)
      .add("product_library", library.ok() ? json::of(*library) : json::null)
      .add("no_product_library", library.ok() || cpu ? json::null : json::of(library.status().message()))
      .add("convolution_library", convolutions.ok() ? json::of(*convolutions) : json::null)
      .add("no_convolution_library", convolutions.ok() || cpu ? json::null : json::of(convolutions.status().message()));
  return row;
}

}  // namespace

std::string ofTargets() {
  List cpus, gpus;
  for (size_t level = 0; level < cpuTargets().size(); ++level) {
    const CpuTarget& target = cpuTargets()[level];
    cpus.add(Object()
                 .add("name", target.name)
                 .add("alias", target.alias)
                 .add("needs", target.needs)
                 .add("runs", level <= hostCpuLevel())
                 .add("host", level == hostCpuLevel()));
  }
  for (const GpuTarget& target : gpuTargets())
    gpus.add(described(target));
  return Object().add("cpu", cpus).add("gpu", gpus).text().json;
}

std::string ofCompilers() {
  List rows;
  for (const InstalledCompiler& compiler : installedCompilers()) {
    if (!compiler.problem.ok())
      continue;  // it does not run
    List products;
    for (const GpuTarget& target : gpuTargets())
      if (std::ranges::find(compiler.devices, target.product) != compiler.devices.end())
        products.add(target.product);
    rows.add(Object().add("command", compiler.command).add("version", compiler.version).add("products", products));
  }
  return rows.text().json;
}

Result<std::string> ofDevices() {
  List rows;
  const Result<ze::Device> cpu = ze::Device::find("cpu");
  if (!cpu.ok() && ze::Device::list().empty())
    return cpu.status();
  for (const auto& [name, description] : ze::Device::list())
    if (auto device = ze::Device::find(name); device.ok())
      rows.add(described(*device));
  return rows.text().json;
}

}  // namespace zefuse::reports
