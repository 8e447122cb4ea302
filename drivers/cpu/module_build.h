// From SPIR-V or a native binary to loaded code.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drivers/cpu/codegen/codegen.h"

namespace zefuse::cpu {

// What a build makes: `loaded` is empty on failure, and `log` says why.
struct Build {
  std::unique_ptr<LoadedModule> loaded;
  std::vector<std::byte> native;
  std::string log;
};

Build buildSpirv(const ze_module_desc_t& desc);
Build buildProgram(const ze_module_program_exp_desc_t& program);  // links the inputs first
Build loadNative(const ze_module_desc_t& desc);

// Builds the module of the first binary again, its imports bound to the exports of the others. Each module has its
// memory, so none of the others may have variables that its functions could share.
Build buildWithImports(std::span<const std::span<const std::byte>> natives);

}  // namespace zefuse::cpu
