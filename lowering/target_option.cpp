#include "lowering/target_option.h"

namespace zefuse {

std::optional<TargetDescription> targetNamed(mlir::Operation* op, llvm::StringRef name) {
  auto target = TargetDescription::named(name);
  if (!target)
    op->emitError() << "'" << name << "' is no target; `zefuse targets` lists what there is";
  return target;
}

}  // namespace zefuse
