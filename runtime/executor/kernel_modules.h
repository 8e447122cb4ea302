// The plan's kernel modules as code on a device: given, from the file cache, or built from SPIR-V
// now.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/cancel_check.h"
#include "common/plan/plan_generated.h"
#include "runtime/cache/file_cache.h"
#include "runtime/executor/counters.h"
#include "runtime/executor/device_context.h"
#include "runtime/ze/module.h"

namespace zefuse::executor {

class VendorCode;

// Its SPIR-V, in the plan's memory; empty where it carries none.
std::span<const uint32_t> spirvOf(const plan::KernelModule& module);

// Whatever native code by the device's driver depends on. Not the module's id: it is what the plan says of itself.
// `cpu_level` as in ze::Device::nativeFields.
CacheKey nativeKey(const plan::KernelModule& module, const ze::Device& device, std::string_view cpu_level = {});

// Immutable after build. Kernels made from it must be destroyed first.
class KernelModules {
public:
  static Result<std::unique_ptr<KernelModules>> build(const plan::Plan& plan, const ExecutableOptions& options,
                                                      Counters& counters);

  // Of the modules for the CPU (null without any), and of the plan's GPU (null in a plan for the CPU).
  const ze::Context* host() const { return host_.get(); }
  const std::shared_ptr<DeviceContext>& gpu() const { return gpu_; }
  const ze::Module& module(size_t index) const { return *modules_[index]; }
  size_t size() const { return modules_.size(); }

private:
  // What the cache has of a module. `refused`: the installed compiler's code, which the driver does not take.
  struct Kept {
    std::optional<ze::Module> module;
    bool refused = false;
  };
  // `vendor`: of modules for a GPU that is not our driver's, else null.
  static Kept load(const ze::Context& context, const plan::KernelModule& module, const FileCache& cache,
                   const VendorCode* vendor);
  static Status buildOne(const ze::Context& context, const plan::KernelModule& module, const FileCache& cache,
                         VendorCode* vendor, const CancelCheck& cancelled, Counters& counters,
                         std::optional<ze::Module>& out);

  // Declared first: destroyed after the modules.
  std::unique_ptr<ze::Context> host_;
  std::shared_ptr<DeviceContext> gpu_;
  std::vector<std::optional<ze::Module>> modules_;
};

}  // namespace zefuse::executor
