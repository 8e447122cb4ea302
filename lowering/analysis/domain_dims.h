// The dims of a domain that is being analysed: split where indices are divided, merged where every access steps through
// two as through one.
#pragma once

#include <functional>

#include "lowering/analysis/domain.h"

namespace zefuse {

class DomainDims {
public:
  // `collect`: finds the domain's nodes anew over changed dims; false: they are refused. The graph outlives this.
  DomainDims(const KernelGraph& graph, std::function<bool(Domain&)> collect)
      : graph_(graph), collect_(std::move(collect)) {}

  // A domain of the main output's dims alone.
  void start(const Domain& domain);
  // d floordiv c and d mod c of a dim whose size c divides: two dims. False: refused.
  bool split(Domain& domain);
  // Adjacent dims of one class become one where that makes no access worse. False: refused.
  bool merge(Domain& domain);

  // The main output's dims of more than one element, and what became of them.
  struct OfMain {
    mlir::AffineExpr size, index;
  };
  llvm::ArrayRef<OfMain> ofMain() const { return of_main_; }

private:
  void forEachEmitted(Domain& domain, llvm::function_ref<void(mlir::AffineExpr)> use);
  void replaceDim(Domain& domain, unsigned dim, mlir::AffineExpr with, llvm::ArrayRef<unsigned> with_dims);
  bool tryMerge(Domain& domain, unsigned outer, unsigned inner);

  const KernelGraph& graph_;
  const std::function<bool(Domain&)> collect_;
  llvm::SmallVector<OfMain> of_main_;
};

}  // namespace zefuse
