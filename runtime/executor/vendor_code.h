// Native code for a GPU that is not our driver's, when neither package nor cache has it: by an installed compiler that
// covers the device, else, by consent, by the driver's own just-in-time compiler. Nothing waits without an end.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compiler/plan/plan_generated.h"
#include "lowering/native/ocloc.h"
#include "runtime/cache/file_cache.h"
#include "runtime/executor/executable.h"
#include "runtime/ze/device.h"

namespace zefuse::executor {

// Name and PCI id, what compiles for it here, and what to do where nothing does. `product`: the target's name, empty
// for an id in no table. Asks the installed
// compilers, once a process: tens of milliseconds, compiler_answer_deadline at most.
std::string whyNotCovered(const ze::Device& device, const std::string& product);

// The cache's key of what ocloc of that version makes of a kernel: made ahead of need, to look for spills, or here.
CacheKey oclocKey(std::span<const uint32_t> spirv, const std::string& product, const std::string& ocloc_version);

// Thread-safe.
class VendorCode {
public:
  VendorCode(const ze::Device& device, const ExecutableOptions& options, const FileCache& cache)
      : device_(device), options_(options), cache_(cache) {}

  struct Code {
    std::vector<std::byte> bytes;
    bool by_driver = false;  // made by the driver itself, so it is the driver's that loads it
  };
  // Code for one module. `refused`: the driver did not take what the installed compiler made, so it must make it.
  // not_found without a covering compiler and consent: the message says what to do. deadline, device: a compiler hung
  // or failed, with what it printed.
  Result<Code> make(const plan::KernelModule& module, bool refused = false);

  // Before the first kernel of so many.
  void expect(size_t count) { count_ = count; }

private:
  Result<std::vector<std::byte>> byDriver(const plan::KernelModule& module);

  const ze::Device& device_;
  const ExecutableOptions& options_;
  const FileCache& cache_;
  size_t count_ = 0;
  std::mutex mutex_;  // guards what follows
  size_t started_ = 0;
};

}  // namespace zefuse::executor
