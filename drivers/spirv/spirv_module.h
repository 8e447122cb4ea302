// A SPIR-V binary, tokenized: what the reader walks.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace zefuse::spirv {

// Thrown inside the compiler only; compileSpirv turns it into a log. The message's first line says what and where.
struct CompileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct SpirvInst {
  uint16_t opcode = 0;
  uint32_t offset = 0;                 // of the first word, counted from the module's start
  uint32_t type_id = 0;                // 0: none
  uint32_t result_id = 0;              // 0: none
  std::span<const uint32_t> operands;  // words after result type and result id

  uint32_t op(size_t i) const;  // throws CompileError when the operand is absent
};

struct SpirvModule {
  std::vector<uint32_t> words;  // native endian; SpirvInst::operands point into it
  uint32_t bound = 0;
  std::vector<SpirvInst> insts;
  // SPIRV-Tools' objection, or empty. Not a reason to refuse: clang-22 emits OpAny on integers, extensions newer than
  // SPIRV-Tools are valid too. The reader checks on its own what it relies on.
  std::string validation;
};

// Throws CompileError. `words` may hold anything.
SpirvModule parseSpirv(std::span<const uint32_t> words);

const char* opcodeName(uint16_t opcode);   // "OpFAdd"; "unknown" when SPIRV-Tools does not know it
std::string where(const SpirvInst& inst);  // "OpFAdd (opcode 129) at word offset 77"
[[noreturn]] void fail(const SpirvInst& inst, const std::string& what);

// A zero-terminated string starting at operand `first`. *next receives the operand index after it.
std::string literalString(const SpirvInst& inst, size_t first, size_t* next = nullptr);

}  // namespace zefuse::spirv
