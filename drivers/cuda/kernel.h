// Kernels: a module's entry point with argument values, a group size and a global offset.
#pragma once

#include <level_zero/ze_api.h>

#include <vector>

#include "drivers/cuda/level_zero.h"
#include "drivers/cuda/module.h"

namespace zefuse::cuda {

// What a launch hands to CUDA: values in one block, where each begins, and the shared memory. A copy is independent.
struct Parameters {
  std::vector<std::byte> values;
  std::vector<uint32_t> offsets;  // of each parameter in `values`, the three global offsets last where it takes them
  uint32_t local_bytes = 0;       // of the launch's dynamic shared memory

  std::vector<void*> pointers();  // into `values`
};

struct LaunchShape {
  uint32_t groups[3], items[3];
  uint32_t local_bytes;
  bool cooperative;
};

// Not thread-safe, as the Level Zero calls on one kernel. Several kernels of one module are independent.
struct Kernel : Object<Kernel> {
  static constexpr uint32_t kMagic = magicOf("ZKRN");
  const Ref<Module> module;
  const ProgramKernel& program;   // of *module
  const spirv::KernelInfo& info;  // of `program`
  const CUfunction function;
  const uint32_t max_items;  // a group may have, by its registers
  const char* const kept_name;
  uint32_t group_size[3];
  uint64_t global_offset[3] = {0, 0, 0};
  ze_kernel_indirect_access_flags_t indirect_access = 0;

  Kernel(Module& module, const ProgramKernel& program, CUfunction function, uint32_t max_items);
  static constexpr uint32_t kMaxItemsInZ = 64, kSubgroupSize = 32, kPreferredMultiple = 32;
  uint32_t maxItems() const { return max_items; }
  uint32_t privateBytes() const;
  const std::string& name() const { return program.info.name; }

  ze_result_t setArgument(uint32_t index, size_t size, const void* value);
  // Why this kernel cannot be launched now, through refuse(), or SUCCESS: parameters() are what a launch takes then,
  // and pointers() lead to each of them, until the kernel is changed.
  ze_result_t prepare(const char* call);
  const Parameters& parameters() const { return parameters_; }
  void** pointers() { return pointers_.data(); }

private:
  void placeLocals();

  Parameters parameters_;  // of local pointers where the memory begins in the launch's
  std::vector<void*> pointers_;
  std::vector<uint64_t> local_bytes_;  // of local pointers, what was asked for
  std::vector<bool> is_set_;
  size_t unset_;
  uint64_t all_local_bytes_;
};

decltype(::zeKernelCreate) kernelCreate;
decltype(::zeKernelSuggestMaxCooperativeGroupCount) kernelSuggestMaxCooperativeGroupCount;
decltype(::zeKernelSetArgumentValue) kernelSetArgumentValue;

}  // namespace zefuse::cuda
