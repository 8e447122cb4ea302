// SPIR-V (OpenCL kernel flavour) to PTX. No Level Zero, CUDA or LLVM type appears here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "drivers/cuda/program.h"

namespace zefuse::cuda {

struct CompileOptions {
  uint32_t architecture = 80;  // of the device: compute capability times 10
  int opt_level = 3;
  std::string build_flags;
  std::vector<spirv::SpecConstant> spec_constants;
};

struct CompileResult {
  bool ok = false;
  std::string log;   // on failure the first line says what and where
  Program program;   // PTX
  bool own = false;  // with instructions that no later architecture has
};

// The newest architecture of ours that a device runs code for (80, 86, 89, 90, 100); 0: the device is older than all.
uint32_t codeArchitecture(uint32_t device_architecture);

// Never aborts and never throws, whatever the words are. Thread-safe.
CompileResult compileSpirv(std::span<const uint32_t> words, const CompileOptions& options);

}  // namespace zefuse::cuda
