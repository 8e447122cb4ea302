// A kernel's argument values, laid out as WorkGroupFn wants them.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/image.h"
#include "drivers/cpu/launch.h"

namespace zefuse::cpu {

// A kernel owns one and changes it; recording a launch copies it. Not thread-safe, as the Level Zero calls on one
// kernel.
class Arguments {
public:
  // info must outlive this and its copies. `usm_only`: pointers must lie in USM, as on a device that reaches nothing
  // else.
  Arguments(const spirv::KernelInfo& info, bool usm_only);
  Arguments(const Arguments& other);
  Arguments(Arguments&&) noexcept = default;  // vectors keep their memory, so the pointers stay right
  Arguments& operator=(const Arguments&) = delete;

  ze_result_t set(uint32_t index, size_t size, const void* value);

  // Why a launch is not possible yet, through refuse(), or SUCCESS.
  ze_result_t checkComplete() const {
    return unset_ == 0 && local_bytes_ <= kMaxLocalBytes ? ZE_RESULT_SUCCESS : explainIncomplete();
  }

  // Pointers become where this process reaches what they name (memory.h). Of a copy that is about to run.
  void translate();

  const spirv::KernelInfo& info() const { return info_; }

  // Everything of a call but entry and launch; points into this object.
  void fill(KernelCall& call) const;

private:
  struct alignas(kLocalAlignment) Block {
    std::byte bytes[kLocalAlignment];
  };
  ze_result_t explainIncomplete() const;
  ze_result_t setHandle(uint32_t index, size_t size, const void* value);  // of an image or a sampler
  std::byte* valueOf(uint32_t index) { return storage_.data()->bytes + offsets_[index]; }
  void pointAtValues();

  const spirv::KernelInfo& info_;
  const bool usm_only_;
  std::vector<Block> storage_;
  std::vector<uint32_t> offsets_;      // of each value in storage_
  std::vector<const void*> pointers_;  // to each value
  std::vector<LocalArgument> locals_;
  std::vector<bool> is_set_;
  std::vector<Ref<Image>> images_;  // by argument; empty where the kernel has none
  uint32_t unset_;
  uint64_t local_bytes_;  // static variables and local arguments, each aligned
};

}  // namespace zefuse::cpu
