// The arguments of zefuse.aten (Zefuse.td) in the plan's form.
#pragma once

#include <cstdint>
#include <memory>

#include "mlir/IR/Attributes.h"
#include "llvm/ADT/ArrayRef.h"

namespace zefuse::plan {
struct ArgumentT;
}

namespace zefuse {
class ExprTable;

// `operands`: the plan's value of each tensor operand. nullptr when the attribute has no form in a plan.
std::unique_ptr<plan::ArgumentT> atenArgument(mlir::Attribute attr, llvm::ArrayRef<uint32_t> operands,
                                              ExprTable& exprs);

}  // namespace zefuse
