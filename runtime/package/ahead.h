// Native code made ahead of need: of a plan's kernels, for targets that this machine need not have.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/base/status.h"
#include "common/plan/plan_generated.h"
#include "runtime/cache/key.h"

namespace zefuse::package {

struct NativeCode {
  std::string module;  // its id in the plan
  std::string target;  // "avx2", "dg2-g11"
  std::vector<std::byte> bytes;
};

struct AheadOptions {
  std::string cache_dir;  // where such code is looked for and kept; empty: nowhere
  uint64_t cache_limit = uint64_t(2) << 30;
  int threads = 0;                             // compilers at once; 0: one per core
  std::chrono::milliseconds deadline{60'000};  // of one compiler
  // Called after each kernel, from any thread, one call at a time: entry point, target, seconds (0: from the cache),
  // how many of all are done. False ends the work with Code::cancelled.
  std::function<bool(const std::string& kernel, const std::string& target, double seconds, size_t done, size_t all)>
      progress;
  CancelCheck cancelled;
};

// Code for each kernel module of `plan`: one for each level of x86-64 among `targets` where the module is the CPU's,
// one for its own GPU product otherwise (common/toolchain/targets.h). In the order of modules, then targets; the same
// input gives the same bytes. Errors: invalid_argument (a module that no target fits), and what the compilers say, with
// the kernel's name.
ZEFUSE_API Result<std::vector<NativeCode>> compileAhead(const plan::Plan& plan, const std::vector<std::string>& targets,
                                                        const AheadOptions& options);

}  // namespace zefuse::package
