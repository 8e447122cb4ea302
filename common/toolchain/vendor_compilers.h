// The offline compilers of devices' vendors: SPIR-V to a device binary that zeModuleCreate takes as
// ZE_MODULE_FORMAT_NATIVE. A target's row names its own (GpuTarget::compiler), and code elsewhere asks for the compiler
// of a target, never for one by its name. Another vendor's is a row of vendor_compilers.cpp, and a file beside ocloc.h
// with the row's functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/base/status.h"

namespace zefuse {

struct CompilerOptions {
  std::string compiler;  // name or path
  std::chrono::milliseconds deadline{60'000};
#ifdef ZEFUSE_SANITIZED
  uint64_t memory_bytes = 0;  // our own compilers' shadow memory is more than any limit
#else
  uint64_t memory_bytes = uint64_t(8) << 30;  // of the compiler
#endif
  CancelCheck cancelled;
  bool assembly = false;  // also DeviceBinary::assembly; takes longer
};

struct DeviceBinary {
  std::vector<std::byte> bytes;
  std::string text;      // what the compiler printed: warnings
  std::string assembly;  // what it made, as its own dump shows it
};

// What the compiler says of a one-kernel binary. Zero where it says nothing: ocloc 22.43 reports spills only.
struct DeviceReport {
  int simd = 0;                   // work-items per hardware thread
  int registers = 0;              // of a thread
  int64_t spilled_registers = 0;  // or bytes: zero means none
  int64_t private_bytes = 0;      // per work-item, in memory: arrays that did not fit into registers
  int64_t local_bytes = 0;
  int matrix_operations = 0;  // in the assembly
  // Functions that the binary calls and does not have: it would fail at the launch. ocloc 22.43 does not tell; a call
  // of the matrix engine that it did not know leaves no matrix operation.
  std::vector<std::string> unresolved;
};

// All functions are thread-safe. A compiler runs as a subprocess: it may hang or crash.
struct VendorCompiler {
  std::string_view name;    // of cache keys and messages
  std::string_view advice;  // how a user gets one, or names one
  // Commands to try, best first. Names or paths; none need exist.
  std::vector<std::string> (*commands)();
  // The compiler's version, part of the cache key of what it makes. not_found without a compiler.
  Result<std::string> (*version)(const CompilerOptions& options);
  // The products that the compiler says it knows.
  Result<std::vector<std::string>> (*devices)(const CompilerOptions& options);
  Result<DeviceBinary> (*compile)(std::span<const uint32_t> spirv, const std::string& product,
                                  const CompilerOptions& options);
  DeviceReport (*report)(const DeviceBinary& binary);
};

ZEFUSE_API std::span<const VendorCompiler> vendorCompilers();
// By the name that a row has; null: none.
ZEFUSE_API const VendorCompiler* findVendorCompiler(std::string_view name);
// The compiler of a target, by the product's name or alias; null: no such target.
ZEFUSE_API const VendorCompiler* vendorCompilerOf(std::string_view product);

}  // namespace zefuse
