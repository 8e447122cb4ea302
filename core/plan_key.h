// What a whole plan depends on, so that a process that meets the same graph again compiles nothing.
#pragma once

#include "compiler/options.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/cache/key.h"

namespace zefuse::core {

// The imported graph (stage 1) with its source lines, of files without their folders; the options that change code;
// compilerId().
CacheKey planKey(mlir::ModuleOp module, const Options& options);

}  // namespace zefuse::core
