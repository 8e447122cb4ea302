// Several SPIR-V modules to one. Not SPIRV-Tools' linker: it wants an import to have the type of its export, and with
// LLVM's opaque pointers translators guess what a pointer of a signature points to, differently in each module. The
// reader compares what becomes of the types.
#include "drivers/cpu/codegen/codegen.h"
#include "drivers/spirv/spirv_module.h"

#include <spirv-tools/libspirv.h>
#include <spirv/unified1/spirv.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

namespace zefuse::cpu {
namespace {

constexpr uint32_t kMaxBound = 1u << 24;
constexpr size_t kHeaderWords = 5;

struct Instruction {
  uint16_t opcode;
  std::vector<uint32_t> words;
  std::vector<uint16_t> ids;  // which of the words are ids
};

// The parts of a module, in their order.
enum Section {
  capabilities,
  extensions,
  sets,
  memory_model,
  entry_points,
  modes,
  names,
  annotations,
  globals,
  functions
};

Section sectionOf(uint16_t opcode) {
  switch (opcode) {
  case spv::OpCapability: return capabilities;
  case spv::OpExtension: return extensions;
  case spv::OpExtInstImport: return sets;
  case spv::OpMemoryModel: return memory_model;
  case spv::OpEntryPoint: return entry_points;
  case spv::OpExecutionMode:
  case spv::OpExecutionModeId: return modes;
  case spv::OpString:
  case spv::OpSource:
  case spv::OpSourceContinued:
  case spv::OpSourceExtension:
  case spv::OpName:
  case spv::OpMemberName:
  case spv::OpModuleProcessed: return names;
  case spv::OpDecorate:
  case spv::OpDecorateId:
  case spv::OpDecorateString:
  case spv::OpMemberDecorate:
  case spv::OpMemberDecorateString:
  case spv::OpDecorationGroup:
  case spv::OpGroupDecorate:
  case spv::OpGroupMemberDecorate:
  case spv::OpAliasDomainDeclINTEL:
  case spv::OpAliasScopeDeclINTEL:
  case spv::OpAliasScopeListDeclINTEL: return annotations;
  default: return globals;
  }
}

struct ContextDeleter {
  void operator()(spv_context c) const { spvContextDestroy(c); }
};

class Linker {
public:
  // The ids of each module follow those of the modules before it.
  void add(const std::vector<uint32_t>& words) {
    if (words.size() < kHeaderWords || words[0] != spv::MagicNumber)
      throw spirv::CompileError("SPIR-V linker: an input is no module");
    if (words[3] > kMaxBound - bound_)
      throw spirv::CompileError("SPIR-V linker: more than " + std::to_string(kMaxBound) + " ids");
    version_ = std::max(version_, words[1]);
    in_function_ = false;
    std::unique_ptr<spv_context_t, ContextDeleter> context(spvContextCreate(SPV_ENV_UNIVERSAL_1_6));
    spv_diagnostic diagnostic = nullptr;
    const spv_result_t result =
        spvBinaryParse(context.get(), this, words.data(), words.size(), nullptr, onInstruction, &diagnostic);
    const std::string message = diagnostic && diagnostic->error ? diagnostic->error : "no diagnostic";
    spvDiagnosticDestroy(diagnostic);
    if (result != SPV_SUCCESS)
      throw spirv::CompileError("SPIR-V linker: " + message);
    bound_ += words[3];
  }

  std::vector<uint32_t> link() {
    resolve();
    std::vector<uint32_t> out = {spv::MagicNumber, version_, 0, bound_, 0};
    for (size_t section = 0; section < sections_.size(); ++section) {
      bool dropping = false;  // an imported function's declaration
      for (Instruction& inst : sections_[section]) {
        if (section == memory_model && &inst != &sections_[section].front())
          continue;
        if (section == functions) {
          dropping |= inst.opcode == spv::OpFunction && replaced_.count(inst.words[2]);
          if (dropping) {
            dropping = inst.opcode != spv::OpFunctionEnd;
            continue;
          }
        }
        // What is said of an import goes with it.
        if ((section == names || section == annotations) && inst.words.size() > 1 && replaced_.count(inst.words[1]))
          continue;
        if (inst.opcode == spv::OpVariable && replaced_.count(inst.words[2]))
          continue;
        for (uint16_t at : inst.ids)
          if (auto found = replaced_.find(inst.words[at]); found != replaced_.end())
            inst.words[at] = found->second;
        out.insert(out.end(), inst.words.begin(), inst.words.end());
      }
    }
    return out;
  }

private:
  static bool isId(spv_operand_type_t type) {
    return type == SPV_OPERAND_TYPE_ID || type == SPV_OPERAND_TYPE_TYPE_ID || type == SPV_OPERAND_TYPE_RESULT_ID ||
           type == SPV_OPERAND_TYPE_MEMORY_SEMANTICS_ID || type == SPV_OPERAND_TYPE_SCOPE_ID;
  }

  static spv_result_t onInstruction(void* user, const spv_parsed_instruction_t* parsed) {
    auto& linker = *static_cast<Linker*>(user);
    Instruction inst{parsed->opcode, {parsed->words, parsed->words + parsed->num_words}, {}};
    for (uint16_t i = 0; i < parsed->num_operands; ++i)
      if (const spv_parsed_operand_t& operand = parsed->operands[i]; isId(operand.type)) {
        inst.words[operand.offset] += linker.bound_;
        inst.ids.push_back(operand.offset);
      }
    linker.in_function_ |= inst.opcode == spv::OpFunction;
    const Section section = linker.in_function_ ? functions : sectionOf(inst.opcode);
    linker.in_function_ &= inst.opcode != spv::OpFunctionEnd;
    linker.sections_[section].push_back(std::move(inst));
    return SPV_SUCCESS;
  }

  // Which id each import stands for. Built-in variables are imports that nobody exports.
  void resolve() {
    std::map<std::string, uint32_t> exports;
    std::vector<std::pair<std::string, uint32_t>> imports;
    for (const Instruction& inst : sections_[annotations]) {
      if (inst.opcode != spv::OpDecorate || inst.words.size() < 5 || inst.words[2] != spv::DecorationLinkageAttributes)
        continue;
      // The name is terminated: the parser has read it.
      const std::string name(reinterpret_cast<const char*>(&inst.words[3]));
      if (inst.words.back() == spv::LinkageTypeImport)
        imports.emplace_back(name, inst.words[1]);
      else if (!exports.try_emplace(name, inst.words[1]).second && inst.words.back() == spv::LinkageTypeExport)
        throw spirv::CompileError("SPIR-V linker: two modules export '" + name + "'");
    }
    for (const auto& [name, id] : imports)
      if (auto found = exports.find(name); found != exports.end())
        replaced_[id] = found->second;
  }

  std::array<std::vector<Instruction>, functions + 1> sections_;
  std::map<uint32_t, uint32_t> replaced_;
  uint32_t bound_ = 0, version_ = 0;
  bool in_function_ = false;
};

}  // namespace

LinkResult linkSpirv(std::span<const std::vector<uint32_t>> modules) {
  LinkResult result;
  try {
    Linker linker;
    for (const auto& words : modules)
      linker.add(words);
    result.words = linker.link();
    result.ok = true;
  } catch (const std::exception& e) {
    result.log = std::string(e.what()) + "\n";
  } catch (...) {
    result.log = "unknown failure in the SPIR-V linker\n";
  }
  return result;
}

}  // namespace zefuse::cpu
