// Operations of a sub-group by shuffles of its warp, and of a work-group through shared memory.
#pragma once

#include "drivers/spirv/markers.h"

#include "llvm/IR/IRBuilder.h"

#include <vector>

namespace zefuse::cuda {

struct SubGroup {
  uint32_t width = 32;                                // a power of two
  llvm::Value* lane = nullptr;                        // i32, in the sub-group
  llvm::Value* count = nullptr;                       // i32, items that it has; null: `width`
  llvm::Value* first_in_warp = nullptr;               // i32, the warp's lane of lane 0
  llvm::Value *mask = nullptr, *warp_mask = nullptr;  // i32: its lanes, the warp's lanes that exist
};

struct WorkGroup {
  llvm::Value *linear, *items;  // i32
  llvm::Value* scratch;         // 8 bytes an item of shared memory; a barrier needs none
};

// Emits at the builder's insertion point. Sums of a sub-group are taken in pairs, so they differ in their last bits
// from those in order; every lane gets the same bits. Throws CompileError for what there is no way to do.
llvm::Value* subGroupOperation(llvm::IRBuilder<>& b, const SubGroup& group, const spirv::Sync& sync, llvm::Type* result,
                               const std::vector<llvm::Value*>& operands);
llvm::Value* workGroupOperation(llvm::IRBuilder<>& b, const WorkGroup& group, const spirv::Sync& sync,
                                llvm::Type* result, const std::vector<llvm::Value*>& operands);

}  // namespace zefuse::cuda
