// For tests of what only a real GPU does (hardware_test.cpp).

__kernel void write_at(ulong address) { *(__global int*)address = 7; }

// Until somebody, the host too, writes the flag; at most so many rounds. (The function atomic_load_explicit becomes an
// atomic operation of wrong scope and order in clang 22.)
__kernel void await_flag(__global volatile atomic_int* flag, __global int* seen, ulong rounds) {
  for (ulong i = 0; i < rounds; ++i)
    if (__opencl_atomic_load(flag, __ATOMIC_ACQUIRE, __OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES) != 0) {
      *seen = 1;
      return;
    }
  *seen = 2;
}
