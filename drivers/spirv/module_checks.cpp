#include "drivers/spirv/module_checks.h"

#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

namespace zefuse::spirv {
namespace {

constexpr uint64_t kMaxInlinedInstructions = 1u << 20;

}  // namespace

bool DiagnosticLog::handleDiagnostics(const llvm::DiagnosticInfo& info) {
  if (info.getSeverity() == llvm::DS_Error) {
    llvm::raw_string_ostream out(text);
    llvm::DiagnosticPrinterRawOStream printer(out);
    info.print(printer);
    out << "\n";
  }
  return true;
}

void checkIr(const llvm::Module& module, const char* stage) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (llvm::verifyModule(module, &out))
    throw CompileError(std::string("invalid LLVM IR after ") + stage + ": " + text);
}

const CallGraphSizes::Info& CallGraphSizes::visit(llvm::Function& f) {
  auto [it, fresh] = info_.try_emplace(&f);
  if (!fresh) {
    if (it->second.open)
      throw CompileError("SPIR-V: recursive function");
    return it->second;
  }
  it->second.open = true;
  if (++depth_ > 256)
    throw CompileError("SPIR-V: calls are nested deeper than 256");
  Info sum;
  for (llvm::Instruction& i : llvm::instructions(f)) {
    ++sum.size;
    sum.uses_markers |= markers_.asQuery(&i) || markers_.asSync(&i) || markers_.asLocalVariable(&i);
    auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
    if (call && call->getCalledFunction() && !call->getCalledFunction()->isDeclaration()) {
      const Info& callee = visit(*call->getCalledFunction());
      sum.size += callee.size;
      sum.uses_markers |= callee.uses_markers;
    }
    if (sum.size > kMaxInlinedInstructions)
      throw CompileError("SPIR-V: more than " + std::to_string(kMaxInlinedInstructions) +
                         " instructions after inlining");
  }
  --depth_;
  return info_[&f] = sum;
}

void CallGraphSizes::addKernel(llvm::Function& f) {
  total_ += visit(f).size;
  if (total_ > 4 * kMaxInlinedInstructions)
    throw CompileError("SPIR-V: more than " + std::to_string(4 * kMaxInlinedInstructions) +
                       " instructions after inlining");
}

}  // namespace zefuse::spirv
