#include "drivers/cpu/compiler_library.h"

// The build id of the LLVM that this was built with: in here, so that it is part of this library's own.
extern "C" __attribute__((visibility("default"))) const char zefuse_cpu_compiler_llvm[] = ZEFUSE_LLVM_BUILD_ID;

extern "C" __attribute__((visibility("default"))) void zefuse_cpu_compile_1(const uint32_t* words, size_t count,
                                                                            const zefuse::cpu::CompileOptions& options,
                                                                            zefuse::cpu::CompileResult& result) {
  result = zefuse::cpu::compileSpirv({words, count}, options);
}

extern "C" __attribute__((visibility("default"))) void
zefuse_cpu_link_1(const std::vector<uint32_t>* modules, size_t count, zefuse::cpu::LinkResult& result) {
  result = zefuse::cpu::linkSpirv({modules, count});
}
