#include "python/csrc/settings.h"

#include <ATen/Context.h>
#include <cstdlib>

#include "common/base/variables.h"
#include "common/toolchain/target_description.h"
#include "common/toolchain/targets.h"
#include "compiler/dump.h"
#include "python/csrc/errors.h"
#include "python/csrc/tensors.h"
#include "runtime/cache/file_cache.h"
#include "runtime/executor/vendor_code.h"
#include "runtime/ze/device.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

std::string environmentOr(const char* variable, const std::string& otherwise) {
  const char* value = std::getenv(variable);
  return value && *value ? value : otherwise;
}

/// What kernels for a device are compiled for.
std::string targetOf(const std::string& device_name) {
  if (device_name == "cpu")
    return "cpu";
  auto device = unwrap(ze::Device::find(device_name));
  std::string product = device.product();
  if (product.empty())
    raise("not_found", executor::whyNotCovered(device, ""));
  if (!findGpuTarget(product))
    raise("not_found",
          std::string(ze::kGpuTargetVariable) + "='" + product + "': no such target; `zefuse targets` lists them");
  return product;
}

}  // namespace

Settings settingsOf(const py::dict& given) {
  Settings settings;
  settings.run.cancelled = settings.interrupts.asked();
  auto text = [&](const char* name, const std::string& otherwise) {
    return given.contains(name) && !given[name].is_none() ? py::cast<std::string>(given[name]) : otherwise;
  };
  auto flag = [&](const char* name, bool otherwise) {
    return given.contains(name) ? py::cast<bool>(given[name]) : otherwise;
  };
  settings.run.device = text("device", "cpu");
  if (const std::string place = text("place", ""); !place.empty()) {
    settings.place = c10::Device(place);
    settings.run.in_streams = true;
    if (const Status known = makeKnown(*settings.place, settings.run.device); !known.ok())
      raise(known);
  }
  settings.compile.device = settings.run.device == "cpu" ? "cpu" : "gpu";  // a plan is for every device of a kind
  settings.compile.target = text("target", "");
  if (settings.compile.target.empty())
    settings.compile.target = targetOf(settings.run.device);
  settings.compile.strict = flag("strict", false);
  settings.compile.fuse = flag("fuse", true);
  settings.compile.library_products = text("library_products", "auto");
  settings.compile.library_convolutions = text("library_convolutions", "auto");
  settings.compile.kept_weights = flag("kept_weights", false);
  // Of CPU tensors that a GPU computes with, convolutions are the CPU's, which round nothing.
  if (const auto target = TargetDescription::named(settings.compile.target);
      target && !target->product_library.empty()) {
    auto tf32 = [](at::Float32Op op) {
      return at::globalContext().float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32;
    };
    settings.compile.tf32_products = tf32(at::Float32Op::MATMUL);
    settings.compile.tf32_convolutions = settings.place && settings.place->is_cuda() && tf32(at::Float32Op::CONV);
  }
  settings.compile.tuning = text("tuning", "");
  settings.compile.list_decisions = flag("list_decisions", false);
  settings.compile.dump_dir = text("dump_dir", environmentOr(kDumpVariable, ""));
  settings.compile.cache_dir = settings.run.cache_dir = text("cache_dir", environmentOr(kCacheVariable, ""));
  const std::string jit = text("jit", environmentOr(kJitVariable, "never"));
  if (jit != "never" && jit != "warn" && jit != "allow")
    raise("invalid_argument", std::string(kJitVariable) + "='" + jit + "': expected never, warn or allow");
  settings.run.jit = jit == "never" ? JitConsent::never : jit == "warn" ? JitConsent::warn : JitConsent::allow;
  if (given.contains("jit_timeout_s"))
    settings.run.jit_timeout_s = py::cast<int>(given["jit_timeout_s"]);
  settings.run.jit_progress = [jit](const std::string& device, const std::string& kernel, size_t number, size_t count) {
    py::gil_scoped_acquire acquired;
    try {
      py::module_::import("zefuse.targets").attr("jit_progress")(jit, device, kernel, number, count);
      return true;
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("zefuse: progress of the driver's compiler");
      return false;
    }
  };
  settings.run.build_beside = flag("build_beside", false);
  settings.run.synchronous = flag("synchronous", false);
  settings.package = text("package", environmentOr(kPackageVariable, ""));
  settings.package_only = flag("package_only", false);
  if (given.contains("cache_limit_mb") && !given["cache_limit_mb"].is_none())
    settings.run.cache_limit = py::cast<uint64_t>(given["cache_limit_mb"]) << 20;
  if (given.contains("build_threads"))
    settings.compile.build_threads = settings.run.build_threads = py::cast<int>(given["build_threads"]);
  if (given.contains("device_timeout_s"))
    settings.run.device_timeout_s = py::cast<int>(given["device_timeout_s"]);
  return settings;
}

}  // namespace zefuse::python
