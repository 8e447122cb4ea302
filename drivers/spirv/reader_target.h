// What of the LLVM IR that the reader makes differs from target to target. The defaults are the host CPU's: one flat
// address space, every device thread a thread of the host.
#pragma once

namespace llvm {
class IRBuilderBase;
class Value;
}  // namespace llvm

namespace zefuse::spirv {

// a, b, sum -> zefuse.dot4 (lowering/dialect/Zefuse.td), of i32 or of vectors of it, where the builder stands.
using Dot4 = llvm::Value*(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b, llvm::Value* sum);
Dot4 dot4ByArithmetic;

struct ReaderTarget {
  // LLVM's address spaces by storage class; private memory and generic pointers are in 0. What lies in UniformConstant
  // is a variable of the module or memory that an argument names: a space of its own must hold both.
  unsigned global_space = 0;    // CrossWorkgroup
  unsigned constant_space = 0;  // UniformConstant
  unsigned local_space = 0;     // Workgroup
  // LLVM's names of SPIR-V's scopes, of atomics and fences; "" is everything that shares the memory.
  const char* device_scope = "";
  const char* group_scope = "";
  bool vector_math = true;   // the math library has functions of vectors; false: an element at a time
  bool remainders = true;    // LLVM's frem is exact; false: the math library's fmod is taken
  bool prefetches = true;    // llvm.prefetch has a meaning
  bool bfloat = false;       // LLVM converts float to bfloat without a library's function
  bool native_math = false;  // the math library has native_exp2, native_recip and native_tanh of f32, the device's own
  // Copies from global to local memory end where they are waited for: calls of the functions below stand for them.
  // False: they are done at once.
  bool asynchronous_copies = false;
  bool warpgroups = false;  // matrix products of four sub-groups: calls of the functions below stand for them too
  bool images = true;       // there are image functions (images.cpp)
  Dot4* dot4 = dot4ByArithmetic;
};

constexpr const char *copy_to_local_marker = "zf.copy_to_local",  // (to, from, i32: 0 writes zeros), 16 bytes
    *copy_word_to_local_marker = "zf.copy_word_to_local",         // the same of 4 bytes
        *commit_copies_marker = "zf.commit_copies",               // (): those since the last one are a batch
            *wait_for_copies_marker = "zf.wait_for_copies";       // (i32): for all batches but so many

// The names of functions that kernels call without "zefuse_", "zf." before (drivers/cuda/codegen/warpgroup.h).
constexpr const char* warpgroup_markers = "zf.warpgroup_";

}  // namespace zefuse::spirv
