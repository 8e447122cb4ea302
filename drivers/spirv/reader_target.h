// What of the LLVM IR that the reader makes differs from target to target. The defaults are the host CPU's: one flat
// address space, every device thread a thread of the host.
#pragma once

namespace zefuse::spirv {

struct ReaderTarget {
  // LLVM's address spaces by storage class; private memory and generic pointers are in 0. What lies in UniformConstant
  // is a variable of the module or memory that an argument names: a space of its own must hold both.
  unsigned global_space = 0;    // CrossWorkgroup
  unsigned constant_space = 0;  // UniformConstant
  unsigned local_space = 0;     // Workgroup
  // LLVM's names of SPIR-V's scopes, of atomics and fences; "" is everything that shares the memory.
  const char* device_scope = "";
  const char* group_scope = "";
  bool vector_math = true;  // the math library has functions of vectors; false: an element at a time
  bool remainders = true;   // LLVM's frem is exact; false: the math library's fmod is taken
  bool prefetches = true;   // llvm.prefetch has a meaning
  bool bfloat = false;      // LLVM converts float to bfloat without a library's function
};

}  // namespace zefuse::spirv
