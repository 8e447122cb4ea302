// What the compiler for NVIDIA's GPUs refuses that the CPU's has.
#include "drivers/cuda/codegen/codegen.h"
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>

namespace zefuse::cpu::testing {
namespace {

TEST(CudaRefusals, ImagesAndSamplers) {
  const cuda::CompileResult result = cuda::compileSpirv(loadSpirv("images"), {});
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(0u, result.log.find("SPIR-V: capability 13 is not supported")) << result.log;  // ImageBasic
}

}  // namespace
}  // namespace zefuse::cpu::testing
