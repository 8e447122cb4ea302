// What zefuse-spirv-emitter and the process that started it say to each other, over one stream socket (the program's
// standard input). Both come from one build, so there is no version. A request is a frame of LLVM bitcode, the answer a
// frame of SPIR-V words or of text that says why there are none; frames alternate.
#pragma once

#include <cstdint>

#include "common/base/api.h"

// The program: serves standard input until it ends. Its exit status.
extern "C" ZEFUSE_API int zefuse_spirv_emitter();

namespace zefuse::emitter {

enum class Kind : uint64_t { bitcode = 1, spirv = 2, error = 3 };

struct Frame {
  Kind kind;
  uint64_t size;  // of what follows, bytes
};

constexpr const char* program_name = "zefuse-spirv-emitter";

}  // namespace zefuse::emitter
