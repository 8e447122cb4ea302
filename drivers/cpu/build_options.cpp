#include "drivers/cpu/build_options.h"

#include "common/toolchain/targets.h"
#include "drivers/level_zero/module_options.h"

namespace zefuse::cpu {
namespace {

constexpr std::string_view kIsaFlag = "-zefuse-isa=";  // native code for another level of x86-64, for packages

}  // namespace

bool parseBuildFlags(const char* flags, CompileOptions& options, std::string& log) {
  using level_zero::OwnFlag;
  auto isa = [&](std::string_view word) {
    if (!word.starts_with(kIsaFlag))
      return OwnFlag::unknown;
    const CpuTarget* level = findCpuTarget(word.substr(kIsaFlag.size()));
    if (!level) {
      log += "build flags: '" + std::string(word) + "': the level is one of avx2, avx512, avx512_bf16, amx\n";
      return OwnFlag::malformed;
    }
    options.isa = static_cast<IsaLevel>(level - cpuTargets().data() + 1);
    return OwnFlag::taken;  // the native binary states it in its header
  };
  level_zero::BuildFlags parsed{.opt_level = options.opt_level, .accepted = ""};
  const bool understood = level_zero::parseBuildFlags(flags, parsed, log, isa);
  options.opt_level = parsed.opt_level;
  options.build_flags = std::move(parsed.accepted);
  return understood;
}

}  // namespace zefuse::cpu
