// The plan's kernel modules as code on a device: given, from the file cache, or built from SPIR-V: now, beside the
// caller's own work, or where a library of the GPU's vendor may do what its launches do, when one is to be launched.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/cancel_check.h"
#include "common/base/fork.h"
#include "common/plan/plan_generated.h"
#include "runtime/cache/file_cache.h"
#include "runtime/executor/counters.h"
#include "runtime/executor/device_context.h"
#include "runtime/executor/executable.h"
#include "runtime/primitives/core/team_thread.h"
#include "runtime/ze/module.h"

namespace zefuse::executor {

class VendorCode;

// Its SPIR-V, in the plan's memory; empty where it carries none.
std::span<const uint32_t> spirvOf(const plan::KernelModule& module);

// Whatever native code by the device's driver depends on. Not the module's id: it is what the plan says of itself.
// `cpu_level` as in ze::Device::nativeFields.
CacheKey nativeKey(const plan::KernelModule& module, const ze::Device& device, std::string_view cpu_level = {});

// Kernels made from it must be destroyed first; `plan` and `counters` outlive it. Thread-safe.
class KernelModules {
public:
  static Result<std::unique_ptr<KernelModules>> build(const plan::Plan& plan, const ExecutableOptions& options,
                                                      Counters& counters);
  ~KernelModules();

  // Some were left for when they are needed, or are being built.
  bool isPartial() const { return missing_.load(std::memory_order_acquire) > 0; }
  // Waits for what is being built; then those of these that are missing, whatever became of that, are loaded or built,
  // side by side. So what is wrong with one is told by whoever needs it, each time.
  Status require(std::span<const size_t> which);
  // Whether nothing is being built any more within that time.
  bool isBuiltWithin(std::chrono::milliseconds time) const {
    return !building_ || generation_ != forkGeneration() || building_->endsWithin(time);
  }
  // Ends what is being built, early: of these, of all in this process.
  void endBuilding();
  static void endAllBuilding();
  // What the caller gave besides plain values (ExecutableOptions) is not used from now on.
  void forgetCaller();

  // Of the modules for the CPU (null without any), and of the plan's GPU (null in a plan for the CPU).
  const ze::Context* host() const { return host_.get(); }
  const std::shared_ptr<DeviceContext>& gpu() const { return gpu_; }
  // One that build() left out: only after require().
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
  KernelModules(const plan::Plan& plan, const ExecutableOptions& options, Counters& counters)
      : plan_(plan), options_(options), counters_(counters) {}
  const ze::Context& contextOf(const plan::KernelModule& module) const;
  // Of each module, whether all its launches may be calls of these libraries instead.
  std::vector<bool> replaceable(bool products, bool convolutions) const;
  Status buildAll(std::span<const size_t> which, VendorCode* vendor);
  Status buildMissing(std::span<const size_t> which, VendorCode* vendor);
  // Those, and of `later` those that no library of this machine replaces.
  Status buildNow(std::span<const size_t> which, const std::vector<bool>& later, VendorCode* vendor);

  const plan::Plan& plan_;
  ExecutableOptions options_;
  Counters& counters_;
  // Declared before the modules: destroyed after them.
  std::unique_ptr<ze::Context> host_;
  std::shared_ptr<DeviceContext> gpu_;
  std::vector<std::optional<ze::Module>> modules_;
  std::atomic<size_t> missing_{0};
  LongForkMutex mutex_;  // of buildMissing()
  const uint32_t generation_ = forkGeneration();
  std::atomic<bool> ending_{false};
  std::unique_ptr<primitives::TeamThread<Status>> building_;  // declared last: ends before what it uses
};

}  // namespace zefuse::executor
