// Operations of a whole work-group or sub-group, over the slots of its work-items.
#pragma once

#include "drivers/spirv/markers.h"

#include "llvm/IR/IRBuilder.h"

namespace zefuse::cpu {

struct Collective {
  spirv::Sync sync;
  llvm::Value *begin, *end;  // work-items by local linear id; at least one
  // Slot arrays, one per operand (addend: the third) and the result.
  llvm::Value *input = nullptr, *index = nullptr, *addend = nullptr, *output = nullptr;
  uint64_t input_stride = 0, index_stride = 0, addend_stride = 0, output_stride = 0;
  llvm::Type *input_type = nullptr, *output_type = nullptr;
};

// Emits at the builder's insertion point, which moves behind the operation. A barrier emits nothing: the regions'
// order is the barrier. Sums run in the order of the work-items, so bits do not depend on the instruction set.
void emitCollective(llvm::IRBuilder<>& builder, const Collective& c);

// `small`: neither unrolled nor interleaved. Kernels with sync points have many loops of few iterations; unrolling them
// makes compilation several times slower and code no faster.
enum class LoopSize : uint8_t { any, small };
void markLoop(llvm::Instruction* back_edge, LoopSize size, llvm::MDNode* parallel_accesses);

}  // namespace zefuse::cpu
