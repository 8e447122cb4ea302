// Barriers cut a kernel into regions (continuations): the code that a work-item runs from one sync point to the next.
// Blocks that several regions reach belong to all of them and are cloned per region by workgroup.cpp.
//
// What lives across a sync point moves to slots: memory with one element per work-item. After formRegions every value
// is used only where each region that holds the use also computes the value before it.
#pragma once

#include "drivers/spirv/markers.h"

#include "llvm/IR/Function.h"
#include "llvm/IR/IRBuilder.h"

#include <vector>

namespace zefuse::cpu {

struct Slot {
  llvm::Type* type;  // of the value; booleans are stored as i8
  uint64_t stride;   // bytes per work-item
};

struct SyncPoint {
  spirv::Sync sync;
  llvm::BasicBlock* before;  // ends with a branch to `after`
  llvm::BasicBlock* after;
  int input = -1, index = -1, addend = -1, output = -1;  // slots; -1: none
};

struct Region {
  static constexpr unsigned kReturn = ~0u;
  llvm::BasicBlock* entry;
  std::vector<llvm::BasicBlock*> blocks;  // reverse post-order
  std::vector<unsigned> exits;            // indices of sync points, or kReturn
};

struct RegionPlan {
  std::vector<SyncPoint> syncs;
  std::vector<Region> regions;  // [0] starts at the kernel's entry, [i + 1] after syncs[i]
  std::vector<Slot> slots;
  llvm::Function* slot_marker = nullptr;  // ptr (i32 slot): this work-item's element
};

// Rewrites `kernel` (everything inlined). Throws CompileError when the regions grow beyond reason.
RegionPlan formRegions(llvm::Function& kernel, const spirv::Markers& markers);

// Storage of a slot's value: booleans become bytes.
llvm::Type* slotStorage(llvm::Type* type);
llvm::Value* loadSlot(llvm::IRBuilder<>& builder, llvm::Type* type, llvm::Value* address);
void storeSlot(llvm::IRBuilder<>& builder, llvm::Value* value, llvm::Value* address);

}  // namespace zefuse::cpu
