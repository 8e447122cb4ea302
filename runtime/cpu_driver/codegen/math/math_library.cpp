// Math functions of the kernels. Compiled to LLVM bitcode; only what a kernel calls is linked into it.
extern "C" float expf(float);
extern "C" float zf_exp_f32(float x) { return expf(x); }
