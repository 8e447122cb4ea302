// The program in which a GPU driver compiles: it may hang, crash or eat memory without harm to its caller.
// zefuse-jit DEVICE SPIRV-FILE NATIVE-FILE; exit code 0 when the file is written, else the reason on standard error.
#pragma once

namespace zefuse::ze {

inline constexpr const char* jit_program = "zefuse-jit";  // beside the libraries that start it

}  // namespace zefuse::ze
