// codegen.h's compileSpirv for the driver: the compiler, with all of LLVM, is a library of its own that is loaded when
// SPIR-V comes.
#include <dlfcn.h>

#include "common/base/build_id.h"
#include "common/base/fork.h"
#include "drivers/cuda/codegen/codegen.h"
#include "drivers/cuda/compiler_library.h"
#include "drivers/level_zero/build_version.h"

namespace zefuse::cuda {
namespace {

struct Compiler {
  CompilerEntry entry = nullptr;
  std::string error;
};

Compiler loadCompiler() {
  const std::string path = compilerPath();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the rest of the process
  if (!library) {
    const char* reason = dlerror();
    return {nullptr, "no compiler for SPIR-V: " + std::string(reason ? reason : path)};
  }
  auto entry = reinterpret_cast<CompilerEntry>(dlsym(library, compiler_entry_name));
  return {entry, entry ? "" : path + " is not of this driver's version; reinstall zefuse"};
}

}  // namespace

std::string compilerPath() {
  return level_zero::pathBeside(reinterpret_cast<const void*>(&compilerPath), ZEFUSE_CUDA_COMPILER_LIBRARY);
}

CompileResult compileSpirv(std::span<const uint32_t> words, const CompileOptions& options) {
  const WithoutFork without_fork;  // LLVM has locks of its own, and a child no thread that would finish loading it
  static const Compiler compiler = loadCompiler();
  CompileResult result;
  if (compiler.entry)
    compiler.entry(words.data(), words.size(), options, result);
  else
    result.log = compiler.error + "\n";
  return result;
}

}  // namespace zefuse::cuda
