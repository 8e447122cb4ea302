// Kernels from one MLIRContext to another: contexts serve one thread each.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lowering/lower.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace zefuse {

// A zefuse.kernel or a library operation with the layouts of its operands and results, as bytes (MLIR's bytecode).
std::string packKernel(mlir::Operation* op, llvm::ArrayRef<mlir::AffineMap> layouts);

struct PackedKernel {
  mlir::OwningOpRef<mlir::ModuleOp> module;  // owns `op`, which stands there as it does in its graph
  mlir::Operation* op;
  llvm::SmallVector<mlir::AffineMap> layouts;
};
// Of what packKernel made; `context` has all dialects loaded.
PackedKernel unpackKernel(llvm::StringRef bytes, mlir::MLIRContext& context);

// The kernel's expressions, of whatever context, become ones of `context`.
void moveTo(mlir::MLIRContext* context, LoweredKernel& kernel);

// Contexts with all dialects, as many as are used at one time. Thread-safe.
class KernelContexts {
public:
  // Gives the context back when it ends; not before may KernelContexts end.
  class Borrowed {
  public:
    Borrowed(KernelContexts& from, mlir::MLIRContext* context) : from_(from), context_(context) {}
    Borrowed(const Borrowed&) = delete;
    ~Borrowed();
    mlir::MLIRContext& operator*() const { return *context_; }

  private:
    KernelContexts& from_;
    mlir::MLIRContext* context_;
  };
  Borrowed borrow();

private:
  std::mutex mutex_;  // never held while another thread is waited for
  std::deque<std::unique_ptr<mlir::MLIRContext>> made_;
  std::vector<mlir::MLIRContext*> free_;
};

}  // namespace zefuse
