// Several SPIR-V modules to one, by SPIRV-Tools' linker.
#include "drivers/cpu/codegen/codegen.h"

#include <spirv-tools/linker.hpp>
#include <spirv/unified1/spirv.hpp>

#include <algorithm>

namespace zefuse::cpu {
namespace {

constexpr size_t kHeaderWords = 5;
constexpr size_t kVersionWord = 1;

LinkResult link(std::span<const std::vector<uint32_t>> modules) {
  LinkResult result;
  std::vector<std::vector<uint32_t>> inputs(modules.begin(), modules.end());
  // The linker wants one version. A newer one means the same for what a reader of OpenCL kernels looks at.
  uint32_t version = 0;
  for (const auto& words : inputs) {
    if (words.size() < kHeaderWords || words[0] != spv::MagicNumber) {
      result.log = "SPIR-V: an input of the linker is no module\n";
      return result;
    }
    version = std::max(version, words[kVersionWord]);
  }
  for (auto& words : inputs)
    words[kVersionWord] = version;

  spvtools::Context context(SPV_ENV_UNIVERSAL_1_6);
  context.SetMessageConsumer([&](spv_message_level_t, const char*, const spv_position_t&, const char* message) {
    result.log += "SPIR-V linker: " + std::string(message) + "\n";
  });
  spvtools::LinkerOptions options;
  options.SetCreateLibrary(true);        // exports stay, for their addresses and for a later link
  options.SetAllowPartialLinkage(true);  // built-in variables are imports; what is missing the reader names
  result.ok = spvtools::Link(context, inputs, &result.words, options) == SPV_SUCCESS;
  if (!result.ok && result.log.empty())
    result.log = "SPIR-V linker: failed without a reason\n";
  return result;
}

}  // namespace

LinkResult linkSpirv(std::span<const std::vector<uint32_t>> modules) {
  LinkResult failure;
  try {
    return link(modules);
  } catch (const std::exception& e) {
    failure.log = e.what();
  } catch (...) {
    failure.log = "unknown failure in the SPIR-V linker";
  }
  return failure;
}

}  // namespace zefuse::cpu
