// What may reach LLVM's SPIR-V back end. The back end ends the process on what it cannot legalise, so the set is closed
// and proved by tests/unit/lowering: each op, at each type it claims, scalar and as a vector.
#pragma once

#include <optional>
#include <string>

#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"

namespace zefuse {

// Why the scalar operation (in a linalg body, before vectorisation) has no SPIR-V lowering; nothing when it has one.
std::optional<std::string> whyIllegal(mlir::Operation* op);

// Why the ops of a linalg body, a kernel region, or a list of graph ops have none: the first illegal op and its reason.
struct IllegalOp {
  mlir::Operation* op;
  std::string reason;
};
std::optional<IllegalOp> findIllegal(mlir::Operation* root);

// One row per legal scalar op: its name and the classes of types it takes ("f": f32 f64; "h": f16 bf16; "i": i8..i64;
// "b": i1; "x": index). Public so that the test can enumerate the set.
struct LegalOp {
  const char* name;
  const char* types;
};
llvm::ArrayRef<LegalOp> legalOps();

}  // namespace zefuse
