#include "lowering/targets.h"

namespace zefuse {
namespace {

// From Intel's published specifications of the largest variant of each; names as `ocloc ids` has them.
constexpr MatrixEngine none{}, dpas8{8, 8, 16}, dpas16{8, 16, 16};
constexpr GpuTarget table[] = {
    {"skl", "Gen9", "HD Graphics 530", 24, 7, 32, 256, 64, 8 | 16 | 32, true, false, none},
    {"kbl", "Gen9", "UHD Graphics 620", 24, 7, 32, 256, 64, 8 | 16 | 32, true, false, none},
    {"cfl", "Gen9", "UHD Graphics 630", 24, 7, 32, 256, 64, 8 | 16 | 32, true, false, none},
    {"icllp", "Gen11", "Iris Plus Graphics", 64, 7, 32, 256, 64, 8 | 16 | 32, false, false, none},
    {"tgllp", "Xe-LP", "Iris Xe Graphics", 96, 7, 32, 512, 64, 8 | 16 | 32, false, false, none},
    {"rkl", "Xe-LP", "UHD Graphics 750", 32, 7, 32, 512, 64, 8 | 16 | 32, false, false, none},
    {"adl-s", "Xe-LP", "UHD Graphics 770", 32, 7, 32, 512, 64, 8 | 16 | 32, false, false, none},
    {"adl-p", "Xe-LP", "Iris Xe Graphics", 96, 7, 32, 512, 64, 8 | 16 | 32, false, false, none},
    {"adl-n", "Xe-LP", "UHD Graphics", 32, 7, 32, 512, 64, 8 | 16 | 32, false, false, none},
    {"dg1", "Xe-LP", "Iris Xe MAX", 96, 7, 32, 512, 64, 8 | 16 | 32, false, false, none},
    {"dg2-g10", "Xe-HPG", "Arc A770", 512, 8, 32, 1024, 64, 8 | 16 | 32, false, true, dpas8},
    {"dg2-g11", "Xe-HPG", "Arc A380", 128, 8, 32, 1024, 64, 8 | 16 | 32, false, true, dpas8},
    {"dg2-g12", "Xe-HPG", "Arc A570M", 256, 8, 32, 1024, 64, 8 | 16 | 32, false, true, dpas8},
    {"mtl-u", "Xe-LPG", "Core Ultra 5 125U", 64, 8, 32, 1024, 64, 8 | 16 | 32, true, true, none},
    {"mtl-h", "Xe-LPG", "Core Ultra 7 155H", 128, 8, 32, 1024, 64, 8 | 16 | 32, true, true, none},
    {"arl-h", "Xe-LPG+", "Core Ultra 7 255H", 128, 8, 32, 1024, 64, 8 | 16 | 32, true, true, dpas8},
    {"pvc", "Xe-HPC", "Data Center GPU Max 1550", 512, 8, 64, 1024, 128, 16 | 32, true, true, dpas16},
    {"lnl-m", "Xe2", "Core Ultra 7 258V", 64, 8, 64, 1024, 128, 16 | 32, true, true, dpas16},
    {"bmg-g21", "Xe2", "Arc B580", 160, 8, 64, 1024, 128, 16 | 32, true, true, dpas16},
    {"ptl-h", "Xe3", "Core Ultra X9 388H", 96, 10, 64, 1024, 128, 16 | 32, true, true, dpas16},
    {"ptl-u", "Xe3", "Core Ultra 7 355", 32, 10, 64, 1024, 128, 16 | 32, true, true, dpas16},
};

}  // namespace

std::span<const GpuTarget> gpuTargets() { return table; }

const GpuTarget* findGpuTarget(std::string_view product) {
  for (const GpuTarget& target : table)
    if (target.product == product)
      return &target;
  return nullptr;
}

}  // namespace zefuse
