// SPIR-V (OpenCL kernel flavour) to native code for the host CPU, and back into memory. No Level Zero type appears
// here.
//
// A native binary is a container: header (magic, format version, ISA level, hash of the body), kernel and global
// tables, build flags, the original SPIR-V, and an ELF shared object. It loads again in another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drivers/spirv/kernel_info.h"

namespace zefuse::cpu {

enum class IsaLevel : uint8_t { x86_64_v3 = 1, avx512 = 2, avx512_bf16 = 3, amx = 4 };
IsaLevel hostIsaLevel();  // highest level this host runs; ZEFUSE_CPU_ISA=avx2|avx512|... lowers it
const char* isaLevelName(IsaLevel level);

struct CompileOptions {
  IsaLevel isa = hostIsaLevel();
  int opt_level = 3;        // 0..3, from -ze-opt-level / -ze-opt-disable
  std::string build_flags;  // stored verbatim in the container
  std::vector<spirv::SpecConstant> spec_constants;
};

// What one work-group execution sees besides its arguments. Filled by the caller, constant over a launch.
struct LaunchContext {
  uint64_t group_count[3];
  uint64_t local_size[3];  // each at least 1, product at most 1024, KernelInfo::required_group_size where that is set
  uint64_t global_offset[3];
  uint32_t work_dim;
};

// Runs one whole work-group on the calling thread. args[i] points to the i-th argument's value (for a pointer argument:
// to the pointer; for a local_pointer argument: to a pointer into local memory that the caller carved out).
// local_memory has KernelInfo::local_bytes bytes, 64-byte aligned, contents undefined.
using WorkGroupFn = void (*)(const void* const* args, const LaunchContext* launch, const uint64_t group_id[3],
                             void* local_memory);

struct GlobalInfo {
  std::string name;
  uint64_t size;
};

struct CompileResult {
  bool ok = false;
  std::string log;                // diagnostics; on failure the first line says what and where
  std::vector<std::byte> native;  // container
};

// Never aborts and never throws, whatever the words are. Unknown instruction: ok = false, the log names opcode and word
// offset. Thread-safe.
CompileResult compileSpirv(std::span<const uint32_t> words, const CompileOptions& options);

struct LinkResult {
  bool ok = false;
  std::string log;
  std::vector<uint32_t> words;
};

// One module whose imports are bound to exports as far as the inputs have them; exports stay. Never throws.
// Thread-safe.
LinkResult linkSpirv(std::span<const std::vector<uint32_t>> modules);

// Code in memory. Destroying it unmaps the code: no kernel of it may run or be launched later.
class LoadedModule {
public:
  // Checks magic, version, hash and ISA level. A container for a higher level than the host's is compiled again from
  // the SPIR-V it carries. On failure returns nullptr and fills log.
  static std::unique_ptr<LoadedModule> load(std::span<const std::byte> native, std::string& log);
  virtual ~LoadedModule() = default;

  virtual const std::vector<spirv::KernelInfo>& kernels() const = 0;
  virtual WorkGroupFn entry(size_t kernel_index) const = 0;  // local size read from LaunchContext
  virtual const std::vector<GlobalInfo>& globals() const = 0;
  virtual void* globalAddress(size_t index) const = 0;  // this module's own storage
  virtual std::vector<std::string> unresolvedImports() const = 0;
  virtual const std::vector<std::string>& functions() const = 0;     // exported
  virtual void* functionAddress(const std::string& name) const = 0;  // exported function, or nullptr
  virtual const std::string& buildFlags() const = 0;
};

}  // namespace zefuse::cpu
