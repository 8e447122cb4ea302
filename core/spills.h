// What a GPU's own compiler spills of a kernel.
#pragma once

#include <string>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/toolchain/installed_compilers.h"
#include "lowering/spill_survey.h"
#include "runtime/cache/file_cache.h"

namespace zefuse::core {

// Asks the compiler of the product, on up to `threads` at a time (0: as many as cores): a kernel's code is kept in
// `cache` where it is looked for when the plan is built, and the answer beside it, since a cache that was filled before
// must not change the plan. What it cannot compile has no answer, nor have kernels after it is cancelled: such a plan
// must not be kept. `cache` must outlive the survey.
ZEFUSE_API SpillSurvey spillSurvey(const std::string& product, const InstalledCompiler& compiler,
                                   const FileCache& cache, int threads, const CancelCheck& cancelled);

}  // namespace zefuse::core
