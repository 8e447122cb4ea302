// Intel's offline compiler: SPIR-V to a device binary that zeModuleCreate takes as ZE_MODULE_FORMAT_NATIVE.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/base/status.h"

namespace zefuse {

// ZEFUSE_OCLOC, else "ocloc" in PATH.
ZEFUSE_API std::string defaultOcloc();

// Compilers to try, best first: ZEFUSE_OCLOC alone where it is set; else "ocloc" and those of `zefuse toolchain
// install`. Names or paths; none need exist.
std::vector<std::string> installedOclocs();

struct OclocOptions {
  std::string compiler = defaultOcloc();  // name or path
  std::chrono::milliseconds deadline{60'000};
  uint64_t memory_bytes = uint64_t(8) << 30;  // of the compiler
  CancelCheck cancelled;
  bool assembly = false;  // also DeviceBinary::assembly; takes longer
};

// The compiler's version, such as "22.43.24595": part of the cache key of what it makes. not_found without a compiler.
Result<std::string> oclocVersion(const OclocOptions& options = {});
// The devices that the compiler says it knows, as its help lists them ("dg2-g11", "acm-g11", ...).
Result<std::vector<std::string>> oclocDevices(const OclocOptions& options = {});

struct DeviceBinary {
  std::vector<std::byte> bytes;
  std::string text;      // what the compiler printed: warnings
  std::string assembly;  // what it made, as its own dump shows it
};

// What the compiler says of a one-kernel binary. Zero where it says nothing: version 22.43 reports spills only.
struct DeviceReport {
  int simd = 0;                   // work-items per hardware thread
  int registers = 0;              // of a thread
  int64_t spilled_registers = 0;  // or bytes: zero means none
  int64_t private_bytes = 0;      // per work-item, in memory: arrays that did not fit into registers
  int64_t local_bytes = 0;
  int matrix_operations = 0;  // dpas in the assembly
  // Functions that the binary calls and does not have: it would fail at the launch. Version 22.43 does not tell; a call
  // of the matrix engine that it did not know leaves no dpas.
  std::vector<std::string> unresolved;
};
DeviceReport deviceReport(const DeviceBinary& binary);

// Runs the compiler as a subprocess (it may hang or crash: facts of real compilers). On failure the SPIR-V file stays
// where the message's command expects it, unless it was cancelled. Thread-safe.
Result<DeviceBinary> compileWithOcloc(std::span<const uint32_t> spirv, const std::string& device,
                                      const OclocOptions& options = {});

}  // namespace zefuse
