// The devices that kernels are compiled for ahead of need: two closed tables. A GPU is named as its vendor's compiler
// names it, a level of x86-64 as ZEFUSE_CPU_ISA does. Nothing but the standard library: compiler, runtime and the CPU
// driver share this file.
#pragma once

#include "common/base/api.h"
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zefuse {

// Who made a device, and which one it is.
struct PciId {
  uint16_t vendor = 0, device = 0;
  bool operator==(const PciId&) const = default;
};
constexpr uint16_t intel_pci = 0x8086;
constexpr uint16_t zefuse_pci = 0x7a66;  // "zf", of our CPU driver's devices: a CPU has no PCI id

// What of a matrix instruction's operands a lane holds.
enum class MatrixForm : uint8_t {
  // (Intel) A lane per column n. c is the lane's column of m rows; a is, per row, an integer of the lane's k / n
  // neighbouring elements; b is the lane's column, two elements in each integer of 32 bits. m is the most rows that one
  // call takes; half and a quarter of them are calls of their own.
  columns,
  // (NVIDIA) Fragments: lane 4g + t has of c the rows g and g + m / 2 in columns 2t and 2t + 1; of a the same rows, of
  // b
  // column g, each in pairs of neighbouring k at 2t and 2t + k / 2. Integers of 32 bits hold the pairs.
  fragments,
};

// One matrix instruction of a sub-group: c[m, n] += a[m, k] * b[k, n] with sums in f32. `multiply` is the function that
// a kernel calls for it, without its mangling: (a, b, c) -> c.
struct MatrixOperation {
  std::string_view element;  // of a and b, as MLIR writes it: "f16"; "tf32": f32's bits, of which 19 count
  int m, n, k;
  std::string_view multiply;
};

struct ZEFUSE_API MatrixEngine {
  int lanes = 0;  // of the sub-groups that it multiplies for; 0: there is no matrix engine
  std::span<const MatrixOperation> operations;
  MatrixForm form = MatrixForm::columns;
  std::span<const std::string_view> functions = {};  // beside them, that kernels on the engine may call
  // Sub-groups that also multiply together, 64 rows at a time, with operands in local memory (wgmma of PTX); 0: none
  // do.
  int together = 0;

  const MatrixOperation* find(std::string_view element) const;  // null: none for such elements
};

// Imported function of a kernel, `ushort<N> zefuse_to_bfloat16_<N>(float<N>)`, without N of scalars: drivers/spirv maps
// it to the device's instruction. SPV_INTEL_bfloat16_conversion would be the standard's word, which the validator
// (SPIRV-Tools 2023.1) does not know.
inline constexpr const char* kConvertBfloat16 = "zefuse_to_bfloat16_";

// The same, `float<N> zefuse_native_tanh_<N>(float<N>)`: within 2^-10.9 of the value.
inline constexpr const char* kNativeTanh = "zefuse_native_tanh_";

// The same, `int<N> zefuse_dot4_<N>(uint<N>, int<N>, int<N>)`: zefuse.dot4 (lowering/dialect/Zefuse.td).
// SPV_KHR_integer_dot_product has no form for the lanes of a vector.
inline constexpr const char* kDot4 = "zefuse_dot4_";

// What a device computes in one instruction. Kernels that need another are refused (lowering/lower.h).
struct NativeOperations {
  bool f64 = false;                  // double precision
  bool f16 = false;                  // arithmetic of half precision
  bool shuffles = false;             // a lane reads any other lane's value
  bool bf16_conversions = false;     // kConvertBfloat16
  bool tanh = false;                 // kNativeTanh
  bool reciprocal = false;           // OpenCL's native_recip of f32, within 2^-23 of the value; subnormal ones are 0
  bool dot4 = false;                 // kDot4
  bool asynchronous_copies = false;  // from global to local memory: functions that `matrix` has
};

// The defaults are a device without anything special.
struct GpuTarget {
  std::string_view product;    // "dg2-g11": the name of plans, caches and the compiler
  std::string_view alias;      // another name in use, such as "acm-g11"; may be empty
  std::string_view family;     // "Xe-HPG"
  std::string_view marketing;  // one example
  uint16_t vendor = 0;         // PCI
  std::span<const uint16_t> device_ids;
  std::string_view compiler;   // the vendor's, as vendor_compilers.h has it: "ocloc"
  std::string_view compilers;  // its versions seen to compile for it, "22.43, 26.27"

  int engines = 1;                // that run hardware threads, of the largest variant
  int threads_per_engine = 1;     // hardware threads, each of which runs a sub-group
  int max_group_size = 1;         // work-items
  uint32_t subgroup_sizes = 0;    // a bit per size: 8 | 16 | 32
  int subgroup_size = 0;          // one of these: of kernels that no matrix engine wants otherwise
  int access_bytes = 16;          // of one work-item: the widest that one message carries per lane
  int vector_alignment = 4;       // bytes: a vector access at a multiple of it is not split
  int index_bits = 32;            // of the widest integers that it divides without a call
  int64_t register_bytes = 0;     // of a hardware thread
  int64_t accumulator_bytes = 0;  // of these, that a product may fill without spills, as its compilers were seen to
  int64_t local_memory_kib = 0;   // that one work-group may have
  bool integrated = false;        // shares the host's memory
  NativeOperations native;
  MatrixEngine matrix;
  std::string_view product_library;  // that large matrix products may go to; empty: none

  PciId id(size_t number) const { return {vendor, device_ids[number]}; }
};

ZEFUSE_API std::span<const GpuTarget> gpuTargets();
ZEFUSE_API const GpuTarget* findGpuTarget(std::string_view product);  // by product or alias; null: not in the table
const GpuTarget* findGpuTarget(PciId id);

// A level of x86-64, each a superset of the one before.
struct CpuTarget {
  std::string_view name;   // "avx512"
  std::string_view alias;  // "x86-64-v4"; may be empty
  std::string_view needs;  // the features
};

ZEFUSE_API std::span<const CpuTarget> cpuTargets();  // lowest first
const CpuTarget* findCpuTarget(std::string_view name);
// The index in cpuTargets() of the highest level that this host runs and ZEFUSE_CPU_ISA allows. AMX tiles need the
// kernel's permission as well (arch_prctl); whoever runs such code asks for it.
ZEFUSE_API size_t hostCpuLevel();

}  // namespace zefuse
