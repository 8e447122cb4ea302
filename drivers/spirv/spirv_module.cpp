#include "drivers/spirv/spirv_module.h"

#include <spirv-tools/libspirv.h>
#include <spirv/unified1/spirv.hpp>

#include <memory>

namespace zefuse::spirv {
namespace {

constexpr uint32_t kMaxWords = 64u << 20;

struct ContextDeleter {
  void operator()(spv_context c) const { spvContextDestroy(c); }
};

struct Parse {
  SpirvModule* module;
  uint32_t offset;
};

spv_result_t onInstruction(void* user, const spv_parsed_instruction_t* parsed) {
  auto& p = *static_cast<Parse*>(user);
  SpirvInst inst;
  inst.opcode = parsed->opcode;
  inst.offset = p.offset;
  inst.type_id = parsed->type_id;
  inst.result_id = parsed->result_id;
  size_t skip = 1 + (parsed->type_id != 0) + (parsed->result_id != 0);
  inst.operands = std::span(p.module->words).subspan(p.offset, parsed->num_words).subspan(skip);
  p.module->insts.push_back(inst);
  p.offset += parsed->num_words;
  return SPV_SUCCESS;
}

uint32_t swapBytes(uint32_t w) { return __builtin_bswap32(w); }

// The instruction that could not be parsed: the first after those the parser handed over. Its own position is often
// off.
std::string describePosition(const SpirvModule& m, uint32_t offset) {
  if (offset >= m.words.size())
    return "at word offset " + std::to_string(offset) + ", the module's end";
  SpirvInst inst;
  inst.opcode = m.words[offset] & 0xffff;
  inst.offset = offset;
  return where(inst);
}

std::string validate(spv_context context, const SpirvModule& m) {
  spv_const_binary_t binary{m.words.data(), m.words.size()};
  spv_diagnostic diagnostic = nullptr;
  spv_result_t result = spvValidate(context, &binary, &diagnostic);
  std::string message = diagnostic && diagnostic->error ? diagnostic->error : "no diagnostic";
  spvDiagnosticDestroy(diagnostic);
  return result == SPV_SUCCESS ? "" : message;
}

}  // namespace

uint32_t SpirvInst::op(size_t i) const {
  if (i >= operands.size())
    fail(*this, "operand " + std::to_string(i) + " is missing");
  return operands[i];
}

const char* opcodeName(uint16_t opcode) {
  const char* name = spvOpcodeString(opcode);
  return name ? name : "unknown";
}

std::string where(const SpirvInst& inst) {
  std::string name = opcodeName(inst.opcode);
  if (name != "unknown")
    name = "Op" + name;
  return name + " (opcode " + std::to_string(inst.opcode) + ") at word offset " + std::to_string(inst.offset);
}

void fail(const SpirvInst& inst, const std::string& what) {
  throw CompileError("SPIR-V: " + what + ": " + where(inst));
}

std::string literalString(const SpirvInst& inst, size_t first, size_t* next) {
  std::string s;
  for (size_t i = first; i < inst.operands.size(); ++i)
    for (int b = 0; b < 4; ++b) {
      char c = static_cast<char>(inst.operands[i] >> (8 * b));
      if (c == 0) {
        if (next)
          *next = i + 1;
        return s;
      }
      s.push_back(c);
    }
  fail(inst, "unterminated string");
}

SpirvModule parseSpirv(std::span<const uint32_t> words) {
  if (words.size() < 5)
    throw CompileError("not SPIR-V: " + std::to_string(words.size()) + " words, the header alone has 5");
  if (words.size() > kMaxWords)
    throw CompileError("SPIR-V: module of " + std::to_string(words.size()) + " words exceeds the limit of " +
                       std::to_string(kMaxWords));
  SpirvModule m;
  m.words.assign(words.begin(), words.end());
  if (m.words[0] == swapBytes(spv::MagicNumber))
    for (uint32_t& w : m.words)
      w = swapBytes(w);
  if (m.words[0] != spv::MagicNumber)
    throw CompileError("not SPIR-V: wrong magic number at word offset 0");
  uint32_t version = m.words[1];
  if (version < 0x10000 || version > 0x10600 || (version & 0xff0000ff) != 0)
    throw CompileError("SPIR-V: version word " + std::to_string(version) + " at word offset 1 is none of 1.0 to 1.6");
  m.bound = m.words[3];

  std::unique_ptr<spv_context_t, ContextDeleter> context(spvContextCreate(SPV_ENV_UNIVERSAL_1_6));
  Parse parse{&m, 5};
  spv_diagnostic diagnostic = nullptr;
  spv_result_t result =
      spvBinaryParse(context.get(), &parse, m.words.data(), m.words.size(), nullptr, onInstruction, &diagnostic);
  if (result != SPV_SUCCESS) {
    std::string message = diagnostic && diagnostic->error ? diagnostic->error : "no diagnostic";
    spvDiagnosticDestroy(diagnostic);
    throw CompileError("SPIR-V: " + message + ": " + describePosition(m, parse.offset));
  }
  m.validation = validate(context.get(), m);
  return m;
}

}  // namespace zefuse::spirv
