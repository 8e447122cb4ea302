// What the reader cannot express before work-items are laid out: calls to these functions stand for it until
// the target's code generation replaces them.
#pragma once

#include "drivers/spirv/spirv_module.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instruction.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/ValueHandle.h"

#include <cstdint>

namespace zefuse::spirv {

// i64 (i32 dimension). A value of one work-item, the same over its whole life.
enum class Query : uint8_t {
  local_id,
  global_id,
  group_id,
  group_size,
  group_count,
  global_size,
  global_offset,
  work_dim,
  local_linear_id,
  global_linear_id,
  subgroup_size,
  subgroup_max_size,
  subgroup_count,
  subgroup_id,
  subgroup_local_id,
};

enum class Scope : uint8_t { work_group, sub_group };

// A point that all work-items of a scope reach together.
enum class SyncKind : uint8_t {
  barrier,
  reduce,
  inclusive_scan,
  exclusive_scan,
  broadcast,
  broadcast_first,
  all,
  any,
  shuffle,
  shuffle_xor,
  shuffle_up,
  shuffle_down,
  ballot,
  elect,
  matrix_mad_f16,  // cl_intel_subgroup_matrix_multiply_accumulate: rows of a over the lanes, columns of b, accumulator
  matrix_mad_bf16,
  // Fragments of NVIDIA's m16n8k16 and m16n8k8 (matrix_calls.cpp): a, b, accumulator; and four 8 x 8 blocks of 16 bits
  // from memory, whose lines are where the lanes' operands point to.
  multiply_fragments_f16,
  multiply_fragments_bf16,
  multiply_fragments_tf32,
  load_fragments,
  load_fragments_transposed,
};

enum class GroupOp : uint8_t {
  none,
  iadd,
  fadd,
  imul,
  fmul,
  fmin,
  umin,
  smin,
  fmax,
  umax,
  smax,
  bit_and,
  bit_or,
  bit_xor,
  logical_and,
  logical_or,
  logical_xor,
};

struct Sync {
  Scope scope = Scope::work_group;
  SyncKind kind = SyncKind::barrier;
  GroupOp op = GroupOp::none;
};

class Markers {
public:
  explicit Markers(llvm::Module& module, unsigned local_space = 0) : module_(module), local_space_(local_space) {}

  llvm::Function* query(Query q);
  // ptr (): a static Workgroup variable's address.
  llvm::Function* localVariable(uint32_t id);
  // result (operands...); the types are part of the marker's identity.
  llvm::Function* sync(const Sync& sync, llvm::FunctionType* type);

  const Query* asQuery(const llvm::Instruction* inst) const;
  const uint32_t* asLocalVariable(const llvm::Instruction* inst) const;
  const Sync* asSync(const llvm::Instruction* inst) const;
  // Passes delete unused markers; their addresses may come back as other functions. Call after running passes.
  void forgetDeleted();
  void eraseAll();  // all calls are gone by then

private:
  llvm::Module& module_;
  const unsigned local_space_;  // LLVM's address space of Workgroup variables
  llvm::DenseMap<const llvm::Function*, Query> queries_;
  llvm::DenseMap<const llvm::Function*, uint32_t> locals_;
  llvm::DenseMap<const llvm::Function*, Sync> syncs_;
  void remember(llvm::Function* f) { all_.push_back({f, f}); }
  std::vector<std::pair<llvm::WeakVH, const llvm::Function*>> all_;
};

}  // namespace zefuse::spirv
