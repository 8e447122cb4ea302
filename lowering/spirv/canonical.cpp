#include "lowering/spirv/canonical.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "spirv-tools/libspirv.h"

namespace zefuse {
namespace {

constexpr size_t header_words = 5, bound_word = 3;
enum Opcode : uint32_t {
  op_function_end = 56,
  op_phi = 245,
  op_loop_merge = 246,
  op_selection_merge = 247,
  op_label = 248,
  op_branch = 249,
  op_branch_conditional = 250,
  op_switch = 251,
};

// Calls `use` with the position of each word that refers to a label, or defines one.
template <typename Use> std::optional<std::string> forEachLabel(const std::vector<uint32_t>& words, Use use) {
  for (size_t at = header_words; at < words.size();) {
    uint32_t opcode = words[at] & 0xffff, count = words[at] >> 16;
    if (count == 0 || at + count > words.size())
      return "instruction at word " + std::to_string(at) + " has no valid length";
    switch (opcode) {
    case op_phi:
      for (uint32_t i = 4; i < count; i += 2)
        use(at + i, opcode);
      break;
    case op_loop_merge:
      use(at + 1, opcode);
      use(at + 2, opcode);
      break;
    case op_selection_merge:
    case op_label:
    case op_branch: use(at + 1, opcode); break;
    case op_branch_conditional:
      use(at + 2, opcode);
      use(at + 3, opcode);
      break;
    case op_switch: return "OpSwitch: its labels depend on the selector's type, which is not tracked here";
    case op_function_end: use(at, opcode); break;
    default: break;
    }
    at += count;
  }
  return std::nullopt;
}

bool isId(spv_operand_type_t type) {
  return type == SPV_OPERAND_TYPE_ID || type == SPV_OPERAND_TYPE_TYPE_ID || type == SPV_OPERAND_TYPE_RESULT_ID ||
         type == SPV_OPERAND_TYPE_MEMORY_SEMANTICS_ID || type == SPV_OPERAND_TYPE_SCOPE_ID;
}

struct Renumbering {
  std::vector<uint32_t>* words;
  size_t at = header_words;
  std::vector<uint32_t> names;  // old id to new
  uint32_t next = 1;
};

spv_result_t renumber(void* data, const spv_parsed_instruction_t* instruction) {
  auto& state = *static_cast<Renumbering*>(data);
  for (uint16_t i = 0; i < instruction->num_operands; ++i) {
    const spv_parsed_operand_t& operand = instruction->operands[i];
    if (!isId(operand.type))
      continue;
    uint32_t& name = state.names.at(instruction->words[operand.offset]);
    if (name == 0)
      name = state.next++;
    (*state.words)[state.at + operand.offset] = name;
  }
  state.at += instruction->num_words;
  return SPV_SUCCESS;
}

}  // namespace

std::optional<std::string> canonicaliseIds(std::vector<uint32_t>& words) {
  if (words.size() < header_words)
    return "no SPIR-V header";
  // Labels: fresh ids above the bound, per function.
  uint32_t bound = words[bound_word];
  std::unordered_map<uint32_t, uint32_t> labels;
  if (auto error = forEachLabel(words, [&](size_t at, uint32_t opcode) {
        if (opcode == op_function_end) {
          labels.clear();
          return;
        }
        auto [it, fresh] = labels.try_emplace(words[at], bound);
        bound += fresh;
        words[at] = it->second;
      }))
    return error;
  words[bound_word] = bound;

  std::unique_ptr<spv_context_t, decltype(&spvContextDestroy)> context(spvContextCreate(SPV_ENV_OPENCL_2_2),
                                                                       &spvContextDestroy);
  std::vector<uint32_t> result = words;
  Renumbering state{&result, header_words, std::vector<uint32_t>(bound, 0), 1};
  spv_diagnostic diagnostic = nullptr;
  spv_result_t parsed =
      spvBinaryParse(context.get(), &state, words.data(), words.size(), nullptr, renumber, &diagnostic);
  std::string error = diagnostic && diagnostic->error ? diagnostic->error : "it does not parse";
  spvDiagnosticDestroy(diagnostic);
  if (parsed != SPV_SUCCESS)
    return error;
  result[bound_word] = state.next;
  words = std::move(result);
  return std::nullopt;
}

}  // namespace zefuse
