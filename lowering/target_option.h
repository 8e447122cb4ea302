// The option `target` of passes.
#pragma once

#include <optional>

#include "common/toolchain/target_description.h"
#include "mlir/IR/Operation.h"

namespace zefuse {

// The target of this name. Where there is none, `op` gets the error, and the pass fails.
std::optional<TargetDescription> targetNamed(mlir::Operation* op, llvm::StringRef name);

}  // namespace zefuse
