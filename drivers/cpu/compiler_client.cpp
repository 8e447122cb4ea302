// codegen.h's compileSpirv for the driver: the compiler, with all of LLVM, is a library of its own that is loaded when
// SPIR-V comes. A process that finds its kernels in a package or a cache never pays for it (some 35 ms).
#include <dlfcn.h>

#include "common/base/fork.h"
#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/compiler_library.h"

namespace zefuse::cpu {
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

}  // namespace zefuse::cpu
