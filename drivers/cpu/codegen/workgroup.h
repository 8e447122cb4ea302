// Turns a kernel for one work-item into a function for one work-group.
//
// Without sync points: loops over z, y, x (x innermost, marked parallel for the vectoriser) around the kernel. With
// sync points: each region (region.h) gets its own loops, and a dispatch follows to the region that the work-items
// reached. With sub-group sync points the regions loop over the lanes of one sub-group, a loop over sub-groups stands
// around, and only work-group sync points leave it; so a sub-group may run code that others skip. Sub-groups are
// consecutive work-items by local linear id.
#pragma once

#include "drivers/spirv/markers.h"
#include "drivers/spirv/reader.h"

namespace zefuse::cpu {

constexpr uint32_t kDefaultSubgroupSize = 16;
constexpr uint64_t kMaxGroupSize = 1024;
constexpr uint64_t kMaxContextBytes = 64 << 20;  // private memory of a work-group of kMaxGroupSize

// Name of the variable through which a loaded module reaches Runtime (arena.h).
inline constexpr const char* kRuntimeSymbol = "zf_runtime";

// Creates `entry` (WorkGroupFn) and completes kernel.info. kernel.function is consumed.
llvm::Function* buildWorkGroup(spirv::KernelSource& kernel, spirv::Markers& markers,
                               const std::map<uint32_t, spirv::LocalVariable>& locals, const std::string& entry);

}  // namespace zefuse::cpu
