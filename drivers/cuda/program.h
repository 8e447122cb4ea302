// What a module is made of: kernels, variables, and their code as PTX or as a cubin. Also as bytes, which is the native
// binary of this driver: any process may load it, with no compiler (PTX is finished by the CUDA driver). No LLVM here.
//
//   header (32 bytes, little endian): magic "ZFNVCODE" | u32 format version | u32 CRC-32 of the body | u64 size of the
//   body | u64 zero; then the body: tables (drivers/spirv/tables.h) and the image, with its size before it
//
// The CRC finds damage; it does not protect against forgery: who loads a binary runs its code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "drivers/spirv/kernel_info.h"

namespace zefuse::cuda {

// Bytes of one group's Workgroup variables and local arguments begin at multiples of this, the largest OpenCL type's
// size.
constexpr uint32_t kLocalAlignment = 128;
constexpr uint32_t kMaxLocalAlignment = 1024;  // of the kernel's own that ask for more
constexpr uint32_t alignLocal(uint32_t bytes) { return (bytes + kLocalAlignment - 1) & ~(kLocalAlignment - 1); }

// Its parameters are those of `info`, in order: a pointer or value as it is, a local pointer as the offset (u64) of its
// bytes in the launch's dynamic shared memory, which begins with info.local_bytes of the kernel's own; at the end three
// u64, the global offset, where takes_offset.
struct ProgramKernel {
  spirv::KernelInfo info;
  std::string symbol;
  bool takes_offset = false;
};

struct ProgramVariable {
  std::string name, symbol;
  uint64_t size = 0;
};

struct Program {
  uint32_t architecture = 0;  // compute capability times 10: 90
  bool is_cubin = false;      // of that architecture alone; false: PTX, of it and newer ones
  int opt_level = 3;
  std::string build_flags;
  std::vector<ProgramKernel> kernels;
  std::vector<ProgramVariable> variables;
  std::vector<std::string> imports;  // names that nobody defined: kernels cannot be created
  std::vector<std::byte> image;      // PTX ends with a zero byte
};

std::vector<std::byte> writeProgram(const Program& program);
// False on damage, and `log` says what is wrong. Never reads outside of `bytes`.
bool readProgram(std::span<const std::byte> bytes, Program& program, std::string& log);
// What PTX says that it is for: "sm_90", or "sm_90a" where no later architecture runs it. Empty: it does not say.
std::string ptxTarget(std::span<const std::byte> ptx);
bool isProgram(std::span<const std::byte> bytes);  // begins with the magic

}  // namespace zefuse::cuda
