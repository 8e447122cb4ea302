// Whether one kernel can hold some graph ops: pure analysis for the fusion pass. What it accepts, lowerKernel lowers
// (a product for the targets that whyNoProductKernel names none for, lower.h).
#pragma once

#include <optional>
#include <string>

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"

namespace zefuse {

struct KernelShape {
  enum class Kind {
    pointwise,  // no reduction
    reduction   // every reduction keeps the same rows; the other dimensions are walked once per stage
  };
  Kind kind = Kind::pointwise;
  llvm::SmallVector<mlir::AffineExpr> rows;     // sizes, over graph symbols; pointwise: the whole domain, merged or not
  llvm::SmallVector<mlir::AffineExpr> columns;  // sizes of what the outputs add to the rows (empty: one value per row)
  unsigned reductions = 0;                      // reduction values computed per row
  unsigned stages = 0;                          // dependent passes over a row: layer_norm 3, softmax 3, sum 1
};

// `ops`: linalg.generic, zefuse.view, tensor.concat, zefuse.{pad,scan,scatter,sort,matmul}, linalg.fill, tensor.empty,
// zefuse.size and arith.constant of one block, in any order. A linalg.fill, tensor.empty, zefuse.size or scalar
// constant that an op uses may be left out. Outputs are the results of linalg.generic, tensor.concat,
// zefuse.{pad,scan,scatter,sort,matmul} that an op outside `ops` reads, directly or through views; tensors defined
// outside are inputs. Returns the reason why they cannot be one kernel, nothing when they can. `shape`: filled when
// they can. Cost: linear in the ops, also where each is an output (a value is visited once per distinct index
// expression; where no output has a place at first, once for each that may drive; ops that work element for element are
// only looked at), no emission. Thread-safe.
std::optional<std::string> whyNotOneKernel(llvm::ArrayRef<mlir::Operation*> ops, KernelShape* shape = nullptr);

// Whether an op outside of these reads the value, directly or through views, which belong to whoever reads them.
bool isReadOutside(mlir::Value value, const llvm::DenseSet<mlir::Operation*>& inside);

// Whether these ops could be in any kernel: legality only. The reason names op and type.
std::optional<std::string> whyNotLowerable(mlir::Operation* op);

}  // namespace zefuse
