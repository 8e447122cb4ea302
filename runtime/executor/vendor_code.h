// Native code for a GPU that is not our driver's, when neither package nor cache has it: by an installed compiler that
// covers the device, else, by consent, by the driver's own just-in-time compiler. Nothing waits without an end.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/plan/plan_generated.h"
#include "common/toolchain/installed_compilers.h"
#include "runtime/cache/key.h"
#include "runtime/executor/executable.h"
#include "runtime/ze/device.h"

namespace zefuse::executor {

// Name and PCI id, what compiles for it here, and what to do where nothing does. `product`: the target's name, empty
// for an id in no table. Asks the installed compilers, once a process: tens of milliseconds, compiler_answer_deadline
// at most.
ZEFUSE_API std::string whyNotCovered(const ze::Device& device, const std::string& product,
                                     const CancelCheck& cancelled = {});

// The cache's key of what that version of a compiler makes of a kernel: made ahead of need, to look for spills, or
// here.
CacheKey vendorCodeKey(std::span<const uint32_t> spirv, const std::string& product, const InstalledCompiler& compiler);

// Thread-safe.
class VendorCode {
public:
  VendorCode(const ze::Device& device, const ExecutableOptions& options) : device_(device), options_(options) {}

  // What code by the installed compiler is kept under. It names the compiler's version: another version's code is
  // another entry. None where no compiler here covers the product. Asks the compilers as whyNotCovered does.
  std::optional<CacheKey> compilerKey(const plan::KernelModule& module) const;
  // Code for one module, which the driver may refuse: it can be older than the compiler. not_found: no compiler covers
  // the product; deadline, device: it hung or failed, with what it printed; cancelled.
  Result<std::vector<std::byte>> byCompiler(const plan::KernelModule& module) const;
  // By the driver's own compiler. `refused`: there is code by the installed one, and the driver does not take it.
  // not_found without consent: the message says what to do. Else as byCompiler.
  Result<std::vector<std::byte>> byDriver(const plan::KernelModule& module, bool refused);

  // Before the first kernel of so many.
  void expect(size_t count) { count_ = count; }

private:
  Result<InstalledCompiler> compilerFor(const std::string& product) const {
    return installedCompilerFor(product, compiler_answer_deadline, options_.cancelled);
  }

  const ze::Device& device_;
  const ExecutableOptions& options_;
  size_t count_ = 0;
  std::mutex mutex_;  // guards what follows
  size_t started_ = 0;
};

}  // namespace zefuse::executor
