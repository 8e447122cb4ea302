// Defines the math and image functions a module calls, from the bitcode built of math/math_library.cpp and
// image/image_library.cpp.
#include "drivers/cpu/codegen/backend.h"
#include "drivers/spirv/spirv_module.h"

#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/MemoryBuffer.h"

#include <span>

namespace zefuse::cpu {
namespace {

alignas(16) const unsigned char kBitcode[] = {
#include "math_library_bitcode.inc"
};
alignas(16) const unsigned char kImageBitcode[] = {
#include "image_library_bitcode.inc"
};

void linkLibrary(llvm::Module& module, IsaLevel isa, const char* name_of_library,
                 std::span<const unsigned char> bitcode, std::vector<std::string> needed) {
  if (needed.empty())
    return;
  auto buffer = llvm::MemoryBuffer::getMemBuffer(
      llvm::StringRef(reinterpret_cast<const char*>(bitcode.data()), bitcode.size()), name_of_library, false);
  auto library = llvm::getOwningLazyBitcodeModule(std::move(buffer), module.getContext());
  if (!library)
    throw spirv::CompileError(std::string("the ") + name_of_library +
                              " library cannot be read: " + llvm::toString(library.takeError()));
  if (isa >= IsaLevel::avx512)
    for (std::string& name : needed) {
      std::string wide = name + "_avx512";
      if (!(*library)->getFunction(wide))
        continue;
      module.getFunction(name)->setName(wide);
      name = wide;
    }
  (*library)->setDataLayout(module.getDataLayout());
  (*library)->setTargetTriple(module.getTargetTriple());
  if (llvm::Linker::linkModules(module, std::move(*library), llvm::Linker::LinkOnlyNeeded))
    throw spirv::CompileError(std::string("the ") + name_of_library + " library cannot be linked");
  for (const std::string& name : needed) {
    llvm::Function* f = module.getFunction(name);
    if (!f || f->isDeclaration())
      throw spirv::CompileError(std::string("the ") + name_of_library + " library has no " + name);
    f->setLinkage(llvm::GlobalValue::InternalLinkage);
  }
}

}  // namespace

void linkLibraries(llvm::Module& module, IsaLevel isa) {
  std::vector<std::string> math, image;
  for (llvm::Function& f : module)
    if (f.isDeclaration() && f.getName().starts_with("zf_") && !f.use_empty())
      (f.getName().starts_with("zf_image_") ? image : math).push_back(f.getName().str());
  linkLibrary(module, isa, "math", kBitcode, std::move(math));
  linkLibrary(module, isa, "image", kImageBitcode, std::move(image));
}

}  // namespace zefuse::cpu
