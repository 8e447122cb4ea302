// What every code generation asks of a module that the reader made: valid IR, LLVM's own complaints in the log, and
// calls that can all be inlined into the kernels.
#pragma once

#include "drivers/spirv/markers.h"

#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/Module.h"

#include <map>
#include <string>

namespace zefuse::spirv {

// LLVM's own diagnostics go to the log instead of stderr and exit.
struct DiagnosticLog : llvm::DiagnosticHandler {
  explicit DiagnosticLog(std::string& text) : text(text) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override;
  std::string& text;
};

void checkIr(const llvm::Module& module, const char* stage);  // throws CompileError

// Kernels inline all they call. Size after that, and whether markers (work-item state) are used below a function.
// Throws CompileError for a recursive function, and where inlining would make too much.
class CallGraphSizes {
public:
  explicit CallGraphSizes(const Markers& markers) : markers_(markers) {}
  struct Info {
    uint64_t size = 0;
    bool uses_markers = false;
    bool open = false;
  };
  const Info& visit(llvm::Function& f);
  void addKernel(llvm::Function& f);  // counts its size towards the module's

private:
  const Markers& markers_;
  std::map<llvm::Function*, Info> info_;
  unsigned depth_ = 0;
  uint64_t total_ = 0;
};

}  // namespace zefuse::spirv
