#include "drivers/cuda/compiler_library.h"

// The build id of the LLVM that this was built with: in here, so that it is part of this library's own.
extern "C" __attribute__((visibility("default"))) const char zefuse_cuda_compiler_llvm[] = ZEFUSE_LLVM_BUILD_ID;

extern "C" __attribute__((visibility("default"))) void
zefuse_cuda_compile_1(const uint32_t* words, size_t count, const zefuse::cuda::CompileOptions& options,
                      zefuse::cuda::CompileResult& result) {
  result = zefuse::cuda::compileSpirv({words, count}, options);
}
