// Defines the math functions a module calls, from the bitcode built of math_library.cpp.
#include "drivers/cuda/codegen/backend.h"
#include "drivers/spirv/spirv_module.h"

#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/MemoryBuffer.h"

namespace zefuse::cuda {
namespace {

alignas(16) const unsigned char kBitcode[] = {
#include "cuda_math_library_bitcode.inc"
};

}  // namespace

void linkMathLibrary(llvm::Module& module) {
  std::vector<std::string> needed;
  for (llvm::Function& f : module)
    if (f.isDeclaration() && f.getName().starts_with("zf_") && !f.use_empty())
      needed.push_back(f.getName().str());
  if (needed.empty())
    return;
  auto buffer = llvm::MemoryBuffer::getMemBuffer(
      llvm::StringRef(reinterpret_cast<const char*>(kBitcode), sizeof kBitcode), "math", false);
  auto library = llvm::getOwningLazyBitcodeModule(std::move(buffer), module.getContext());
  if (!library)
    throw spirv::CompileError("the math library cannot be read: " + llvm::toString(library.takeError()));
  (*library)->setDataLayout(module.getDataLayout());
  (*library)->setTargetTriple(module.getTargetTriple());
  if (llvm::Linker::linkModules(module, std::move(*library), llvm::Linker::LinkOnlyNeeded))
    throw spirv::CompileError("the math library cannot be linked");
  for (const std::string& name : needed) {
    llvm::Function* f = module.getFunction(name);
    if (!f || f->isDeclaration())
      throw spirv::CompileError("the math library for NVIDIA GPUs has no " + name);
  }
  for (llvm::Function& f : module) {
    if (f.isDeclaration() || f.getCallingConv() == llvm::CallingConv::PTX_Kernel)
      continue;
    f.setLinkage(llvm::GlobalValue::InternalLinkage);
    f.removeFnAttr("target-cpu");  // the module's machine decides
    f.removeFnAttr("target-features");
    f.removeFnAttr("no-builtins");  // would forbid inlining
  }
}

}  // namespace zefuse::cuda
