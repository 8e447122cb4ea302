// A zefuse.kernel as the analysis sees it (domain.h), and what fusion asks of a kernel before it is lowered.
#pragma once

#include <optional>
#include <string>

#include "lowering/analysis/domain.h"
#include "lowering/dialect/Zefuse.h"

namespace zefuse {

llvm::SmallVector<mlir::AffineMap> layoutsOf(KernelOp kernel);
unsigned graphSymbolsOf(KernelOp kernel);  // the graph's symbols that its types and views may name: 0..count - 1

// The results of a kernel's part: its number of the first, and how many.
struct Part {
  size_t first, count;
};
// A kernel without `parts` is one part.
llvm::SmallVector<Part> partsOf(KernelOp kernel);

// `layouts` outlive the result. Of a batch of tensors of different sizes, `set_size` becomes the symbol that stands for
// the size of one.
KernelGraph graphOf(KernelOp kernel, llvm::ArrayRef<mlir::AffineMap> layouts, Part part, mlir::AffineExpr& set_size);

// Makes the size of the domain's one dim the batch's symbol. A reason when the domain is not one contiguous dim.
std::optional<std::string> useBatchSizes(Domain& domain, const KernelGraph& graph, mlir::AffineExpr symbol);

// Why no schedule finds an iteration space for the kernel and its layouts; nothing: one does.
std::optional<std::string> whyNotScheduled(KernelOp kernel);

// Whether the kernel may store `result` where `input` lies (numbers in the body; equal layouts are the caller's to see
// to): every element is computed once, and read where it is written only; or it is a scatter into `input`, which
// nothing else in the kernel reads. `with_reductions`: what is stored per row of a reduction may be, too (running
// statistics).
bool mayWriteInPlace(KernelOp kernel, unsigned input, unsigned result, bool with_reductions);

}  // namespace zefuse
