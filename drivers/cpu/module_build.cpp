#include "drivers/cpu/module_build.h"

#include <cstring>
#include <set>

#include "drivers/cpu/build_options.h"
#include "drivers/cpu/codegen/container.h"
#include "drivers/level_zero/module_options.h"

namespace zefuse::cpu {
namespace {

constexpr size_t kHeaderWords = 5;

// Copied: the input need not be aligned to words. False, with a sentence in `log`, when it is not a number of words.
bool readWords(const uint8_t* bytes, size_t size, std::vector<uint32_t>& words, std::string& log) {
  if (size % sizeof(uint32_t) != 0) {
    log = "SPIR-V: " + std::to_string(size) + " bytes are not a number of words\n";
    return false;
  }
  words.resize(size / sizeof(uint32_t));
  std::memcpy(words.data(), bytes, size);
  return true;
}

void compile(std::span<const uint32_t> words, const CompileOptions& options, Build& build) {
  CompileResult result = compileSpirv(words, options);
  std::string load_log;
  if (result.ok) {
    build.native = std::move(result.native);
    build.loaded = LoadedModule::load(build.native, load_log);
  }
  // A failure's reason goes first; remarks on flags and constants after it.
  build.log = result.log + load_log + build.log;
}

// The instructions of a module, as opcode and operands. Stops at damage.
template <typename Visit> void eachInstruction(std::span<const uint32_t> words, Visit&& visit) {
  for (size_t at = kHeaderWords; at < words.size();) {
    const size_t length = words[at] >> 16;
    if (length == 0 || length > words.size() - at)
      return;
    visit(static_cast<uint16_t>(words[at]), words.subspan(at, length));
    at += length;
  }
}

constexpr uint16_t kOpEntryPoint = 15, kOpExecutionMode = 16, kOpVariable = 59, kOpExecutionModeId = 331;
constexpr uint16_t kOpDecorate = 71;
constexpr uint32_t kDecorationBuiltIn = 11, kStorageCrossWorkgroup = 5;

bool hasVariables(std::span<const uint32_t> words) {
  std::set<uint32_t> built_in;
  bool found = false;
  eachInstruction(words, [&](uint16_t opcode, std::span<const uint32_t> inst) {
    if (opcode == kOpDecorate && inst.size() > 2 && inst[2] == kDecorationBuiltIn)
      built_in.insert(inst[1]);
    found |= opcode == kOpVariable && inst.size() > 3 && inst[3] == kStorageCrossWorkgroup && !built_in.count(inst[2]);
  });
  return found;
}

// Functions alone: its kernels stay its own.
std::vector<uint32_t> withoutKernels(std::span<const uint32_t> words) {
  if (words.size() < kHeaderWords)
    return {};  // which the linker refuses
  std::vector<uint32_t> kept(words.begin(), words.begin() + kHeaderWords);
  eachInstruction(words, [&](uint16_t opcode, std::span<const uint32_t> inst) {
    if (opcode != kOpEntryPoint && opcode != kOpExecutionMode && opcode != kOpExecutionModeId)
      kept.insert(kept.end(), inst.begin(), inst.end());
  });
  return kept;
}

}  // namespace

Build buildSpirv(const ze_module_desc_t& desc) {
  Build build;
  std::vector<uint32_t> words;
  CompileOptions options;
  if (!readWords(desc.pInputModule, desc.inputSize, words, build.log) ||
      !parseBuildFlags(desc.pBuildFlags, options, build.log))
    return build;
  level_zero::readSpecConstants(words, desc.pConstants, options.spec_constants, build.log);
  compile(words, options, build);
  return build;
}

Build buildProgram(const ze_module_program_exp_desc_t& program) {
  Build build;
  std::vector<std::vector<uint32_t>> inputs(program.count);
  CompileOptions options;
  std::string flags;
  std::set<std::string> seen;
  for (uint32_t i = 0; i < program.count; ++i) {
    if (!readWords(program.pInputModules[i], program.inputSizes[i], inputs[i], build.log))
      return build;
    if (program.pBuildFlags && program.pBuildFlags[i] && seen.insert(program.pBuildFlags[i]).second)
      flags += (flags.empty() ? "" : " ") + std::string(program.pBuildFlags[i]);
    if (program.pConstants && program.pConstants[i])
      level_zero::readSpecConstants(inputs[i], program.pConstants[i], options.spec_constants, build.log);
  }
  if (!parseBuildFlags(flags.c_str(), options, build.log))
    return build;
  if (inputs.size() == 1) {
    compile(inputs[0], options, build);
    return build;
  }
  LinkResult linked = linkSpirv(inputs);
  build.log = linked.log + build.log;
  if (linked.ok)
    compile(linked.words, options, build);
  return build;
}

Build loadNative(const ze_module_desc_t& desc) {
  Build build;
  auto* bytes = reinterpret_cast<const std::byte*>(desc.pInputModule);
  build.native.assign(bytes, bytes + desc.inputSize);
  build.loaded = LoadedModule::load(build.native, build.log);
  return build;
}

Build buildWithImports(std::span<const std::span<const std::byte>> natives) {
  Build build;
  CompileOptions options;
  std::vector<std::vector<uint32_t>> inputs;
  for (const auto& native : natives) {
    Container container;
    if (!readContainer(native, container, build.log))
      return build;
    if (inputs.empty()) {
      options.isa = container.isa;
      options.opt_level = container.opt_level;
      options.build_flags = container.build_flags;
    } else if (hasVariables(container.spirv)) {
      build.log = "a module that exports has variables, of which a linked module would get copies: link the SPIR-V "
                  "modules (ZE_experimental_module_program) and create one module\n";
      return build;
    }
    options.spec_constants.insert(options.spec_constants.end(), container.spec_constants.begin(),
                                  container.spec_constants.end());
    inputs.push_back(inputs.empty() ? std::move(container.spirv) : withoutKernels(container.spirv));
  }
  LinkResult linked = linkSpirv(inputs);
  build.log = linked.log;
  if (linked.ok)
    compile(linked.words, options, build);
  return build;
}

}  // namespace zefuse::cpu
