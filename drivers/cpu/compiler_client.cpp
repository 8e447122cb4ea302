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
  LinkerEntry linker = nullptr;
  std::string error;
};

Compiler loadCompiler() {
  const std::string path = compilerPath();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the rest of the process
  if (!library) {
    const char* reason = dlerror();
    return {nullptr, nullptr, "no compiler for SPIR-V: " + std::string(reason ? reason : path)};
  }
  auto entry = reinterpret_cast<CompilerEntry>(dlsym(library, compiler_entry_name));
  auto linker = reinterpret_cast<LinkerEntry>(dlsym(library, linker_entry_name));
  return {entry, linker, entry && linker ? "" : path + " is not of this driver's version; reinstall zefuse"};
}

const Compiler& compiler() {
  static const Compiler loaded = loadCompiler();
  return loaded;
}

}  // namespace

CompileResult compileSpirv(std::span<const uint32_t> words, const CompileOptions& options) {
  const WithoutFork without_fork;  // LLVM has locks of its own, and a child no thread that would finish loading it
  CompileResult result;
  if (compiler().error.empty())
    compiler().entry(words.data(), words.size(), options, result);
  else
    result.log = compiler().error + "\n";
  return result;
}

LinkResult linkSpirv(std::span<const std::vector<uint32_t>> modules) {
  const WithoutFork without_fork;
  LinkResult result;
  if (compiler().error.empty())
    compiler().linker(modules.data(), modules.size(), result);
  else
    result.log = compiler().error + "\n";
  return result;
}

}  // namespace zefuse::cpu
