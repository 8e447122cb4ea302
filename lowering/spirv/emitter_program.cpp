// zefuse-spirv-emitter. Its work is in a library, which in a wheel is the one that holds LLVM.
#include "lowering/spirv/emitter.h"

int main() { return zefuse_spirv_emitter(); }
