#include "common/toolchain/targets.h"

#include <cpuid.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace zefuse {
namespace {

// What Intel's compilers of 2022 and 2026 take each id for (`ocloc compile -device 0x56a5` says it).
constexpr uint16_t skl_ids[] = {0x1902, 0x1906, 0x190a, 0x190b, 0x190e, 0x1912, 0x1913, 0x1915, 0x1916,
                                0x1917, 0x191a, 0x191b, 0x191d, 0x191e, 0x1921, 0x1923, 0x1926, 0x1927,
                                0x192a, 0x192b, 0x192d, 0x1932, 0x193a, 0x193b, 0x193d};
constexpr uint16_t kbl_ids[] = {0x5902, 0x5906, 0x5908, 0x590a, 0x590b, 0x590e, 0x5912, 0x5913, 0x5915, 0x5916, 0x5917,
                                0x591a, 0x591b, 0x591c, 0x591d, 0x591e, 0x5921, 0x5923, 0x5926, 0x5927, 0x593b};
constexpr uint16_t cfl_ids[] = {0x3e90, 0x3e91, 0x3e92, 0x3e93, 0x3e94, 0x3e96, 0x3e98, 0x3e99, 0x3e9a, 0x3e9b, 0x3ea0,
                                0x3ea1, 0x3ea2, 0x3ea3, 0x3ea4, 0x3ea5, 0x3ea6, 0x3ea7, 0x3ea8, 0x3ea9, 0x9b21, 0x9b41,
                                0x9ba0, 0x9ba2, 0x9ba4, 0x9ba5, 0x9ba8, 0x9baa, 0x9bab, 0x9bac, 0x9bc0, 0x9bc2, 0x9bc4,
                                0x9bc5, 0x9bc6, 0x9bc8, 0x9bca, 0x9bcb, 0x9bcc, 0x9be6, 0x9bf6};
constexpr uint16_t icllp_ids[] = {0x8a50, 0x8a51, 0x8a52, 0x8a56, 0x8a58, 0x8a5a, 0x8a5c};
constexpr uint16_t tgllp_ids[] = {0x9a40, 0x9a49, 0x9a59, 0x9a60, 0x9a68, 0x9a70, 0x9a78};
constexpr uint16_t rkl_ids[] = {0x4c80, 0x4c8a, 0x4c8b, 0x4c8c, 0x4c90, 0x4c9a};
constexpr uint16_t adl_s_ids[] = {0x4680, 0x4682, 0x4688, 0x468a, 0x468b, 0x4690, 0x4692, 0x4693,
                                  0xa780, 0xa781, 0xa782, 0xa783, 0xa788, 0xa789, 0xa78a, 0xa78b};
constexpr uint16_t adl_p_ids[] = {0x4626, 0x4628, 0x462a, 0x46a0, 0x46a1, 0x46a3, 0x46a6, 0x46a8, 0x46aa,
                                  0x46b0, 0x46b1, 0x46b3, 0x46c0, 0x46c1, 0x46c3, 0xa720, 0xa721, 0xa7a0,
                                  0xa7a1, 0xa7a8, 0xa7a9, 0xa7aa, 0xa7ab, 0xa7ac, 0xa7ad};
constexpr uint16_t adl_n_ids[] = {0x46d0, 0x46d1, 0x46d2, 0x46d3, 0x46d4};
constexpr uint16_t dg1_ids[] = {0x4905, 0x4906, 0x4907, 0x4908, 0x4909};
constexpr uint16_t dg2_g10_ids[] = {0x4f80, 0x4f81, 0x4f82, 0x4f83, 0x4f84, 0x5690, 0x5691, 0x5692,
                                    0x56a0, 0x56a1, 0x56a2, 0x56af, 0x56be, 0x56bf, 0x56c0, 0x56c2};
constexpr uint16_t dg2_g11_ids[] = {0x4f87, 0x4f88, 0x5693, 0x5694, 0x5695, 0x56a5, 0x56a6,
                                    0x56b0, 0x56b1, 0x56ba, 0x56bb, 0x56bc, 0x56bd, 0x56c1};
constexpr uint16_t dg2_g12_ids[] = {0x4f85, 0x4f86, 0x5696, 0x5697, 0x56a3, 0x56a4, 0x56b2, 0x56b3};
constexpr uint16_t mtl_u_ids[] = {0x7d40, 0x7d41, 0x7d45, 0x7d67};
constexpr uint16_t mtl_h_ids[] = {0x7d55, 0x7dd5};
constexpr uint16_t arl_h_ids[] = {0x7d51, 0x7dd1};
constexpr uint16_t pvc_ids[] = {0x0b69, 0x0b6e, 0x0bd0, 0x0bd5, 0x0bd6, 0x0bd7, 0x0bd8, 0x0bd9, 0x0bda, 0x0bdb};
constexpr uint16_t lnl_m_ids[] = {0x6420, 0x64a0, 0x64b0};
constexpr uint16_t bmg_g21_ids[] = {0xe202, 0xe209, 0xe20b, 0xe20c, 0xe20d, 0xe210, 0xe211, 0xe212, 0xe215, 0xe216};
constexpr uint16_t ptl_h_ids[] = {0xb080, 0xb081, 0xb082, 0xb083, 0xb084, 0xb085,
                                  0xb086, 0xb087, 0xb08f, 0xb0a0, 0xb0b0};
constexpr uint16_t ptl_u_ids[] = {0xb090};

// From Intel's published specifications of the largest variant of each; names as `ocloc ids` has them. A family has
// what its products share. Without the load/store cache's messages (before Xe-HPG) operands from local memory take
// registers per lane, so that accumulators have fewer.
constexpr MatrixOperation dpas8_operations[] = {
    {"f16", 8, 8, 16, "intel_sub_group_f16_f16_matrix_mad_k16"},
    {"bf16", 8, 8, 16, "intel_sub_group_bf16_bf16_matrix_mad_k16"},
};
constexpr MatrixOperation dpas16_operations[] = {
    {"f16", 8, 16, 16, "intel_sub_group_f16_f16_matrix_mad_k16"},
    {"bf16", 8, 16, 16, "intel_sub_group_bf16_bf16_matrix_mad_k16"},
};
// mma.sync of PTX, and what feeds it: ldmatrix, cp.async, shfl.sync (drivers/spirv/matrix_calls.cpp).
constexpr MatrixOperation mma_operations[] = {
    {"f16", 16, 8, 16, "zefuse_mma_m16n8k16_f16"},
    {"bf16", 16, 8, 16, "zefuse_mma_m16n8k16_bf16"},
    {"tf32", 16, 8, 8, "zefuse_mma_m16n8k8_tf32"},
};
constexpr std::string_view mma_functions[] = {
    "zefuse_load_fragments", "zefuse_load_fragments_transposed", "zefuse_copy_to_local", "zefuse_copy_word_to_local",
    "zefuse_commit_copies",  "zefuse_wait_for_copies",           "zefuse_shuffle_xor"};
constexpr MatrixEngine mma{32, mma_operations, MatrixForm::fragments, mma_functions};
// The same with wgmma (drivers/cuda/codegen/warpgroup.h).
constexpr std::string_view wgmma_functions[] = {"zefuse_load_fragments",
                                                "zefuse_load_fragments_transposed",
                                                "zefuse_copy_to_local",
                                                "zefuse_copy_word_to_local",
                                                "zefuse_commit_copies",
                                                "zefuse_wait_for_copies",
                                                "zefuse_shuffle_xor",
                                                "zefuse_warpgroup_multiply_f16",
                                                "zefuse_warpgroup_multiply_bf16",
                                                "zefuse_warpgroup_multiply_rows_f16",
                                                "zefuse_warpgroup_multiply_rows_bf16",
                                                "zefuse_warpgroup_begin",
                                                "zefuse_warpgroup_commit",
                                                "zefuse_warpgroup_computed",
                                                "zefuse_warpgroup_take_turn",
                                                "zefuse_warpgroup_give_turn",
                                                "zefuse_warpgroup_registers",
                                                "zefuse_warpgroup_wait",
                                                "zefuse_warpgroup_publish"};
constexpr MatrixEngine wgmma{32, mma_operations, MatrixForm::fragments, wgmma_functions, /*together=*/4};
constexpr MatrixEngine dpas8{8, dpas8_operations}, dpas16{16, dpas16_operations};

// `subgroup_size` is the one size that all have.
constexpr GpuTarget gen9{.family = "Gen9",
                         .vendor = intel_pci,
                         .compiler = "ocloc",
                         .compilers = "22.43",
                         .threads_per_engine = 7,
                         .max_group_size = 256,
                         .subgroup_sizes = 8 | 16 | 32,
                         .subgroup_size = 16,
                         .register_bytes = 4 << 10,
                         .accumulator_bytes = 1 << 10,
                         .local_memory_kib = 64,
                         .native = {.f64 = true, .f16 = true, .shuffles = true}};
constexpr GpuTarget gen11 = [] {
  GpuTarget family = gen9;
  family.family = "Gen11";
  family.native.f64 = false;
  return family;
}();
constexpr GpuTarget xe_lp = [] {
  GpuTarget family = gen11;
  family.family = "Xe-LP";
  family.compilers = "22.43, 26.27";
  family.max_group_size = 512;
  return family;
}();
constexpr GpuTarget xe_hpg = [] {
  GpuTarget family = xe_lp;
  family.family = "Xe-HPG";
  family.threads_per_engine = 8;
  family.max_group_size = 1024;
  family.accumulator_bytes = 2 << 10;
  family.matrix = dpas8;
  return family;
}();
constexpr GpuTarget xe_lpg = [] {
  GpuTarget family = xe_hpg;
  family.family = "Xe-LPG";
  family.compilers = "26.27";
  family.native.f64 = true;
  family.matrix = {};
  return family;
}();
constexpr GpuTarget xe_lpg_plus = [] {
  GpuTarget family = xe_lpg;
  family.family = "Xe-LPG+";
  family.matrix = dpas8;
  return family;
}();
constexpr GpuTarget xe_hpc = [] {
  GpuTarget family = xe_hpg;
  family.family = "Xe-HPC";
  family.subgroup_sizes = 16 | 32;
  family.register_bytes = 8 << 10;
  family.accumulator_bytes = 3 << 10;
  family.local_memory_kib = 128;
  family.native.f64 = true;
  family.matrix = dpas16;
  return family;
}();
constexpr GpuTarget xe2 = [] {
  GpuTarget family = xe_hpc;
  family.family = "Xe2";
  family.compilers = "26.27";
  return family;
}();
constexpr GpuTarget xe3 = [] {
  GpuTarget family = xe2;
  family.family = "Xe3";
  family.threads_per_engine = 10;
  return family;
}();

// A multiprocessor is an engine whose hardware threads are warps. A work-item has at most 255 registers of 4 bytes; a
// product's sums may fill half of them.
constexpr uint16_t nvidia_pci = 0x10de;
constexpr GpuTarget ampere{.family = "Ampere",
                           .vendor = nvidia_pci,
                           .compiler = "zefuse-ptx",
                           .compilers = "13.0",
                           .threads_per_engine = 64,
                           .max_group_size = 1024,
                           .subgroup_sizes = 16 | 32,
                           .subgroup_size = 32,
                           .vector_alignment = 16,
                           .index_bits = 64,
                           .register_bytes = 32 << 10,
                           .accumulator_bytes = 8 << 10,
                           .local_memory_kib = 96,
                           .native = {.f64 = true,
                                      .f16 = true,
                                      .shuffles = true,
                                      .bf16_conversions = true,
                                      .tanh = true,
                                      .reciprocal = true,
                                      .dot4 = true,
                                      .asynchronous_copies = true},
                           .matrix = mma,
                           .product_library = "cuBLASLt"};
constexpr GpuTarget ampere_ga10x = [] {
  GpuTarget family = ampere;
  family.threads_per_engine = 48;
  return family;
}();
constexpr GpuTarget ada = [] {
  GpuTarget family = ampere_ga10x;
  family.family = "Ada";
  return family;
}();
constexpr GpuTarget hopper = [] {
  GpuTarget family = ampere;
  family.family = "Hopper";
  family.local_memory_kib = 224;
  family.matrix = wgmma;
  return family;
}();
constexpr GpuTarget blackwell = [] {
  GpuTarget family = hopper;
  family.family = "Blackwell";
  family.matrix = mma;  // wgmma is Hopper's alone
  return family;
}();

constexpr bool shared = true, own = false;  // memory
constexpr GpuTarget product(GpuTarget family, std::string_view name, std::string_view alias, std::string_view marketing,
                            int engines, bool integrated, std::span<const uint16_t> ids) {
  family.product = name;
  family.alias = alias;
  family.marketing = marketing;
  family.engines = engines;
  family.integrated = integrated;
  family.device_ids = ids;
  return family;
}

constexpr GpuTarget table[] = {
    product(gen9, "skl", "", "HD Graphics 530", 24, shared, skl_ids),
    product(gen9, "kbl", "", "UHD Graphics 620", 24, shared, kbl_ids),
    product(gen9, "cfl", "", "UHD Graphics 630", 24, shared, cfl_ids),
    product(gen11, "icllp", "", "Iris Plus Graphics", 64, shared, icllp_ids),
    product(xe_lp, "tgllp", "tgl", "Iris Xe Graphics", 96, shared, tgllp_ids),
    product(xe_lp, "rkl", "", "UHD Graphics 750", 32, shared, rkl_ids),
    product(xe_lp, "adl-s", "", "UHD Graphics 770", 32, shared, adl_s_ids),
    product(xe_lp, "adl-p", "", "Iris Xe Graphics", 96, shared, adl_p_ids),
    product(xe_lp, "adl-n", "", "UHD Graphics", 32, shared, adl_n_ids),
    product(xe_lp, "dg1", "", "Iris Xe MAX", 96, own, dg1_ids),
    product(xe_hpg, "dg2-g10", "acm-g10", "Arc A770", 512, own, dg2_g10_ids),
    product(xe_hpg, "dg2-g11", "acm-g11", "Arc A380", 128, own, dg2_g11_ids),
    product(xe_hpg, "dg2-g12", "acm-g12", "Arc A570M", 256, own, dg2_g12_ids),
    product(xe_lpg, "mtl-u", "mtl-s", "Core Ultra 5 125U", 64, shared, mtl_u_ids),
    product(xe_lpg, "mtl-h", "mtl-p", "Core Ultra 7 155H", 128, shared, mtl_h_ids),
    product(xe_lpg_plus, "arl-h", "", "Core Ultra 7 255H", 128, shared, arl_h_ids),
    product(xe_hpc, "pvc", "", "Data Center GPU Max 1550", 512, own, pvc_ids),
    product(xe2, "lnl-m", "lnl", "Core Ultra 7 258V", 64, shared, lnl_m_ids),
    product(xe2, "bmg-g21", "bmg", "Arc B580", 160, own, bmg_g21_ids),
    product(xe3, "ptl-h", "ptl", "Core Ultra X9 388H", 96, shared, ptl_h_ids),
    product(xe3, "ptl-u", "", "Core Ultra 7 355", 32, shared, ptl_u_ids),
    product(ampere, "sm_80", "", "A100", 108, own, {}),
    product(ampere_ga10x, "sm_86", "", "A40, GeForce RTX 3090", 84, own, {}),
    product(ada, "sm_89", "", "L40, GeForce RTX 4090", 142, own, {}),
    product(hopper, "sm_90", "", "H100, H200", 132, own, {}),
    product(blackwell, "sm_100", "", "B200", 148, own, {}),
};

constexpr CpuTarget levels[] = {
    {"avx2", "x86-64-v3", "AVX2, FMA, BMI2, F16C"},
    {"avx512", "x86-64-v4", "AVX-512 F, BW, CD, DQ, VL"},
    {"avx512_bf16", "", "avx512 and AVX-512 BF16, VNNI"},
    {"amx", "", "avx512_bf16 and AMX TILE, BF16, INT8"},
};

size_t detectLevel() {
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (!avx512)
    return 0;
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni"))
    return 1;
  unsigned a, b, c, d;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & amx_bf16) == 0 || (d & amx_tile) == 0 || (d & amx_int8) == 0)
    return 2;
  return 3;
}

}  // namespace

const MatrixOperation* MatrixEngine::find(std::string_view element) const {
  for (const MatrixOperation& operation : operations)
    if (operation.element == element)
      return &operation;
  return nullptr;
}

std::span<const GpuTarget> gpuTargets() { return table; }

const GpuTarget* findGpuTarget(std::string_view product) {
  for (const GpuTarget& target : table)
    if (target.product == product || (!product.empty() && target.alias == product))
      return &target;
  return nullptr;
}

const GpuTarget* findGpuTarget(PciId id) {
  for (const GpuTarget& target : table)
    if (target.vendor == id.vendor && std::ranges::find(target.device_ids, id.device) != target.device_ids.end())
      return &target;
  return nullptr;
}

std::span<const CpuTarget> cpuTargets() { return levels; }

const CpuTarget* findCpuTarget(std::string_view name) {
  for (const CpuTarget& level : levels)
    if (level.name == name || (!name.empty() && level.alias == name))
      return &level;
  return nullptr;
}

size_t hostCpuLevel() {
  static const size_t host = detectLevel();
  const char* limit = std::getenv("ZEFUSE_CPU_ISA");
  if (!limit)
    return host;
  if (const CpuTarget* level = findCpuTarget(limit))
    return std::min(host, size_t(level - levels));
  static const bool told = [&] {
    std::fprintf(stderr, "zefuse: ZEFUSE_CPU_ISA=%s is ignored: it is none of avx2, avx512, avx512_bf16, amx\n", limit);
    return true;
  }();
  (void)told;
  return host;
}

}  // namespace zefuse
