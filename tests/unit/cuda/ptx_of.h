// What the driver over CUDA makes of a kernel in this folder.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "drivers/cuda/codegen/codegen.h"
#include "tests/unit/codegen/harness.h"

namespace zefuse::cpu::testing {

// `name`: of the kernel's file, without its ending. Compiled for sm_80. Empty, and the test fails, where that does not
// succeed.
inline std::string ptxOf(const std::string& name) {
  cuda::CompileOptions options;
  options.architecture = 80;
  const cuda::CompileResult compiled = cuda::compileSpirv(loadSpirv("../cuda/" + name), options);
  EXPECT_TRUE(compiled.ok) << compiled.log;
  return compiled.ok ? reinterpret_cast<const char*>(compiled.program.image.data()) : "";
}

}  // namespace zefuse::cpu::testing
