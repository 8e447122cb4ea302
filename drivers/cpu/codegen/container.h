// The container of a native binary: serialised tables, the SPIR-V and the ELF shared object.
//
//   header (32 bytes, little endian): magic "ZFNATIVE" | u32 format version | u32 ISA level | u32 CRC-32 of the header
//   without this field and of the body | u32 zero | u64 size of the body
//   body: tables as written by Writer (container.cpp), then SPIR-V, then ELF, each with its size before it
//
// The CRC finds damage (any flipped byte, any lost tail); it does not protect against forgery: who loads a container
// runs its code, as with any shared object.
#pragma once

#include "drivers/cpu/codegen/codegen.h"

namespace zefuse::cpu {

struct Container {
  IsaLevel isa = IsaLevel::x86_64_v3;
  std::string build_flags;
  int opt_level = 3;
  std::vector<spirv::SpecConstant> spec_constants;
  std::vector<spirv::KernelInfo> kernels;  // code: symbol kernelSymbol(i)
  std::vector<GlobalInfo> globals;         // globalSymbol(i)
  std::vector<std::string> functions;      // functionSymbol(i)
  std::vector<std::string> imports;
  std::vector<uint32_t> spirv;
  std::vector<std::byte> elf;
};

std::string kernelSymbol(size_t i);
std::string globalSymbol(size_t i);
std::string functionSymbol(size_t i);

std::vector<std::byte> writeContainer(const Container& c);
// False on damage, and `log` says what is wrong where. Never reads outside of `bytes`.
bool readContainer(std::span<const std::byte> bytes, Container& c, std::string& log);

}  // namespace zefuse::cpu
