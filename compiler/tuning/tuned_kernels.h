// What `zefuse tune` measured: of kernels, the decisions (lowering/schedule/core/decisions.h) that were quicker than
// the cost model's, and of operators who carries them out (import/implementations.h).
#pragma once

#include <map>
#include <string>

#include "lowering/lower.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LogicalResult.h"

namespace zefuse {

struct TunedKernel {
  Tuning choice;
  double before_us = 0, after_us = 0;  // a launch, by the cost model and by the choice
};
using TunedKernels = std::map<std::string, TunedKernel>;  // by hashOfKey (fuse/kernel_key.h), operatorKey

// Of Options::tuning: {"<hash>": {"choice": {"<name>": 4}, "before_us": 12.5, "after_us": 10.0}, ...}. Fails with what
// is wrong with the text; empty text is an empty table.
llvm::FailureOr<TunedKernels> readTuning(llvm::StringRef json, std::string& error);

}  // namespace zefuse
